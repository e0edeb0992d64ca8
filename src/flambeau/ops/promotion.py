# SPDX-License-Identifier: Apache-2.0
"""Type promotion: which dtype an operation computes in and returns.

Categories order bool < integer < float < complex. Within the highest category a tensor with
dimensions decides before a zero-dimensional one, and that before a Python number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.runtime import _dtype, _tensor

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = ["can_cast", "get_default_dtype", "promote_types", "result_type", "set_default_dtype"]

_ORDER = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128",
)  # fmt: skip
# Row and column in that order; each entry is an index into it.
_TABLE = """
  0  1  2  3  4  5  6  7  8  9 10 11 12
  1  1  3  3  4  5  6  7  8  9 10 11 12
  2  3  2  3  4  5  6  7  8  9 10 11 12
  3  3  3  3  4  5  6  7  8  9 10 11 12
  4  4  4  4  4  5  6  7  8  9 10 11 12
  5  5  5  5  5  5  6  7  8  9 10 11 12
  6  6  6  6  6  6  6  8  8  9 10 11 12
  7  7  7  7  7  7  8  7  8  9 11 11 12
  8  8  8  8  8  8  8  8  8  9 11 11 12
  9  9  9  9  9  9  9  9  9  9 12 12 12
 10 10 10 10 10 10 10 11 11 12 10 11 12
 11 11 11 11 11 11 11 11 11 12 11 11 12
 12 12 12 12 12 12 12 12 12 12 12 12 12
"""
_CODES = [_dtype.dtypes[name].code for name in _ORDER]
_PROMOTED: dict[tuple[int, int], int] = {
    (_CODES[row], _CODES[column]): _CODES[int(entry)]
    for row, line in enumerate(_TABLE.strip().splitlines())
    for column, entry in enumerate(line.split())
}
# The wide unsigned integers meet floats only; with other integers there is no answer.
_PROMOTED.update(
    {
        pair: _dtype.dtypes[real].code
        for unsigned in ("uint16", "uint32", "uint64")
        for real in ("float16", "bfloat16", "float32", "float64")
        for own, other in ((_dtype.dtypes[unsigned].code, _dtype.dtypes[real].code),)
        for pair in ((own, other), (other, own))
    }
)
_COMPLEX_OF = {
    _dtype.dtypes[real].code: _dtype.dtypes[both].code
    for real, both in (
        ("float16", "complex32"),
        ("bfloat16", "complex64"),
        ("float32", "complex64"),
        ("float64", "complex128"),
    )
}

BOOL = _dtype.dtypes["bool"].code
INT64 = _dtype.dtypes["int64"].code
FLOAT16 = _dtype.dtypes["float16"].code
BFLOAT16 = _dtype.dtypes["bfloat16"].code
FLOAT32 = _dtype.dtypes["float32"].code
FLOAT64 = _dtype.dtypes["float64"].code

DIMENSIONED, ZERO_DIM, NUMBER = 0, 1, 2  # the rank classes of an operand


def category_of(code: int) -> int:
    """0 for bool, 1 integer, 2 float, 3 complex."""
    return _dtype.dtype_from_code(code).category


def promote_codes(a: int, b: int) -> int:
    """The smallest dtype that both convert to, by scalar type numbers."""
    if a == b:
        return a
    found = _PROMOTED.get((a, b))
    if found is None:
        names = sorted(_dtype.dtype_from_code(code).name for code in (a, b))
        raise RuntimeError(
            f"Promotion for {names[0]} and {names[1]} types is not supported; convert one operand "
            "with .to(dtype) first"
        )
    return found


def default_complex() -> int:
    """The complex dtype that goes with the default one."""
    return _COMPLEX_OF[get_default_dtype().code]


def _number_code(code: int) -> int:
    category = category_of(code)
    if category < 2:
        return INT64 if category else code
    return get_default_dtype().code if category == 2 else default_complex()


def _combine(higher: int | None, lower: int | None) -> int | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    high, low = category_of(higher), category_of(lower)
    if high == 3:
        return higher
    if high == 2:
        return (
            promote_codes(higher, lower)
            if low == 3 and higher not in _COMPLEX_OF
            else (_COMPLEX_OF[higher] if low == 3 else higher)
        )
    if low >= 2:
        return promote_codes(BOOL, lower)
    return promote_codes(higher, lower) if high == 0 else higher


def promote_kinds(kinds: tuple[tuple[int, int], ...]) -> int:
    """The common dtype of operands, each given as (scalar type, rank class)."""
    by_rank: list[int | None] = [None, None, None]
    for code, rank in kinds:
        own = _number_code(code) if rank == NUMBER else code
        known = by_rank[rank]
        by_rank[rank] = own if known is None else promote_codes(known, own)
    found = _combine(by_rank[0], _combine(by_rank[1], by_rank[2]))
    if found is None:
        raise TypeError("at least one operand is needed to find a common dtype")
    return found


def kind_of(value: Tensor | complex) -> tuple[int, int]:
    """An operand as (scalar type, rank class)."""
    if isinstance(value, bool):
        return BOOL, NUMBER
    if isinstance(value, int):
        return INT64, NUMBER
    if isinstance(value, float):
        return FLOAT64, NUMBER
    if isinstance(value, complex):
        return _dtype.dtypes["complex128"].code, NUMBER
    return value.dtype.code, DIMENSIONED if value.ndim else ZERO_DIM


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that both convert to without changing category downwards.

    Parameters
    ----------
    type1, type2
        Any two dtypes.

    Returns
    -------
    dtype
        For example float16 for int64 and float16, int16 for uint8 and int8.

    Raises
    ------
    RuntimeError
        There is none, as for float8 with anything else.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.promote_types(torch.uint8, torch.int8)
    torch.int16
    """
    return _dtype.dtype_from_code(promote_codes(type1.code, type2.code))


def result_type(tensor1: Tensor | complex, tensor2: Tensor | complex) -> dtype:
    """The dtype that an arithmetic operation on these two gives.

    Parameters
    ----------
    tensor1, tensor2
        Tensors or Python numbers.

    Returns
    -------
    dtype
        The common dtype by category and rank.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.result_type(torch.tensor([1, 2]), 2.5)
    torch.float32
    """
    return _dtype.dtype_from_code(promote_kinds((kind_of(tensor1), kind_of(tensor2))))


def can_cast_codes(from_: int, to: int) -> bool:
    """Whether a result of one dtype may be stored in another: the category must not drop."""
    low, high = category_of(from_), category_of(to)
    return not ((low == 3 and high < 3) or (low == 2 and high < 2) or (low > 0 and high == 0))


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether the promotion rules allow a conversion.

    Parameters
    ----------
    from_
        The dtype at hand.
    to
        The dtype wanted.

    Returns
    -------
    bool
        False when the category would drop: complex to real, float to integer, anything to bool.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.can_cast(torch.float32, torch.int64)
    False
    """
    return can_cast_codes(from_.code, to.code)


def get_default_dtype() -> dtype:
    """The floating-point dtype of tensors made from Python floats.

    Returns
    -------
    dtype
        float32 unless changed with `set_default_dtype`.
    """
    return _tensor.get_default_dtype()


def set_default_dtype(d: dtype, /) -> None:
    """Set the floating-point dtype of tensors made from Python floats.

    Parameters
    ----------
    d
        float16, bfloat16, float32 or float64.

    Raises
    ------
    TypeError
        It is not a floating-point dtype.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.set_default_dtype(torch.float64)
    >>> torch.tensor([1.5]).dtype
    torch.float64
    >>> torch.set_default_dtype(torch.float32)
    """
    if not isinstance(d, _dtype.dtype) or d.code not in _COMPLEX_OF:
        raise TypeError(
            f"only floating-point types are supported as the default type, got {d!r}; choose "
            "float16, bfloat16, float32 or float64"
        )
    _tensor.set_default_dtype(d)
