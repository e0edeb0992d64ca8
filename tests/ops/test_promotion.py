# SPDX-License-Identifier: Apache-2.0
"""Which dtype comes out: the table, the ranks of operands, casts, and the help around them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import flambeau as torch
from flambeau.ops.promotion import _ORDER

# A row and its answers in the order of the columns.
_COLUMNS = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
]
_WIDE = "float16 bfloat16 float32 float64 complex64"
TRUTHS = {
    "bool": f"bool uint8 int8 int16 int32 int64 {_WIDE}",
    "uint8": f"uint8 uint8 int16 int16 int32 int64 {_WIDE}",
    "int8": f"int8 int16 int8 int16 int32 int64 {_WIDE}",
    "int64": f"{'int64 ' * 6}{_WIDE}",
    "float16": f"{'float16 ' * 7}float32 float32 float64 complex64",
    "bfloat16": f"{'bfloat16 ' * 6}float32 bfloat16 float32 float64 complex64",
    "float32": f"{'float32 ' * 9}float64 complex64",
    "complex64": f"{'complex64 ' * 9}complex128 complex64",
}


@pytest.mark.parametrize("row", TRUTHS)
def test_table(row: str) -> None:
    found = [torch.promote_types(getattr(torch, row), getattr(torch, c)).name for c in _COLUMNS]
    assert found == TRUTHS[row].split()


def test_table_is_symmetric_and_associative_enough() -> None:
    dtypes = [getattr(torch, name) for name in _ORDER]
    for a, b in itertools.product(dtypes, dtypes):
        both = torch.promote_types(a, b)
        assert both == torch.promote_types(b, a)
        assert torch.promote_types(both, a) == both
        assert torch.promote_types(a, a) == a


def test_no_common_dtype() -> None:
    with pytest.raises(RuntimeError, match=r"Promotion for .* is not supported"):
        torch.promote_types(torch.float8_e4m3fn, torch.float32)


def _dimensioned(name: str) -> Any:
    return torch.ones(2, dtype=getattr(torch, name))


def _zero_dim(name: str) -> Any:
    return torch.ones((), dtype=getattr(torch, name))


RANKS = [
    (_dimensioned("int64"), 2.5, "float32"),
    (_dimensioned("bool"), 1, "int64"),
    (_dimensioned("bool"), True, "bool"),
    (_dimensioned("int8"), 1000, "int8"),
    (_dimensioned("float16"), 2.5, "float16"),
    (_dimensioned("float16"), _zero_dim("float64"), "float16"),
    (_dimensioned("int32"), _zero_dim("int64"), "int32"),
    (_dimensioned("int32"), _zero_dim("float64"), "float64"),
    (_zero_dim("float64"), _dimensioned("float32"), "float32"),
    (_zero_dim("int8"), 2.5, "float32"),
    (_zero_dim("int64"), _zero_dim("float16"), "float16"),
    (_dimensioned("float32"), 1j, "complex64"),
    (_dimensioned("float64"), 1j, "complex128"),
    (_dimensioned("int64"), 1j, "complex64"),
    (1, 2.5, "float32"),
]


@pytest.mark.parametrize("case", RANKS, ids=lambda case: f"{case[0]}-{case[1]}".replace("\n", ""))
def test_ranks(case: Any) -> None:
    left, right, name = case
    assert torch.result_type(left, right).name == name
    assert torch.result_type(right, left).name == name
    if name[0] != "c" and isinstance(left, torch.Tensor):
        assert (left + right).dtype.name == name


def test_kinds_of_results() -> None:
    x, y = torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int64)
    assert (x / x).dtype == torch.float32
    assert (x // x).dtype == torch.int32
    assert (x < y).dtype == torch.bool
    assert torch.sin(x).dtype == torch.float32
    assert torch.where(x > 0, x, y).dtype == torch.int64
    assert torch.logical_and(x, y).dtype == torch.bool
    assert (x.bool() ** 2).dtype == torch.int64
    assert x.half().exp().dtype == torch.float16


def test_casts() -> None:
    assert torch.can_cast(torch.int64, torch.float16)
    assert torch.can_cast(torch.int64, torch.uint8)
    assert torch.can_cast(torch.float64, torch.complex64)
    assert not torch.can_cast(torch.float32, torch.int64)
    assert not torch.can_cast(torch.int64, torch.bool)
    assert not torch.can_cast(torch.complex64, torch.float64)


def test_namespace() -> None:
    missing = [name for name in torch.__all__ if not hasattr(torch, name)]
    assert missing == []
    assert torch.float is torch.float32
    assert torch.is_tensor(torch.ones(1))
    assert not torch.is_tensor(1)
    assert torch.inf == float("inf")
    with pytest.raises(AttributeError, match="module 'flambeau' has no attribute 'nonsense'"):
        torch.nonsense  # noqa: B018
    assert torch.cuda.__name__ == "flambeau.cuda"


def test_gradient_modes() -> None:
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            assert torch.is_grad_enabled()
        with torch.inference_mode():
            assert torch.is_inference_mode_enabled()
        assert not torch.is_inference_mode_enabled()

    @torch.no_grad()
    def called() -> bool:
        return torch.is_grad_enabled()

    @torch.no_grad
    def bare() -> bool:
        return torch.is_grad_enabled()

    @torch.no_grad()
    def generated() -> Any:
        yield torch.is_grad_enabled()

    assert (called(), bare()) == (False, False)
    for inside in generated():
        assert inside is False
        assert torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
