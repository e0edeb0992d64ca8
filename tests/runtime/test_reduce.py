# SPDX-License-Identifier: Apache-2.0
"""Reductions in every way they are cut: by threads, warps, blocks, and slices of outputs."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops.reductions import REDUCTIONS
from flambeau.runtime._reduce import ReductionOp

SHAPES = [
    (1,), (7,), (1000,), (100003,),  # one result, one block or many
    (3, 5), (40, 70), (300, 3), (3, 300), (100, 40),  # few elements each, and a warp each
    (2, 30000), (30000, 40),  # slices along rows and along columns
    (5, 6, 7), (70, 40, 20), (0, 3), (1, 1),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8], ids=lambda t: t.__name__)
def test_sum_and_argmax_over_each_dimension_and_layout(shape, dtype, gpu):
    data = np.random.default_rng(1).integers(0, 9, shape).astype(dtype)
    for reversed_dims in (False, True):
        x = torch.from_numpy(data).to(gpu)
        expected = data
        if reversed_dims:
            x, expected = x.permute(*reversed(range(x.ndim))), data.T
        for dim in (None, *range(data.ndim)):
            args = () if dim is None else (dim,)
            np.testing.assert_array_equal(x.sum(*args).cpu().numpy(), expected.sum(dim))
            if data.size:
                np.testing.assert_array_equal(x.argmax(*args).cpu().numpy(), expected.argmax(dim))


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 6, 17, 1023, 40001])
def test_rows_that_do_not_start_at_a_wide_address(offset, length, gpu):
    data = np.arange(offset + length + 3, dtype=np.int16)
    x = torch.from_numpy(data).to(gpu)
    assert x[offset : offset + length].sum().item() == int(
        data[offset : offset + length].sum(dtype=np.int64)
    )


def test_dimensions_too_scattered_for_a_kernel_are_copied_first(gpu):
    data = np.arange(2**14, dtype=np.float32).reshape((2,) * 14)
    x = torch.from_numpy(data).to(gpu)[..., ::1].permute(*range(1, 14), 0)[(slice(None),) * 13]
    order = (*range(0, 14, 2), *range(1, 14, 2))
    np.testing.assert_array_equal(
        x.permute(*order).argmax(13).cpu().numpy(),
        data.transpose(*range(1, 14), 0).transpose(order).argmax(13),
    )


def test_a_nan_wins_and_the_first_extreme_counts(gpu):
    x = torch.tensor([1.0, 5.0, float("nan"), 5.0, float("nan")], device=gpu)
    assert x.argmax().item() == 2
    assert torch.tensor([2, 7, 7, 1], device=gpu).argmax().item() == 1
    assert torch.tensor([3, 1, 2, 1], device=gpu).argmin().item() == 1


def test_subclasses_stay_subclasses(gpu):
    class Mine(torch.Tensor):
        pass

    x = torch.ones(3, device=gpu).as_subclass(Mine)
    assert type(x.sum()) is Mine


def test_compile_is_asked_once_per_variant(gpu):
    asked = []

    def compile(op, device, in_code, out_code, variant):
        from flambeau.ops import reductions

        asked.append(variant)
        return reductions._compile(op, device, in_code, out_code, variant)

    op = ReductionOp("sum", compile=compile)
    x = torch.ones(100_000, device=gpu)
    code = x.dtype.code
    for _ in range(3):
        result, positions = op(x, None, False, code)
    assert result.item() == 100_000
    assert positions is None
    assert asked == ["per_block", "partials"]


def test_host_tensors_and_wrong_dimensions_are_refused(gpu):
    op = ReductionOp("sum", compile=lambda *_: 0)
    with pytest.raises(RuntimeError, match="on the host"):
        op(torch.ones(3), None, False, 0)
    with pytest.raises(IndexError, match="dimension 2"):
        op(torch.ones(3, device=gpu), (2,), False, 0)


def test_every_row_has_a_functor_and_a_host_form():
    assert all(row.functor and row.numpy for row in REDUCTIONS.values())
