# SPDX-License-Identifier: Apache-2.0
"""Operations on lists of tensors, ``_foreach_*``: one launch for many tensors where they allow it.

A list is done by kernels of its own if its tensors are on one CUDA device, of one floating-point
dtype and without gaps, and no gradient is to be recorded. Any other list is done tensor by tensor.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from flambeau.ops.elementwise import ROWS
from flambeau.ops.foreach_launch import NORMS, Program, launch, launch_norms, same_kind
from flambeau.runtime import _factory
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FOREACH"]

FOREACH: dict[str, Callable[..., Any]] = {}
"""Every operation by its name in the namespace."""

_UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
# The expression of the operands ``a``, ``b``, ``c``, and of the number ``s``.
_BINARY = {
    "add": "plus(a, times(b, s))",
    "sub": "minus(a, times(b, s))",
    "mul": "a * b",
    "div": "a / b",
    "pow": "power(a, b)",
    "maximum": "maximum_of(a, b)",
    "minimum": "minimum_of(a, b)",
    "clamp_min": "maximum_of(a, b)",
    "clamp_max": "minimum_of(a, b)",
}
_TERNARY = {"addcmul": "a + s * (b * c)", "addcdiv": "a + s * (b / c)"}


# -- how operands come ----------------------------------------------------------------------------


def _kind(operand: Any) -> str:
    if isinstance(operand, Tensor):
        return "device"
    if isinstance(operand, (list, tuple)):
        return "list" if operand and isinstance(operand[0], Tensor) else "numbers"
    return "number"


def _check_lists(name: str, self: Sequence[Tensor], operands: Sequence[Any]) -> None:
    if not self:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for operand in operands:
        if isinstance(operand, (list, tuple)) and len(operand) != len(self):
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, got "
                f"{len(self)} and {len(operand)} for _foreach_{name}"
            )


@functools.cache
def _program(expression: str, kinds: tuple[str, ...], names: str, in_place: bool) -> Program:
    """The program of an expression whose operands after ``a`` come in these ways."""
    first = 0 if in_place else 1  # operand 0 is written, which may be a itself
    lists = 1 + kinds.count("list")
    body, setup, parameters, signature = [f"const A a = x[{first}];"], [], [], ""
    at, number = first + 1, 0
    for name, kind in zip(names, kinds, strict=True):
        if kind == "list":
            body.append(f"const A {name} = x[{at}];")
            at += 1
        elif kind == "numbers":
            setup.append(f"const A {name} = (A)table.numbers[{number}][t];")
            number += 1
        elif kind == "number":
            parameters.append(f"double n{name}")
            setup.append(f"const A {name} = (A)n{name};")
            signature += "d"
        else:
            parameters.append(f"const T *p{name}")
            setup.append(f"const A {name} = convert<A>(*p{name});")
            signature += "R"
    return Program(
        " ".join([*body, f"x[0] = {expression};"]),
        operands=first + lists,
        reads=((1 << lists) - 1) << first,
        writes=1,
        setup=" ".join(setup),
        numbers=number,
        parameters=", ".join(parameters),
        signature=signature,
    )


def _fused(
    expression: str, self: Sequence[Tensor], names: str, operands: Sequence[Any], in_place: bool
) -> list[Tensor] | None:
    """What the kernel gives, or None where the tensors are not for it."""
    kinds = tuple(_kind(operand) for operand in operands)
    lists = [self, *(o for o, kind in zip(operands, kinds, strict=True) if kind == "list")]
    if not same_kind(*lists):
        return None
    shared, numbers = [], []
    for operand, kind in zip(operands, kinds, strict=True):
        if kind == "device":
            if operand.numel() != 1 or operand.dtype != self[0].dtype:
                return None
            shared.append(operand if operand.is_cuda else operand.to(self[0].device))
        elif kind == "number":
            if isinstance(operand, complex):
                return None
            shared.append(float(operand))
        elif kind == "numbers":
            numbers.append([float(value) for value in operand])
    results = list(self) if in_place else [_factory.empty_like(tensor) for tensor in self]
    program = _program(expression, kinds, names, in_place)
    launch(program, lists if in_place else [results, *lists], *shared, numbers=numbers)
    return results


def _one_by_one(
    call: Callable[..., Tensor], self: Sequence[Tensor], operands: Sequence[Any], in_place: bool
) -> list[Tensor]:
    results = []
    for k, tensor in enumerate(self):
        given = [o[k] if isinstance(o, (list, tuple)) else o for o in operands]
        result = call(tensor, *given)
        results.append(tensor.copy_(result) if in_place else result)
    return results


def _single(name: str) -> Callable[..., Tensor]:
    """The operation on one tensor."""
    found: Callable[..., Tensor] = getattr(importlib.import_module("flambeau"), name)
    return found


# -- the families ---------------------------------------------------------------------------------


def _register(name: str, make: Callable[[bool], Callable[..., Any]]) -> None:
    for in_place in (False, True):
        made = make(in_place)
        made.__name__ = made.__qualname__ = f"_foreach_{name}{'_' if in_place else ''}"
        made.__module__ = "flambeau"
        FOREACH[made.__name__] = made


def _unary(name: str) -> Callable[[bool], Callable[..., Any]]:
    def make(in_place: bool) -> Callable[..., Any]:
        def call(self: Sequence[Tensor]) -> Any:
            """Do the operation of this name on each tensor of a list."""
            _check_lists(name, self, ())
            results = _fused(ROWS[name].cuda.replace("T(", "A("), self, "", (), in_place)
            if results is None:
                results = _one_by_one(_single(name), self, (), in_place)
            return None if in_place else tuple(results)

        return call

    return make


def _scaled(name: str) -> Callable[..., Tensor]:
    single = _single(name)
    return lambda a, b, alpha: single(a, b, alpha=alpha)


def _binary(name: str) -> Callable[[bool], Callable[..., Any]]:
    scaled = name in {"add", "sub"}
    names = "bs" if scaled else "b"

    def make(in_place: bool) -> Callable[..., Any]:
        def call(self: Sequence[Tensor], other: Any, *, alpha: float = 1) -> Any:
            """Do the operation of this name on each tensor of a list and another operand.

            `other` is a number for all, a tensor without dimensions, a list of numbers or a list
            of tensors.
            """
            operands = (other, alpha) if scaled else (other,)
            _check_lists(name, self, operands)
            results = _fused(_BINARY[name], self, names, operands, in_place)
            if results is None:
                single = _scaled(name) if scaled else _single(name)
                results = _one_by_one(single, self, operands, in_place)
            return None if in_place else tuple(results)

        return call

    return make


def _ternary(name: str) -> Callable[[bool], Callable[..., Any]]:
    def make(in_place: bool) -> Callable[..., Any]:
        def call(
            self: Sequence[Tensor],
            tensor1: Sequence[Tensor],
            tensor2: Sequence[Tensor],
            value: Any = 1,
        ) -> Any:
            """Do the operation of this name on each tensor of three lists.

            `value` is a number for all or a list of numbers.
            """
            if isinstance(value, Tensor):
                value = value.tolist() if value.ndim else value.item()
            operands = (tensor1, tensor2, value)
            _check_lists(name, self, operands)
            results = _fused(_TERNARY[name], self, "bcs", operands, in_place)
            if results is None:
                single = _single(name)
                results = _one_by_one(
                    lambda a, b, c, s: single(a, b, c, value=s), self, operands, in_place
                )
            return None if in_place else tuple(results)

        return call

    return make


def _lerp(in_place: bool) -> Callable[..., Any]:
    def call(self: Sequence[Tensor], tensors1: Sequence[Tensor], weight: Any) -> Any:
        """Interpolate between the tensors of two lists.

        `weight` is a number for all, a list of numbers or a list of tensors.
        """
        operands = (tensors1, weight)
        _check_lists("lerp", self, operands)
        results = _fused("lerp_of(a, b, c)", self, "bc", operands, in_place)
        if results is None:
            results = _one_by_one(_single("lerp"), self, operands, in_place)
        return None if in_place else tuple(results)

    return call


for _name in _UNARY:
    _register(_name, _unary(_name))
for _name in _BINARY:
    _register(_name, _binary(_name))
for _name in _TERNARY:
    _register(_name, _ternary(_name))
_register("lerp", _lerp)


# -- others ---------------------------------------------------------------------------------------


def _named(call: Callable[..., Any]) -> Callable[..., Any]:
    call.__module__ = "flambeau"
    FOREACH[call.__name__] = call
    return call


@_named
def _foreach_zero_(self: Sequence[Tensor]) -> None:
    """Set every element of the tensors of a list to 0."""
    _check_lists("zero_", self, ())
    if same_kind(self):
        launch(Program("x[0] = A(0);", operands=1, reads=0, writes=1), [self])
        return
    for tensor in self:
        tensor.zero_()


@_named
def _foreach_copy_(
    self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False
) -> None:
    """Copy the tensors of one list into those of another."""
    _check_lists("copy_", self, (src,))
    if same_kind(self, src):
        launch(Program("x[0] = x[1];", operands=2, reads=2, writes=1), [self, src])
        return
    for target, source in zip(self, src, strict=True):
        target.copy_(source, non_blocking)


@_named
def _foreach_clone(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copy the tensors of a list."""
    return tuple(tensor.clone() for tensor in self)


@_named
def _foreach_norm(self: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """Compute the norm of each tensor of a list.

    Parameters
    ----------
    self
        Floating-point tensors.
    ord
        The order; 1, 2 and infinity are done by one kernel.
    dtype
        The results' dtype.

    Returns
    -------
    tuple of Tensor
        Without dimensions.
    """
    _check_lists("norm", self, ())
    fused = float(ord) in NORMS and dtype in {None, self[0].dtype}
    whole = all(tensor.numel() for tensor in self)
    if fused and whole and same_kind(self):
        return launch_norms(self, float(ord)).unbind(0)
    return tuple(_single("norm")(tensor, ord, dtype=dtype) for tensor in self)
