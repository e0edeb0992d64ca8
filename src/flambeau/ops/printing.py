# SPDX-License-Identifier: Apache-2.0
"""How tensors print."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.ops.promotion import get_default_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.runtime._tensor import Tensor

__all__ = ["format_tensor", "set_printoptions", "tensor_repr"]


class _Options(NamedTuple):
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
}
_options = _Options()
_GAP = object()  # stands for what is left out


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print.

    Parameters
    ----------
    precision
        Digits after the point, 4 at first.
    threshold
        Tensors with more elements are abbreviated; 1000 at first.
    edgeitems
        How many elements an abbreviation shows at each end of a dimension; 3 at first.
    linewidth
        Characters per line, 80 at first.
    profile
        Start from ``"default"``, ``"short"`` or ``"full"``.
    sci_mode
        Whether to use exponents; None decides by the values.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.set_printoptions(precision=2)
    >>> torch.tensor([1.23456])
    tensor([1.23])
    >>> torch.set_printoptions(profile="default")
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"profile is one of {', '.join(_PROFILES)}, got {profile!r}")
    made = _PROFILES[profile] if profile is not None else _options
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _options = made._replace(**changes, sci_mode=sci_mode)


class _Numbers:
    """One width and notation for all numbers that are shown."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.floating = floating
        self.whole = True
        self.scientific = False
        self.width = 1
        if floating:
            self._fit_floats([abs(v) for v in values if v != 0 and math.isfinite(v)], values)
        else:
            self.width = max((len(str(v)) for v in values), default=1)

    def _fit_floats(self, sizes: list[float], values: list[float]) -> None:
        if not sizes:
            return
        low, high = min(sizes), max(sizes)
        self.whole = all(size == math.ceil(size) for size in sizes)
        self.scientific = high / low > 1000 or high > 1e8 or (not self.whole and low < 1e-4)
        if _options.sci_mode is not None:
            self.scientific = _options.sci_mode
        for value in values:
            if value == 0 or not math.isfinite(value):
                continue
            self.width = max(self.width, len(self._text(value)))

    def _text(self, value: Any) -> str:
        if not self.floating:
            return str(value)
        if self.scientific:
            return f"{value:.{_options.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{_options.precision}f}"

    def __call__(self, value: Any) -> str:
        return self._text(value).rjust(self.width)


class _ComplexNumbers:
    """Real and imaginary parts, each with its own width."""

    def __init__(self, values: list[complex]) -> None:
        self.real = _Numbers([v.real for v in values], floating=True)
        self.imag = _Numbers([v.imag for v in values], floating=True)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def _flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    elif nested is not _GAP:
        yield nested


def _shown(tensor: Tensor) -> Any:
    """Nested lists of what is printed of a large tensor; only that leaves the device."""
    edge = _options.edgeitems
    if tensor.ndim == 0:
        return tensor.item()
    n = tensor.shape[0]
    if tensor.ndim == 1:
        if n <= 2 * edge:
            return tensor.tolist()
        return [*tensor[:edge].tolist(), _GAP, *(tensor[n - edge :].tolist() if edge else [])]
    if n <= 2 * edge:
        return [_shown(part) for part in tensor.unbind(0)]
    first = [_shown(tensor[i]) for i in range(edge)]
    return [*first, _GAP, *(_shown(tensor[i]) for i in range(n - edge, n))]


def _text_of(nested: Any, ndim: int, indent: int, numbers: Any) -> str:
    if ndim == 0:
        return str(numbers(nested))
    if ndim == 1:
        per_line = max(1, (_options.linewidth - indent) // (numbers.width + 2))
        items = [" ..." if item is _GAP else numbers(item) for item in nested]
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [
        "..." if part is _GAP else _text_of(part, ndim - 1, indent + 1, numbers) for part in nested
    ]
    return "[" + ("," + "\n" * (ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _values_text(tensor: Tensor, indent: int) -> str:
    nested = _shown(tensor) if tensor.numel() > _options.threshold else tensor.tolist()
    values = list(_flat(nested))
    if tensor.is_complex():
        numbers: Any = _ComplexNumbers(values)
    else:
        numbers = _Numbers(values, tensor.is_floating_point())
    return _text_of(nested, tensor.ndim, indent, numbers)


def _suffixes(tensor: Tensor) -> list[str]:
    found = []
    if tensor.device.type != "cpu":
        found.append(f"device='{tensor.device}'")
    default = get_default_dtype()
    plain = {default.name}
    if tensor.numel() == 0:
        if tensor.ndim != 1:
            found.append(f"size={tuple(tensor.shape)}")
    else:
        plain |= {"int64", "bool", default.to_complex().name}
    if tensor.dtype.name not in plain:
        found.append(f"dtype={tensor.dtype!r}")
    if tensor.grad_fn is not None:
        found.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        found.append("requires_grad=True")
    return found


def tensor_repr(tensor: Tensor) -> str:
    """The text of a tensor: ``tensor([1., 2.], device='cuda:0')``. Waits for the device."""
    from flambeau.runtime._tensor import Tensor

    # A subclass is named; formatting must not run its overrides.
    name = "tensor" if type(tensor) is Tensor else type(tensor).__name__
    plain = tensor.detach().as_subclass(Tensor)
    head = f"{name}("
    body = "[]" if plain.numel() == 0 else _values_text(plain, len(head))
    text = head + body
    line = len(text) - text.rfind("\n") + 1
    for suffix in _suffixes(tensor):
        if line + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * len(head) + suffix
            line = len(head) + len(suffix)
        else:
            text += ", " + suffix
            line += len(suffix) + 2
    return text + ")"


def format_tensor(tensor: Tensor, spec: str) -> str:
    """``format(tensor, spec)``: a number's format for a tensor without dimensions."""
    if tensor.ndim == 0:
        return format(tensor.item(), spec)
    return format(str(tensor), spec)
