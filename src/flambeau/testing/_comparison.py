# SPDX-License-Identifier: Apache-2.0
"""Whether two values agree up to rounding, and where they do not."""

from __future__ import annotations

from cmath import isnan
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = ["assert_close"]

_TOLERANCES = {  # relative, absolute; every other dtype has to agree exactly
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
_NUMBERS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_MOST_SHOWN = 5


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Assert that two values agree: ``|actual - expected| <= atol + rtol * |expected|``.

    Tensors, NumPy arrays and numbers are compared, and sequences and mappings of these. Infinities
    agree with themselves. A CUDA tensor is waited for.

    Parameters
    ----------
    actual, expected
        What a test got and what it wanted, of the same type.
    allow_subclasses
        Whether one type may be a subclass of the other.
    rtol, atol
        Relative and absolute tolerance; both or neither. By default they go by the dtype:
        (1e-3, 1e-5) for float16, (1.6e-2, 1e-5) for bfloat16, (1.3e-6, 1e-5) for float32, and
        (1e-7, 1e-7) for float64 and Python floats, a complex dtype like its parts; integers and
        bools have to be equal. Of two dtypes the wider tolerances count.
    equal_nan
        Whether NaN agrees with NaN.
    check_device, check_dtype, check_layout, check_stride
        Whether these have to be the same too.
    msg
        A message in place of the made one, or what turns that into another.

    Raises
    ------
    AssertionError
        They do not agree; the message says how many elements, by how much, and where.
    ValueError
        One tolerance was given without the other, or one is negative.
    TypeError
        The two are of types that are not compared, or not compared with each other.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    >>> torch.testing.assert_close(x / 3 * 3, x)
    >>> torch.testing.assert_close(x, x + torch.tensor([0.0, 0.5, 0.0], device="cuda"))
    Traceback (most recent call last):
        ...
    AssertionError: Tensor-likes are not close!
    ...
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    if (rtol is None) != (atol is None):
        given, lacking = ("rtol", "atol") if atol is None else ("atol", "rtol")
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got {given} without "
            f"{lacking}."
        )
    if rtol is not None and atol is not None and not (rtol >= 0 and atol >= 0):
        raise ValueError(f"tolerances are at least 0, got rtol={rtol} and atol={atol}")
    check = _Check(
        tolerances=None if rtol is None or atol is None else (rtol, atol),
        allow_subclasses=allow_subclasses,
        equal_nan=equal_nan,
        device=check_device,
        dtype=check_dtype,
        layout=check_layout,
        stride=check_stride,
    )
    try:
        check.compare(actual, expected, ())
    except _DifferenceError as difference:
        message = str(difference)
    else:
        return
    if msg is not None:
        message = msg(message) if callable(msg) else msg
    raise AssertionError(message)


class _DifferenceError(Exception):
    """Two values differ."""


def _fail(message: str, place: tuple[Any, ...]) -> NoReturn:
    if place:
        message += "\n\nThe failure occurred for item " + "".join(f"[{key!r}]" for key in place)
    raise _DifferenceError(message)


@dataclass(frozen=True, slots=True)
class _Check:
    """How two values are compared."""

    tolerances: tuple[float, float] | None
    allow_subclasses: bool
    equal_nan: bool
    device: bool
    dtype: bool
    layout: bool
    stride: bool

    def compare(self, actual: Any, expected: Any, place: tuple[Any, ...]) -> None:
        """Raise `_DifferenceError` unless they agree; `place` is where they are in containers."""
        if actual is None or expected is None:
            if actual is not expected:
                _fail(f"None mismatch: {actual!r} is not {expected!r}", place)
        elif _both(Mapping, actual, expected):
            self._compare_mappings(actual, expected, place)
        elif _both(Sequence, actual, expected) and not _either((str, bytes), actual, expected):
            if len(actual) != len(expected):
                lengths = f"{len(actual)} != {len(expected)}"
                _fail(f"The length of the sequences mismatch: {lengths}", place)
            for position, pair in enumerate(zip(actual, expected, strict=True)):
                self.compare(*pair, (*place, position))
        elif _is_number(actual) and _is_number(expected):
            self._compare_numbers(actual, expected, place)
        elif self._related(actual, expected) and _is_array(actual) and _is_array(expected):
            self._compare_tensors(_as_tensor(actual), _as_tensor(expected), place)
        else:
            where = f" at item {''.join(f'[{key!r}]' for key in place)}" if place else ""
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and "
                f"{type(expected)}{where}; compared are tensors, NumPy arrays, numbers, None, and "
                "sequences and mappings of these, each with its own kind"
            )

    def _related(self, actual: Any, expected: Any) -> bool:
        if type(actual) is type(expected):
            return True
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        return self.allow_subclasses and related

    def _compare_mappings(
        self, actual: Mapping[Any, Any], expected: Mapping[Any, Any], place: tuple[Any, ...]
    ) -> None:
        missing = [key for key in expected if key not in actual]
        additional = [key for key in actual if key not in expected]
        if missing or additional:
            _fail(
                "The keys of the mappings do not match:"
                + (f"\nMissing keys in the actual mapping: {missing}" if missing else "")
                + (f"\nAdditional keys in the actual mapping: {additional}" if additional else ""),
                place,
            )
        for key, value in expected.items():
            self.compare(actual[key], value, (*place, key))

    def _compare_numbers(self, actual: Any, expected: Any, place: tuple[Any, ...]) -> None:
        kinds = _number_kind(actual), _number_kind(expected)
        if kinds == (bool, bool):
            if actual is not expected:
                _fail(f"Booleans mismatch: {actual} is not {expected}", place)
            return
        if self.dtype and kinds[0] is not kinds[1]:
            _fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.", place)
        rtol, atol = self._tolerances(*(_NUMBERS[kind] for kind in kinds))
        if actual == expected or (self.equal_nan and isnan(actual) and isnan(expected)):
            return
        apart = abs(actual - expected)
        finite = abs(expected) != float("inf")
        if not (finite and apart <= atol + rtol * abs(expected)):
            _fail(_scalar_message(actual, expected, rtol, atol), place)

    def _tolerances(self, *dtypes: str) -> tuple[float, float]:
        if self.tolerances is not None:
            return self.tolerances
        found = [_TOLERANCES.get(name, (0.0, 0.0)) for name in dtypes]
        return max(rtol for rtol, _ in found), max(atol for _, atol in found)

    def _compare_tensors(self, actual: Tensor, expected: Tensor, place: tuple[Any, ...]) -> None:
        self._compare_attributes(actual, expected, place)
        rtol, atol = self._tolerances(actual.dtype.name, expected.dtype.name)
        import numpy as np

        got, wanted = _values(actual), _values(expected)
        if got.dtype != wanted.dtype:
            common = np.promote_types(got.dtype, wanted.dtype)
            got, wanted = got.astype(common), wanted.astype(common)
        with np.errstate(all="ignore"):
            agree = got == wanted
            if rtol or atol:
                apart, size = _distance(got, wanted), np.abs(_as_float(wanted))
                agree |= np.isfinite(size) & (apart <= atol + rtol * size)
            if self.equal_nan and got.dtype.kind in "fc":
                agree |= np.isnan(got) & np.isnan(wanted)
            if not agree.all():
                _fail(_tensor_message(got, wanted, ~agree, rtol, atol), place)

    def _compare_attributes(self, actual: Tensor, expected: Tensor, place: tuple[Any, ...]) -> None:
        attributes: list[tuple[bool, str, Any, Any]] = [
            (True, "shape", actual.shape, expected.shape),
            (self.layout, "layout", actual.layout, expected.layout),
            (self.device, "device", actual.device, expected.device),
            (self.dtype, "dtype", actual.dtype, expected.dtype),
            (self.stride, "stride()", actual.stride(), expected.stride()),
        ]
        for checked, name, got, wanted in attributes:
            if checked and got != wanted:
                what = f"The values for attribute '{name}' do not match: {got} != {wanted}."
                allow = {"device": "check_device", "dtype": "check_dtype"}.get(name)
                _fail(what + (f" ({allow}=False allows it.)" if allow else ""), place)


def _both(kind: type, actual: Any, expected: Any) -> bool:
    return isinstance(actual, kind) and isinstance(expected, kind)


def _either(kinds: tuple[type, ...], actual: Any, expected: Any) -> bool:
    return isinstance(actual, kinds) or isinstance(expected, kinds)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex)


def _number_kind(value: Any) -> type:
    return next(kind for kind in _NUMBERS if isinstance(value, kind))


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__array_interface__")


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    import flambeau

    made: Tensor = flambeau.as_tensor(value)
    return made


def _values(tensor: Tensor) -> Any:
    """The elements as a NumPy array on the host: exact, in a type that NumPy computes in."""
    import flambeau

    of: dtype = tensor.dtype
    tensor = tensor.detach().cpu()
    if of.is_complex:
        return tensor.to(flambeau.complex128).numpy()
    if of.is_floating_point:
        return tensor.to(flambeau.float64).numpy()
    return tensor.numpy()


def _as_float(values: Any) -> Any:
    return values if values.dtype.kind in "fc" else values.astype("float64")


def _distance(got: Any, wanted: Any) -> Any:
    """``|got - wanted|``; exact for integers as long as a double can hold it."""
    import numpy as np

    if got.dtype.kind in "fc":
        return np.abs(got - wanted)
    if got.dtype.kind == "b":
        return (got ^ wanted).astype("float64")
    larger, smaller = np.maximum(got, wanted), np.minimum(got, wanted)
    return (larger.astype("uint64") - smaller.astype("uint64")).astype("float64")


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance:g} allowed)"


def _kind_of_failure(rtol: float, atol: float) -> str:
    return "not close!" if rtol or atol else "not equal!"


def _scalar_message(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    apart, exact = abs(actual - expected), not (rtol or atol)
    relative = apart / abs(expected) if expected else float("inf")
    return (
        f"Scalars are {_kind_of_failure(rtol, atol)}\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {apart}{_allowed(atol, exact)}\n"
        f"Relative difference: {relative}{_allowed(rtol, exact)}"
    )


def _tensor_message(got: Any, wanted: Any, differ: Any, rtol: float, atol: float) -> str:
    import numpy as np

    if got.ndim == 0:
        return _scalar_message(got.item(), wanted.item(), rtol, atol)
    apart, exact = _distance(got, wanted), not (rtol or atol)
    relative = apart / np.abs(_as_float(wanted))
    lines = [
        f"Tensor-likes are {_kind_of_failure(rtol, atol)}",
        "",
        f"Mismatched elements: {differ.sum()} / {differ.size} ({differ.mean():.1%})",
    ]
    for name, figures, tolerance in (
        ("absolute", apart, atol),
        ("relative", relative, rtol),
    ):
        flat = np.where(differ, np.nan_to_num(figures, nan=np.inf), -1.0)
        place = np.unravel_index(int(flat.argmax()), flat.shape)
        at = tuple(int(index) for index in place)
        value = figures[place] if got.dtype.kind in "fc" or name == "relative" else int(flat[place])
        lines.append(
            f"Greatest {name} difference: {value} at index {at}{_allowed(tolerance, exact)}"
        )
    lines.append("")
    places = np.argwhere(differ)
    for place in places[:_MOST_SHOWN].tolist():
        at = tuple(place)
        lines.append(f"At index {at}: expected {wanted[at]}, got {got[at]}")
    if len(places) > _MOST_SHOWN:
        lines.append(f"and {len(places) - _MOST_SHOWN} more")
    return "\n".join(lines)
