# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from flambeau.runtime._tensor import Tensor

class ElementwiseOp:
    """An operation that works element by element, ``op(*operands, out=None, scalars=())``.

    Operands are tensors and Python numbers. As a class attribute it binds like a method.

    Parameters
    ----------
    name
        For messages and observers.
    arity
        How many operands, 1 to 4; each a tensor or a Python number.
    promote
        ``promote(op, kinds) -> (result_type, compute_type)`` with one ``(scalar_type, rank_class)``
        per operand; rank class 0 is a tensor with dimensions, 1 one without, 2 a Python number (of
        type Bool, Int64, Float64 or Complex128). Asked once per combination.
    compile
        ``compile(op, device, in_types, scalar_mask, out_type, compute_type, layout_class) ->
        CUfunction`` as an int. Bit i of `scalar_mask`: operand i is passed by value. Layout class 0
        is contiguous and vectorised, 1 strided with 32-bit indices, 2 strided with 64-bit ones.
    host
        ``host(op, operands, out, result_type, compute_type)`` for host tensors; with `scalars` it
        gets them as a last argument. Returns the result, or writes it into `out`.
    scalars
        How many numbers are passed along, the same for all elements.
    any_output
        Whether ``out`` may have any dtype and any shape that the operands broadcast to, as for
        copies.
    """

    name: str
    arity: int
    scalars: int
    any_output: bool

    def __init__(
        self,
        name: str,
        arity: int,
        *,
        promote: Callable[[Any, tuple[tuple[int, int], ...]], tuple[int, int]],
        compile: Callable[..., int],
        host: Callable[..., Tensor | None],
        scalars: int = 0,
        any_output: bool = False,
    ) -> None: ...
    def __call__(
        self, *operands: Tensor | complex, out: Tensor | None = None, scalars: tuple[Any, ...] = ()
    ) -> Tensor:
        """Run the operation.

        Raises
        ------
        TypeError
            An operand is neither a tensor nor a number.
        RuntimeError
            Shapes do not broadcast, devices differ, or `out` cannot take the result.
        """
    def unary(self, input: object, out: Tensor | None = None) -> Tensor:
        """``op(input, out=out)`` of a tensor; a TypeError for anything else."""
    def unary_in_place(self, target: Tensor) -> Tensor:
        """``op.in_place(target)``."""
    def binary(
        self, input: Tensor | complex, other: Tensor | complex, out: Tensor | None = None
    ) -> Tensor:
        """``op(input, other, out=out)``."""
    def binary_in_place(self, target: Tensor, other: Tensor | complex) -> Tensor:
        """``op.in_place(target, other)``."""
    def in_place(
        self, target: Tensor, *operands: Tensor | complex, scalars: tuple[Any, ...] = ()
    ) -> Tensor:
        """``op(target, *operands)`` written into `target`, which is not resized; returns it."""
    def short_answer(self, *, in_place: bool = False) -> tuple[ElementwiseOp, object] | None:
        """For `recorded`: this operation on its operands alone; None where it has others than one or two."""
    def forget(self) -> None:
        """Drop what was cached: promotion results and kernels."""
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...

def forget_promotions() -> None:
    """Have every operation ask `promote` again, after the default dtype changed."""

def forget_kernels() -> None:
    """Drop every cached kernel; for a driver that has been replaced."""
