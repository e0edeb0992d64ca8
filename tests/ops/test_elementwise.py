# SPDX-License-Identifier: Apache-2.0
"""Every row of the elementwise table against NumPy.

The default run covers each row with one float and one integer dtype, and each dtype and layout with
a few rows; ``--slow`` runs the product.
"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.ops import host
from flambeau.ops.elementwise import ROWS, Row
from flambeau.ops.registry import OPS
from ops.cases import CATEGORY, DTYPES, LAYOUTS, array_of, assert_close, laid_out, numpy_dtype

_LETTERS = "bif"
_COVERING = ("mul", "eq", "_where", "_copy", "maximum")
# NumPy has its own functions for these; the table's host form must not be its own judge.


def _relu(a: Any) -> Any:
    return np.where(np.isnan(a), a, np.where(a > 0, a, 0)) if a.dtype.kind == "f" else a * (a > 0)


def _truncated_quotient(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    pairs = zip(
        a.reshape(-1).tolist(), np.broadcast_to(b, a.shape).reshape(-1).tolist(), strict=True
    )
    exact = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    wrapped = [q % (1 << 64) for q in exact]
    return np.array(wrapped, dtype=np.uint64).reshape(a.shape).astype(a.dtype)


def _sign(a: Any) -> Any:
    return a if a.dtype.kind == "b" else np.where(np.isnan(a), 0, np.sign(a))


_INDEPENDENT: dict[str, Any] = {
    "_div": np.true_divide,
    "floor_divide": np.floor_divide,
    "_div_floor": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "_div_trunc": _truncated_quotient,
    "relu": _relu,
    "sigmoid": lambda a: np.exp(-np.logaddexp(0, -a)),
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sign": _sign,
    "nextafter": lambda a, b: np.nextafter(a.astype(np.float32), b.astype(np.float32)),
}
_DIVISIONS = {"floor_divide", "_div_floor", "_div_trunc", "remainder", "fmod"}
# Units in the last place beyond which CUDA's own functions do not go.
_LOOSE = {
    "tan": 8, "sinh": 4, "cosh": 4, "_pow": 8, "exp2": 4, "exp": 2, "asinh": 8, "atanh": 4,
    "erfc": 20, "sinc": 30, "lgamma": 8, "digamma": 8, "erfinv": 4, "igamma": 4, "igammac": 4,
}  # fmt: skip


def _allowed(row: Row, name: str) -> bool:
    return _LETTERS[CATEGORY[name]] not in row.refuse


def _scalars(row: Row) -> tuple[float, ...]:
    return (2, 3, 4)[: row.scalars]


def _expected(row: Row, arrays: list[np.ndarray[Any, Any]], name: str) -> np.ndarray[Any, Any]:
    """The row in NumPy, in the dtype that arithmetic is done in."""
    if row.kind in {"float", "float_real"} and CATEGORY[name] < 2:
        name = "float32"
    compute = numpy_dtype(name)
    wide = np.dtype(np.float32) if name in {"float16", "bfloat16"} else compute
    if name == "float32":
        wide = np.dtype(np.float64)  # a better judge than float32 itself
    operands = [a.astype(compute).astype(wide) for a in arrays]
    form = _INDEPENDENT.get(row.name) or host._compiled(row)
    with np.errstate(all="ignore"):
        result = np.asarray(form(*operands, *_scalars(row)))
        if result.dtype == np.bool_:
            return result
        return result.astype(compute)


def _check(row: Row, names: list[str], layout: str, device: Any) -> None:
    operands = [laid_out(name, layout, device, seed) for seed, name in enumerate(names)]
    arrays = [array_of(operand) for operand in operands]
    if row.name in _DIVISIONS and CATEGORY[names[1]] < 2:
        operands[1] = operands[1].masked_fill(operands[1] == 0, 1)  # by zero is unspecified
        arrays[1] = array_of(operands[1])
    if row.name == "_pow" and CATEGORY[names[0]] == 1:
        operands[1] = operands[1].clamp(0, 6)
        arrays[1] = array_of(operands[1])
    found = OPS[row.name](*operands, scalars=_scalars(row))
    expected = _expected(row, arrays, names[-1])
    assert_close(found, np.asarray(expected), scale=_LOOSE.get(row.name, 1))


_FLOAT_ROWS = [row for row in ROWS.values() if "f" not in row.refuse]


@pytest.mark.parametrize("row", _FLOAT_ROWS, ids=lambda row: row.name)
def test_every_row_in_float32(row: Row, gpu: Any) -> None:
    _check(row, ["float32"] * row.arity, "contiguous", gpu)


_INTEGER_ROWS = [
    row for row in ROWS.values() if "i" not in row.refuse and not row.kind.startswith("float")
]


@pytest.mark.parametrize("row", _INTEGER_ROWS, ids=lambda row: row.name)
def test_every_row_in_int32(row: Row, gpu: Any) -> None:
    _check(row, ["int32"] * row.arity, "contiguous", gpu)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("row", _COVERING)
def test_every_dtype(row: str, name: str, gpu: Any) -> None:
    if _allowed(ROWS[row], name):
        _check(ROWS[row], [name] * ROWS[row].arity, "contiguous", gpu)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", ["_add", "abs", "_where"])
def test_every_layout(row: str, layout: str, gpu: Any) -> None:
    _check(ROWS[row], ["float32"] * ROWS[row].arity, layout, gpu)


@pytest.mark.slow
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_the_product(row: Row, name: str, gpu: Any) -> None:
    if not _allowed(row, name) or (row.kind == "float" and name == "bool"):
        return
    for layout in LAYOUTS:
        _check(row, [name] * row.arity, layout, gpu)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_mixed_layouts_broadcast(device: str) -> None:
    a = torch.arange(24, device=device).reshape(2, 3, 4)
    b = torch.arange(4, device=device)
    c = torch.arange(3, device=device).reshape(3, 1)
    expected = array_of(a) + array_of(b) * array_of(c)
    np.testing.assert_array_equal(array_of(a + b * c), expected)
    np.testing.assert_array_equal(array_of(a.permute(2, 0, 1) + a.permute(2, 0, 1)),
                                  2 * array_of(a).transpose(2, 0, 1))  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 3, 255, 256, 257, 1023, 1025, 4099])
def test_ragged_ends(count: int, gpu: Any) -> None:
    for of in (torch.float32, torch.int8):
        x = torch.arange(count, device=gpu).to(of)
        y = x + x
        assert y.tolist() == (x.cpu() + x.cpu()).tolist()


def test_many_dimensions_that_do_not_merge(gpu: Any) -> None:
    shape = (2,) * 14
    x = torch.arange(1 << 14, device=gpu).reshape(shape)
    y = x.permute(*reversed(range(14)))
    expected = np.arange(1 << 14).reshape(shape)
    np.testing.assert_array_equal(array_of(x + y), expected + expected.transpose())


@pytest.mark.parametrize("name", ["float32", "float16", "int32"])
def test_numbers_as_operands(name: str, gpu: Any) -> None:
    x = laid_out(name, "contiguous", gpu)
    host_x = x.cpu()
    for number in (2, 2.5):
        for op in ("_add", "_div", "lt"):
            left, right = OPS[op](x, number), OPS[op](host_x, number)
            assert left.dtype == right.dtype
            assert_close(left, array_of(right))
            assert_close(OPS[op](number, x), array_of(OPS[op](number, host_x)))


_PAIRS = [
    ("int32", "float32"), ("float16", "float32"), ("bool", "int8"), ("uint8", "int8"),
    ("float16", "bfloat16"), ("int64", "float16"), ("float32", "float64"),
]  # fmt: skip


@pytest.mark.parametrize("pair", _PAIRS, ids="-".join)
def test_mixed_dtypes(pair: tuple[str, str], gpu: Any) -> None:
    a, b = laid_out(pair[0], "contiguous", gpu, 1), laid_out(pair[1], "contiguous", gpu, 2)
    for op in ("_add", "mul", "lt"):
        found, expected = OPS[op](a, b), OPS[op](a.cpu(), b.cpu())
        assert found.dtype == expected.dtype
        assert_close(found, array_of(expected))


@pytest.mark.parametrize(("source", "target"), [
    (a, b) for a, b in itertools.product(DTYPES, DTYPES)
    if a != b and ("float32" in {a, b} or {a, b} <= {"int64", "float64", "bool", "float16"})
])  # fmt: skip
def test_conversions(source: str, target: str, gpu: Any) -> None:
    x = laid_out(source, "contiguous", gpu)
    if CATEGORY[source] == 2 and CATEGORY[target] == 1:
        x = torch.nan_to_num(x, 0, 0, 0).clamp(-100, 100)  # beyond is unspecified
        if target == "int8":
            assert x.amax().item() <= 127
    moved = x.to(getattr(torch, target))
    array = array_of(x)
    if CATEGORY[source] == 2 and target == "uint8":
        array = array.astype(np.int64)
    with np.errstate(all="ignore"):
        expected = array.astype(numpy_dtype(target))
    if target == "bfloat16":
        expected = expected.astype(np.float32)
    np.testing.assert_array_equal(array_of(moved), expected)


def test_rounding_to_16_bits_is_to_nearest_even(gpu: Any) -> None:
    bits = np.arange(0x3F7F0000, 0x3F7F0000 + 0x30000, 0x1000, dtype=np.uint32)
    x = bits.view(np.float32)
    found = torch.tensor(x, device=gpu)
    np.testing.assert_array_equal(
        array_of(found.bfloat16()), x.astype(ml_dtypes.bfloat16).astype(np.float32)
    )
    np.testing.assert_array_equal(array_of(found.half()), x.astype(np.float16))
    special = torch.tensor([np.nan, np.inf, -np.inf, 65504.0, 65520.0, 1e-8], device=gpu)
    assert special.half().isnan().tolist() == [True, False, False, False, False, False]
    assert special.half()[1:].tolist() == [np.inf, -np.inf, 65504.0, np.inf, 0.0]
    assert special.bfloat16().isnan().tolist()[0] is True


def test_integers_wrap(gpu: Any) -> None:
    for of, high, low in ((torch.int8, 127, -128), (torch.int32, 2**31 - 1, -(2**31)),
                          (torch.int64, 2**63 - 1, -(2**63))):  # fmt: skip
        x = torch.tensor([high, low], dtype=of, device=gpu)
        assert (x + torch.ones_like(x)).tolist() == [low, low + 1]
        assert (-x).tolist() == [-high, low]
        assert x.abs().tolist() == [high, low]
        assert (x // -1).tolist() == [-high, low]
        assert (x % -1).tolist() == [0, 0]


def test_floor_division_and_remainder_signs(gpu: Any) -> None:
    a = torch.tensor([7, 7, -7, -7], device=gpu)
    b = torch.tensor([2, -2, 2, -2], device=gpu)
    for x, y in ((a, b), (a.float(), b.float())):
        assert (x // y).tolist() == [3, -4, -4, 3]
        assert (x % y).tolist() == [1, -1, 1, -1]
        assert torch.fmod(x, y).tolist() == [1, 1, -1, -1]
        assert torch.div(x, y, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert (torch.tensor([1.0, -1.0, 0.0], device=gpu) // 0).tolist()[:2] == [np.inf, -np.inf]


def test_extremes_treat_nan_as_torch_does(gpu: Any) -> None:
    x = torch.tensor([1.0, np.nan, 3.0], device=gpu)
    y = torch.tensor([2.0, 2.0, np.nan], device=gpu)
    assert torch.isnan(torch.maximum(x, y)).tolist() == [False, True, True]
    assert torch.fmax(x, y).tolist() == [2.0, 2.0, 3.0]
    assert torch.fmin(x, y).tolist() == [1.0, 2.0, 3.0]
    assert torch.isnan(x.clamp(0, 2)).tolist() == [False, True, False]
    assert torch.isnan(x.relu()).tolist() == [False, True, False]


def test_in_place_forms_write_and_return(gpu: Any) -> None:
    x = torch.ones(3, device=gpu)
    view, version = x[1:], x._version
    assert x.add_(1) is x
    assert view.mul_(3) is view
    assert x.tolist() == [2.0, 6.0, 6.0]
    assert x._version > version
    x -= 1
    x **= 2
    assert x.tolist() == [1.0, 25.0, 25.0]
    y = torch.ones(2, dtype=torch.int64, device=gpu)
    with pytest.raises(
        RuntimeError, match="result type Float can't be cast to the desired output type Long"
    ):
        y.add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.add_(torch.ones(2, 3, device=gpu))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ones(1, device=gpu).expand(3).add_(1)


def test_out_is_resized_converted_and_returned(gpu: Any) -> None:
    x = torch.arange(3, device=gpu)
    out = torch.empty(0, device=gpu)
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1.0, 2.0, 3.0]
    with pytest.warns(UserWarning, match="was resized"):
        torch.mul(x, 2, out=torch.empty(2, dtype=torch.int64, device=gpu))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.sin(x, out=torch.empty(3, dtype=torch.int64, device=gpu))


def test_alpha_and_rounding_modes(gpu: Any) -> None:
    x = torch.tensor([1, 2], device=gpu)
    assert torch.add(x, x, alpha=3).tolist() == [4, 8]
    assert torch.sub(x, 1, alpha=2).tolist() == [-1, 0]
    assert x.float().add(1, alpha=0.5).tolist() == [1.5, 2.5]
    assert torch.rsub(x, 1).tolist() == [0, -1]
    with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
        torch.add(x, 1, alpha=1.5)
    with pytest.raises(RuntimeError, match="div expected rounding_mode to be one of None"):
        torch.div(x, 2, rounding_mode="up")  # type: ignore[arg-type]


_REFUSED = [
    (lambda x: x.bool() - x.bool(), RuntimeError, "Subtraction, the `-` operator"),
    (lambda x: -x.bool(), RuntimeError, "Negation, the `-` operator, on a bool tensor"),
    (lambda x: x.float() & 1, NotImplementedError, "not implemented for 'Float'"),
    (lambda x: x.bool().floor(), NotImplementedError, "not implemented for 'Bool'"),
    (lambda x: x.pow(-1), RuntimeError, "Integers to negative integer powers are not allowed"),
    (lambda x: x.clamp(), RuntimeError, "At least one of 'min' or 'max' must not be None"),
    (
        lambda x: x + torch.ones(3, device="cuda"),
        RuntimeError,
        r"size of tensor a \(2\) must match",
    ),
    (lambda x: x + torch.ones(2), RuntimeError, "Expected all tensors to be on the same device"),
    (lambda x: x + None, TypeError, "unsupported operand"),
    (lambda x: torch.sin(3.0), TypeError, "must be Tensor, not float"),
]


@pytest.mark.parametrize("case", _REFUSED, ids=lambda case: case[2][:30])
def test_what_is_refused(case: Any, gpu: Any) -> None:
    call, error, text = case
    with pytest.raises(error, match=text):
        call(torch.tensor([1, 2], device=gpu))


def test_host_scalars_mix_with_cuda_tensors(gpu: Any) -> None:
    x = torch.ones(2, device=gpu)
    assert (x + torch.tensor(2.0)).tolist() == [3.0, 3.0]
    assert (torch.tensor(2) * x).device.type == "cuda"
    assert torch.where(x > 0, x, torch.tensor(5.0)).tolist() == [1.0, 1.0]
    half = torch.ones(2, device=gpu, dtype=torch.float16)
    assert (half + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float16


def test_subclasses_come_back(gpu: Any) -> None:
    class Named(torch.Tensor):
        pass

    x = torch.ones(2, device=gpu).as_subclass(Named)
    assert type(x + 1) is Named
    assert type(torch.exp(x)) is Named


def test_functions_have_help() -> None:
    assert "Parameters" in (torch.exp.__doc__ or "")
    assert torch.exp.__name__ == "exp"
    assert torch.add.__module__ == "flambeau"


def test_unsigned_divisors_above_the_signed_range(gpu: Any) -> None:
    a = torch.tensor([200, 255, 3], dtype=torch.uint8, device=gpu)
    b = torch.tensor([255, 255, 255], dtype=torch.uint8, device=gpu)
    assert (a // b).tolist() == [0, 1, 0]
    assert (a % b).tolist() == [200, 0, 3]
    assert torch.fmod(a, b).tolist() == [200, 0, 3]
