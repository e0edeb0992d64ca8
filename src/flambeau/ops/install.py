# SPDX-License-Identifier: Apache-2.0
"""Put the operations where users find them: on tensors and in the namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.interop import array_interface
from flambeau.ops import (
    arithmetic,
    combining,
    creation,
    cumulative,
    dropout,
    gathering,
    indexing,
    later,
    linalg,
    matmul,
    moments,
    printing,
    random,
    random_factories,
    random_sampling,
    selection,
    sequences,
    shapes,
    softmax,
    sorting,
    statistics,
)
from flambeau.ops.registry import FUNCTIONS, METHODS, OPS
from flambeau.runtime import _indexing, _tensor, _views
from flambeau.runtime._recording import recorded
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["install", "namespace"]

# Tensor methods that are functions too.
_METHODS_AS_FUNCTIONS = """
    as_strided chunk clone detach diagonal fill_ flatten is_complex is_floating_point is_signed
    moveaxis movedim narrow numel permute ravel reshape select split split_with_sizes squeeze
    swapaxes swapdims t transpose unbind unflatten unsqueeze zero_
"""


def _pow(a: Any, b: Any, out: Tensor | None = None) -> Any:
    if out is not None:
        return METHODS["pow_"](a, b)
    if not all(isinstance(x, (Tensor, int, float, complex)) for x in (a, b)):
        return NotImplemented
    return arithmetic.pow(a, b)


def _matmul(a: Any, b: Any) -> Any:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return NotImplemented
    return matmul.matmul(a, b)


def _invert(tensor: Tensor) -> Tensor:
    if tensor.dtype.category > 1:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors, "
            f"this one has {tensor.dtype}"
        )
    return OPS["bitwise_not"](tensor)


def _contains(tensor: Tensor, value: Any) -> bool:
    if not isinstance(value, (Tensor, int, float, complex)):
        raise RuntimeError(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(value)}."
        )
    return bool(statistics.any(OPS["eq"](tensor, value)).item())


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": OPS["_add"],
    "sub": OPS["_sub"],
    "mul": OPS["mul"],
    "truediv": OPS["_div"],
    "floordiv": OPS["floor_divide"],
    "mod": OPS["remainder"],
    "pow": _pow,
    "matmul": _matmul,
    "and": OPS["bitwise_and"],
    "or": OPS["bitwise_or"],
    "xor": OPS["bitwise_xor"],
    "lshift": OPS["bitwise_left_shift"],
    "rshift": OPS["bitwise_right_shift"],
    **{name: OPS[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "neg": OPS["neg"],
    "pos": OPS["positive"],
    "abs": OPS["abs"],
    "invert": _invert,
    "copy": OPS["_copy"],
    "fill": OPS["_copy"],
    "getitem": indexing.getitem,
    "setitem": indexing.setitem,
    "repr": printing.tensor_repr,
    "format": printing.format_tensor,
    "contains": _contains,
}


# Compiled methods that gradients flow through, and those that write in place.
_RECORDED = """
    as_strided bfloat16 chunk clone contiguous cpu cuda diagonal double expand expand_as flatten
    float half moveaxis movedim narrow permute pin_memory ravel reshape reshape_as select split
    split_with_sizes squeeze swapaxes swapdims t to transpose type type_as unbind unflatten unfold
    unsqueeze view view_as
"""
_RECORDED_IN_PLACE = "copy_ fill_ zero_ _assign"


def install() -> None:
    """Give `Tensor` its methods and operators; done once by ``import flambeau``."""
    _tensor.install_operators(_OPERATORS)
    _tensor.install_methods(METHODS)
    later.install()
    answers = _views.short_answers()
    compiled: dict[str, Any] = {
        name: recorded(getattr(Tensor, name), short_answer=answers.get(name))
        for name in _RECORDED.split()
    }
    for name in _RECORDED_IN_PLACE.split():
        compiled[name] = recorded(getattr(Tensor, name), in_place=True)
    for name in ("T", "mT"):
        found = vars(Tensor).get(name)
        if isinstance(found, property) and found.fget is not None:
            compiled[name] = property(recorded(found.fget), doc=found.__doc__)
    _tensor.install_methods(compiled)
    _indexing.install_recorded(
        recorded(_indexing.getitem), recorded(_indexing.setitem, in_place=True)
    )


def namespace() -> dict[str, Any]:
    """All operations by their public names."""
    combining.register_in_place_functions()
    names: dict[str, Any] = {
        name: getattr(Tensor, name)
        for name in _METHODS_AS_FUNCTIONS.split()
        if hasattr(Tensor, name)
    }
    names.update(FUNCTIONS)
    return names


# Registered by being imported.
_LOADED = (
    array_interface,
    combining,
    cumulative,
    creation,
    dropout,
    gathering,
    linalg,
    moments,
    random,
    random_factories,
    random_sampling,
    selection,
    sequences,
    shapes,
    softmax,
    sorting,
)
