# SPDX-License-Identifier: Apache-2.0
"""Arguments, dtypes, layouts and errors at the edge of what operations take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch

MATRIX = np.array([[0, 1], [2, 3]], np.complex64) * (1 + 1j)


# -- factors and norms ----------------------------------------------------------------------------


def test_products_take_complex_factors(gpu: Any) -> None:
    m = torch.from_numpy(MATRIX).to(gpu)
    expected = (2 + 1j) * MATRIX + 1j * (MATRIX @ MATRIX)
    np.testing.assert_allclose(
        torch.addmm(m, m, m, beta=2 + 1j, alpha=1j).cpu().numpy(), expected, rtol=1e-5
    )
    batched = torch.baddbmm(m[None], m[None], m[None], beta=2 + 1j, alpha=1j)
    np.testing.assert_allclose(batched[0].cpu().numpy(), expected, rtol=1e-5)
    without = torch.addmm(m * float("nan"), m, m, beta=0, alpha=1j)
    np.testing.assert_allclose(without.cpu().numpy(), 1j * (MATRIX @ MATRIX), rtol=1e-5)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.addmm(m.real, m.real, m.real, alpha=1j)


def test_nuclear_norm_and_its_gradient(gpu: Any) -> None:
    values = np.random.default_rng(1).normal(size=(2, 3, 4))
    x = torch.from_numpy(values).to(gpu).requires_grad_()
    singular = np.linalg.svd(values.transpose(1, 0, 2), compute_uv=False).sum(-1)
    found = x.norm("nuc", dim=(0, 2))
    np.testing.assert_allclose(found.detach().cpu().numpy(), singular)
    kept = torch.norm(x, p="nuc", dim=(0, 2), keepdim=True)
    np.testing.assert_allclose(kept.detach().cpu().numpy(), singular[None, :, None])
    found.sum().backward()
    left, _, right = np.linalg.svd(values.transpose(1, 0, 2), full_matrices=False)
    np.testing.assert_allclose(x.grad.cpu().numpy(), (left @ right).transpose(1, 0, 2))
    with pytest.raises(RuntimeError):
        x.norm("nuc")  # three dimensions are no matrix


# -- nothing at all -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_einsum_over_nothing_is_zero(gpu: Any, dtype: Any) -> None:
    a, b = (torch.zeros(*shape, dtype=dtype, device=gpu) for shape in ((2, 0), (0, 3)))
    made = torch.einsum("ij,jk->ik", a, b)
    assert made.dtype == dtype
    assert made.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_unique_of_no_slices(gpu: Any) -> None:
    for shape, dim in (((0, 3), 0), ((3, 0), 1), ((3, 0), -1)):
        values, inverse, counts = torch.unique(
            torch.zeros(*shape, device=gpu), dim=dim, return_inverse=True, return_counts=True
        )
        assert tuple(values.shape) == shape
        assert (inverse.tolist(), counts.tolist()) == ([], [])
    with pytest.raises(RuntimeError, match="0 sized dimensions"):
        torch.unique(torch.zeros(3, 0, device=gpu), dim=0)


def test_no_positions_of_any_dtype(gpu: Any) -> None:
    none = torch.zeros(2, 0, dtype=torch.uint8, device=gpu)
    assert tuple(torch.gather(torch.ones(5, device=gpu), 0, none).shape) == (2, 0)


# -- bool -----------------------------------------------------------------------------------------


def test_bool_has_absolute_values_medians_and_limits(gpu: Any) -> None:
    x = torch.tensor([[True, False, True], [False, False, True]], device=gpu)
    assert torch.equal(x.abs(), x)
    assert torch.median(x).item() is False
    values, places = torch.median(x, 1)
    assert (values.dtype, values.tolist(), places.dtype) == (torch.bool, [True, False], torch.int64)
    assert torch.clamp(x, min=x[:1]).tolist() == [[True, False, True], [True, False, True]]
    assert torch.clamp(x, max=x[1:]).tolist() == [[False, False, True], [False, False, True]]
    assert torch.clamp(x, x[1:], x[:1]).dtype == torch.bool


def test_integers_are_limited_as_by_activations(gpu: Any) -> None:
    x = torch.tensor([-3, 2, 9], device=gpu)
    assert torch.nn.functional.relu6(x).tolist() == [0, 2, 6]
    assert torch.nn.functional.hardtanh(x, -0.5, 2.5).tolist() == [0, 2, 2]
    assert x.dtype == torch.nn.functional.hardtanh_(x).dtype
    assert x.tolist() == [-1, 1, 1]


# -- arguments ------------------------------------------------------------------------------------


def test_differences_with_what_comes_before_and_after(gpu: Any) -> None:
    x = torch.tensor([[1.0, 4.0, 9.0]], device=gpu)
    before, after = torch.zeros(1, 1, device=gpu), torch.full((1, 2), 16.0, device=gpu)
    assert torch.diff(x, prepend=before, append=after).tolist() == [[1, 3, 5, 7, 0]]
    assert x.diff(2, 1, before).tolist() == [[2, 2]]
    out = torch.empty(0, device=gpu)
    assert torch.diff(x, out=out) is out
    assert out.tolist() == [[3, 5]]
    same = x.diff(0)
    assert torch.equal(same, x)
    assert same.data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="order must be non-negative but got -1"):
        x.diff(-1)


def test_flips_by_name(gpu: Any) -> None:
    x = torch.tensor([[1, 2], [3, 4]], device=gpu)
    assert torch.flip(x, dims=(0,)).tolist() == [[3, 4], [1, 2]]
    assert x.flip(dims=[0, 1]).tolist() == [[4, 3], [2, 1]]
    assert torch.flip(x, dims=()).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="Input must be >= 2-d"):
        torch.fliplr(x[0])
    with pytest.raises(RuntimeError, match="Input must be >= 1-d"):
        torch.flipud(x[0, 0])


def test_several_tensors_get_dimensions_at_once(gpu: Any) -> None:
    point, line = torch.tensor(1.0, device=gpu), torch.ones(3, device=gpu)
    for made, shapes in (
        (torch.atleast_1d(point, line), [(1,), (3,)]),
        (torch.atleast_2d([point, line]), [(1, 1), (1, 3)]),
        (torch.atleast_3d((point, line)), [(1, 1, 1), (1, 3, 1)]),
    ):
        assert [tuple(part.shape) for part in made] == shapes
    assert tuple(torch.atleast_2d(line).shape) == (1, 3)


def test_positions_repeat_as_often_as_they_say(gpu: Any) -> None:
    counts = torch.tensor([1, 0, 3], device=gpu)
    assert torch.repeat_interleave(counts).tolist() == [0, 2, 2, 2]
    point = torch.tensor(5.0, device=gpu)
    twice = torch.repeat_interleave(point, 2)
    assert twice.data_ptr() != point.data_ptr()
    assert twice.tolist() == [5, 5]


def test_blocks_have_the_common_dtype(gpu: Any) -> None:
    parts = [torch.ones(1, dtype=dtype, device=gpu) for dtype in (torch.float64, torch.complex64)]
    assert torch.block_diag(*parts).dtype == torch.complex128


def test_covariances_have_the_dtype_of_their_weights(gpu: Any) -> None:
    x, weights = torch.tensor([[1.0, 2.0, 4.0]], device=gpu), torch.ones(3, device=gpu)
    made = torch.cov(x, aweights=weights.double())
    assert made.dtype == torch.float64
    np.testing.assert_allclose(made.item(), 7 / 3)


def test_contractions_broadcast_single_elements(gpu: Any) -> None:
    a, b = torch.full((1, 1), 2.0, device=gpu), torch.arange(6.0, device=gpu).view(2, 3)
    assert torch.tensordot(a, b, dims=([1], [0])).tolist() == [[6, 10, 14]]


def test_sums_in_place_of_one_number(gpu: Any) -> None:
    total, index = torch.zeros((), device=gpu), torch.tensor([0, 0], device=gpu)
    made = torch.index_add(total, 0, index[:1], torch.tensor(2.0, device=gpu), alpha=-1)
    assert made.item() == -2


def test_smallest_and_largest_are_stored(gpu: Any) -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 4.0]], device=gpu)
    low, high = (torch.empty(0, device=gpu) for _ in range(2))
    torch.aminmax(x, dim=1, out=(low, high))
    assert (low.tolist(), high.tolist()) == ([1, 2], [3, 4])


def test_absolute_error_of_complex_numbers_is_real(gpu: Any) -> None:
    x = torch.tensor([3 + 4j, 0j], device=gpu)
    loss = torch.nn.functional.l1_loss(x, x * 0)
    assert (loss.dtype, loss.item()) == (torch.float32, 2.5)


# -- layouts --------------------------------------------------------------------------------------


def test_joined_tensors_stay_channels_last(gpu: Any) -> None:
    plain = torch.arange(48.0, device=gpu).view(2, 3, 2, 4)
    x = plain.contiguous(memory_format=torch.channels_last)
    joined = torch.cat((x, x), 1)
    assert joined.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(joined, torch.cat((plain, plain), 1))
    assert torch.cat((x, plain), 1).is_contiguous()


def test_copies_of_views_are_contiguous(gpu: Any) -> None:
    x = torch.arange(6.0, device=gpu).view(2, 3)
    assert torch.transpose_copy(x, 0, 1).stride() == (2, 1)
    assert torch.permute_copy(x, (1, 0)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.as_strided_copy(x, (2, 2), (1, 2)).stride() == (2, 1)
    assert torch.diag_embed(x, 1, 0, 1).stride() == (8, 2, 1)
    assert torch.diag_embed(x, 1, 0, 1)[0, 1].tolist() == [0, 3]


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, i: torch.cat((x, None)), TypeError, "expected Tensor as element 1"),
        (lambda x, i: torch.hstack(()), RuntimeError, "hstack expects a non-empty TensorList"),
        (lambda x, i: torch.vstack([]), RuntimeError, "vstack expects a non-empty TensorList"),
        (lambda x, i: torch.dstack(()), RuntimeError, "dstack expects a non-empty TensorList"),
        (torch.meshgrid, RuntimeError, "same dtype"),
        (lambda x, i: torch.take(x, x), RuntimeError, "Expected a long tensor for index"),
        (lambda x, i: x.put(i, i), RuntimeError, "expected to have the same dtype"),
        (lambda x, i: x.masked_scatter(x, x), RuntimeError, "only supports boolean masks"),
        (lambda x, i: x.masked_scatter(x > 0, i), RuntimeError, "same dtypes"),
        (lambda x, i: x.masked_fill(x > 0, x[:1]), RuntimeError, "0-dimensional value tensor"),
        (lambda x, i: x.isclose(x, rtol=-1), RuntimeError, "rtol must be greater than or equal"),
        (lambda x, i: x.isclose(x, atol=-1), RuntimeError, "atol must be greater than or equal"),
        (lambda x, i: x.view(1, 3).rot90(1, (1, 1)), RuntimeError, "dims to be different"),
        (lambda x, i: x.view(1, 3).rot90(1, (1,)), RuntimeError, "total rotation dims == 2"),
        (lambda x, i: x.renorm(2, 0, 1), RuntimeError, "at least 2 dimensions"),
        (lambda x, i: i.logit_(), RuntimeError, "can't be cast to the desired output type Long"),
        (lambda x, i: i.polygamma_(1), RuntimeError, "can't be cast"),
        (lambda x, i: (x > 0).square_(), RuntimeError, "can't be cast"),
        (lambda x, i: (x * 1j).abs_(), RuntimeError, "In-place abs is not supported for complex"),
        (lambda x, i: torch.gradient(x, dim=(0, 0)), RuntimeError, "appears multiple times"),
        (lambda x, i: x.gather(0, i, out=x.double()), RuntimeError, "Expected out tensor"),
        (lambda x, i: torch.aminmax(x, out=(x, i)), RuntimeError, "Expected out tensor"),
        (lambda x, i: x.view(3, 1).index_add(0, i, x), RuntimeError, "source tensor shape must"),
        (
            lambda x, i: torch.index_select(x, 0, i, out=x[:1].expand(3)),
            RuntimeError,
            "more than one element of the written-to tensor",
        ),
    ],
)
def test_what_is_refused(gpu: Any, call: Any, error: type[Exception], words: str) -> None:
    x, i = torch.tensor([1.0, 2.0, 3.0], device=gpu), torch.tensor([0, 1, 2], device=gpu)
    with pytest.raises(error, match=words):
        call(x, i)


# -- sequences and sorts --------------------------------------------------------------------------


def test_complex_numbers_are_spaced_evenly(gpu: Any) -> None:
    made = torch.linspace(0, 2 + 4j, 3, device=gpu)
    assert made.dtype == torch.complex64
    assert made.tolist() == [0, 1 + 2j, 2 + 4j]
    assert torch.linspace(1, 3, 3, dtype=torch.complex128, device=gpu).tolist() == [1, 2, 3]
    powers = torch.logspace(0, 1j, 2, base=np.e, device=gpu)
    np.testing.assert_allclose(powers.cpu().numpy(), np.exp([0, 1j]), rtol=1e-6)


@pytest.mark.parametrize("size", [5, 300])
def test_sorts_along_any_dimension_are_contiguous(gpu: Any, size: int) -> None:
    values = np.random.default_rng(size).permutation(size * 6).reshape(2, size, 3)
    x = torch.from_numpy(values).to(gpu)
    for found in (x.sort(1).values, x.sort(1).indices, x.argsort(0), x.msort(), *x.topk(3, 1)):
        assert found.is_contiguous()
    np.testing.assert_array_equal(x.sort(1).values.cpu().numpy(), np.sort(values, 1))
    np.testing.assert_array_equal(x.argsort(1).cpu().numpy(), np.argsort(values, 1))
    top = np.sort(values, 1)[:, ::-1][:, :3]
    np.testing.assert_array_equal(x.topk(3, 1).values.cpu().numpy(), top)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, i: ~x, TypeError, "only implemented on integer and Boolean-type"),
        (lambda x, i: x.add(x, alpha=1j), RuntimeError, "alpha must not be a complex number"),
        (lambda x, i: x.sub_(x, alpha=1j), RuntimeError, "alpha must not be a complex number"),
        (lambda x, i: x.lerp(x, i), RuntimeError, "for `weight` but got dtype"),
        (lambda x, i: x.lerp(x, 1j), RuntimeError, "without overflow"),
        (lambda x, i: x.index_put((i,), i), RuntimeError, "source and destination dtypes match"),
        (lambda x, i: torch.cov(x, fweights=i[None]), RuntimeError, "one or fewer dimensions"),
        (torch.cdist, RuntimeError, "only supports at least 2D tensors, X1 got: 1D"),
        (
            lambda x, i: torch.mm(x[None], x[:, None], out=x.double()),
            RuntimeError,
            "Expected out tensor to have dtype",
        ),
    ],
)
def test_operands_that_do_not_fit(gpu: Any, call: Any, error: type[Exception], words: str) -> None:
    x, i = torch.tensor([1.0, 2.0, 3.0], device=gpu), torch.tensor([0, 1, 2], device=gpu)
    with pytest.raises(error, match=words):
        call(x, i)


# -- parts of complex memory, and pairs of real numbers, written while gradients are recorded ------


def _written_real_parts(y: Any) -> Any:
    torch.view_as_real(y)[:, 1].mul_(3)
    return (y * y.conj()).real.sum()


def _written_imaginary_parts_of_a_slice(y: Any) -> Any:
    y[1:].imag.mul_(torch.tensor([5.0], device=y.device))
    return (y.real**2 + y.imag**3).sum()


def _complex_numbers_seen_after_a_view(y: Any) -> Any:
    seen = y.real
    y.mul_(1j)
    return (seen * seen).sum()


def _written_as_complex_numbers(y: Any) -> Any:
    torch.view_as_complex(y).mul_(1j)
    return (y * torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=y.device)).sum()


def _read_as_complex_numbers(y: Any) -> Any:
    seen = torch.view_as_complex(y)
    y.mul_(3)
    return (seen.real * seen.imag).sum()


PAIRS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("of", "start", "gradient"),
    [
        (_written_real_parts, [1 + 1j, 2j], [8 + 72j, 144j]),
        (_written_imaginary_parts_of_a_slice, [1 + 1j, 2j], [8 + 24j, 12000j]),
        (_complex_numbers_seen_after_a_view, [1 + 1j, 2j], [8j, 16j]),
        (_written_as_complex_numbers, PAIRS, [[4, -2], [8, -6]]),
        (_read_as_complex_numbers, PAIRS, [[72, 36], [144, 108]]),
    ],
)
def test_gradients_through_written_parts(gpu: Any, of: Any, start: Any, gradient: Any) -> None:
    x = torch.tensor(start, device=gpu, requires_grad=True)
    of(x * 2).backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.array(gradient))
