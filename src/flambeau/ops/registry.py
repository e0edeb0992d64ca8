# SPDX-License-Identifier: Apache-2.0
"""From rows of the elementwise table to functions, methods, in-place forms and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from flambeau.ops.casts import CAST_TO_FLOAT32
from flambeau.ops.codegen import FLOAT8, real_code
from flambeau.ops.elementwise import ROWS, Row
from flambeau.ops.promotion import (
    BOOL,
    category_of,
    get_default_dtype,
    promote_kinds,
)
from flambeau.runtime import _dtype
from flambeau.runtime._elementwise import ElementwiseOp
from flambeau.runtime._recording import is_recorded, recorded
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

__all__ = ["FUNCTIONS", "METHODS", "OPS", "inplace_method", "public"]

_LETTERS = "bifc"
_REFUSALS = {
    ("_sub", "b"): "Subtraction, the `-` operator, with a bool tensor is not supported. Use the "
    "`^` or `logical_xor()` operator instead.",
    ("_sub_scaled", "b"): "Subtraction, the `-` operator, with a bool tensor is not supported. Use "
    "the `^` or `logical_xor()` operator instead.",
    ("relu", "b"): "Boolean inputs not supported for relu",
    ("positive", "b"): "The `+` operator, on a bool tensor is not supported.",
    ("neg", "b"): "Negation, the `-` operator, on a bool tensor is not supported. If you are "
    "trying to invert a mask, use the `~` or `logical_not()` operator instead.",
}


def _promotion(row: Row) -> Callable[[Any, tuple[tuple[int, int], ...]], tuple[int, int]]:
    """The rule of a row as `ElementwiseOp` asks it."""

    def promote(op: object, kinds: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        if row.kind == "copy":
            return kinds[0][0], kinds[0][0]
        if row.kind == "first":
            common = promote_kinds(kinds[:1])
        else:
            common = promote_kinds(kinds[1:] if row.kind == "branches" else kinds)
        if row.kind in {"float", "float_real"} and category_of(common) < 2:
            common = get_default_dtype().code
        _refuse(row, common, kinds)
        if row.kind in {"real", "float_real"}:
            return real_code(common), common
        return (BOOL if row.kind in {"compare", "bool"} else common), common

    return promote


def _refuse(row: Row, common: int, kinds: tuple[tuple[int, int], ...]) -> None:
    letters = {_LETTERS[category_of(common)]}
    if _dtype.dtype_from_code(common).name in FLOAT8:
        letters.add("8")
    if row.name in {"_sub", "_sub_scaled"}:  # one bool operand is enough
        letters |= {_LETTERS[category_of(code)] for code, _ in kinds}
    for letter in sorted(letters & set(row.refuse)):
        text = _REFUSALS.get((row.name, letter))
        if text:
            raise RuntimeError(text)
        name = _dtype.legacy_type_name(_dtype.dtype_from_code(common))
        public = row.name.strip("_")
        raise NotImplementedError(
            f"\"{public}\" not implemented for '{name}': it is defined for "
            f"{_defined_for(row.refuse)} tensors"
        )


def _defined_for(refused: str) -> str:
    names = {"b": "bool", "i": "integer", "f": "floating-point", "c": "complex"}
    kept = [name for letter, name in names.items() if letter not in refused]
    return " and ".join(kept) + (" (not float8)" if "8" in refused and "f" not in refused else "")


def _compiler(row: Row) -> Callable[..., int]:
    def compile(
        op: object,
        device: int,
        in_types: Sequence[int],
        scalar_mask: int,
        out_type: int,
        compute_type: int,
        layout_class: int,
    ) -> int:
        from flambeau.kernels.compile import get_function
        from flambeau.ops.codegen import elementwise_source

        source = elementwise_source(
            row, in_types, scalar_mask, out_type, compute_type, layout_class
        )
        return get_function(source, "kernel", device)

    return compile


def _host_form(row: Row) -> Callable[..., Tensor | None]:
    def run(
        op: object,
        operands: Sequence[Tensor | complex],
        out: Tensor | None,
        result_type: int,
        compute_type: int,
        scalars: Sequence[complex] = (),
    ) -> Tensor:
        from flambeau.ops import host
        from flambeau.ops.common import broadcast_shapes
        from flambeau.runtime._tensor import empty

        if out is None:
            shapes = [tuple(x.shape) for x in operands if isinstance(x, Tensor)]
            shape = broadcast_shapes(*shapes) if len(shapes) != 1 else shapes[0]
            out = empty(shape, dtype=_dtype.dtype_from_code(result_type))
        host.elementwise(row, operands, out, compute_type, scalars)
        return out

    return run


def make_op(row: Row) -> ElementwiseOp:
    """The compiled operation of a row."""
    return ElementwiseOp(
        row.name.strip("_"),
        row.arity,
        promote=_promotion(row),
        compile=_compiler(row),
        host=_host_form(row),
        scalars=row.scalars,
        any_output=row.kind == "copy",
    )


OPS: dict[str, ElementwiseOp] = {name: make_op(row) for name, row in ROWS.items()}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


def public(
    *names: str,
    function: bool = True,
    method: bool = True,
    short_answer: tuple[Any, Any] | None = None,
) -> Callable[[F], F]:
    """Register a hand-written operation in the namespace and as a tensor method.

    Parameters
    ----------
    names
        More names than the function's own.
    function, method
        Where it appears.
    short_answer
        How a call with nothing but tensors is answered; see `recorded`.
    """

    def register(made: F) -> F:
        made.__module__ = "flambeau"
        if not is_recorded(made):
            made = recorded(made, short_answer=short_answer)
        for name in (made.__name__, *names):
            if function:
                FUNCTIONS[name] = made
            if method:
                METHODS[name] = made
        return made

    return register


def inplace_method(
    name: str, call: Callable[..., Tensor], short_answer: tuple[Any, Any] | None = None
) -> None:
    """Register ``Tensor.<name>``, an operation that writes into its tensor and returns it."""
    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    METHODS[name] = recorded(call, in_place=name.endswith("_"), short_answer=short_answer)


def _register_unary(row: Row, op: ElementwiseOp) -> None:
    unary, unary_in_place = op.unary, op.unary_in_place

    def function(input: Tensor, *, out: Tensor | None = None) -> Any:
        return unary(input, out)

    def in_place(self: Tensor) -> Any:
        return unary_in_place(self)

    _describe(function, row, "input")
    _register(row, op, function, in_place)


def _register_binary(row: Row, op: ElementwiseOp) -> None:
    binary, binary_in_place = op.binary, op.binary_in_place

    def function(input: Tensor, other: Tensor | complex, *, out: Tensor | None = None) -> Any:
        return binary(input, other, out)

    def in_place(self: Tensor, other: Tensor | complex) -> Any:
        return binary_in_place(self, other)

    _describe(function, row, "input, other")
    _register(row, op, function, in_place)


def _register(
    row: Row, op: ElementwiseOp, function: Callable[..., Any], in_place: Callable[..., Any]
) -> None:
    function.__module__ = "flambeau"
    # The operation records itself; of some functions autocast looks at the operands.
    function = recorded(
        function,
        elementwise=True,
        cast=row.name in CAST_TO_FLOAT32,
        short_answer=op.short_answer(),
    )
    for name in (row.name, *filter(None, row.aliases)):
        FUNCTIONS[name] = function
        if row.method:
            METHODS[name] = function
    if row.inplace:
        in_place.__doc__ = f"Like `{row.name}`, written into this tensor, which is returned."
        in_place = recorded(
            in_place,
            in_place=True,
            elementwise=True,
            cast=False,
            short_answer=op.short_answer(in_place=True),
        )
        for name in (row.name, *filter(None, row.aliases)):
            METHODS[f"{name}_"] = in_place


_KIND_NOTES = {
    "promote": "The operands' common dtype.",
    "float": "The operands' common dtype; for integers and bool the default floating-point one.",
    "compare": "bool.",
    "bool": "bool.",
    "first": "The first operand's dtype.",
    "real": "The operand's dtype; the real one of its parts for complex numbers.",
    "float_real": "A real floating-point dtype.",
}


def _describe(function: Callable[..., Any], row: Row, arguments: str) -> None:
    function.__name__ = row.name
    function.__qualname__ = row.name
    formula = row.numpy.replace("host.", "")
    if formula.startswith("special("):
        formula = f"{row.name}({', '.join('ab'[: row.arity])})"
    operands = "A tensor." if row.arity == 1 else "Tensors that broadcast together, or numbers."
    function.__doc__ = f"""Compute ``{formula}`` for every element.

    Parameters
    ----------
    {arguments}
        {operands}
    out
        Where to store the result; resized if its shape differs.

    Returns
    -------
    Tensor
        {_KIND_NOTES[row.kind]}

    Raises
    ------
    RuntimeError
        Shapes do not broadcast, devices differ, or `out` cannot hold the result.
    """


for _row in ROWS.values():
    if _row.name.startswith("_") or _row.scalars or _row.arity > 2:
        continue
    (_register_unary if _row.arity == 1 else _register_binary)(_row, OPS[_row.name])
