# SPDX-License-Identifier: Apache-2.0
"""From tensors to outputs and a launch: shapes, memory order, the kernel that fits."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.cuda._jiterator_source import (
    THREADS,
    Shape,
    Signature,
    kernel_name,
    kernel_source,
    launch_signature,
)
from flambeau.driver.errors import CompilationError
from flambeau.ops.common import broadcast_shapes, merged_dims
from flambeau.ops.promotion import kind_of, promote_kinds
from flambeau.runtime import _dtype, _function, lazy_init
from flambeau.runtime._launch import Kernel
from flambeau.runtime._tensor import empty_strided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.cuda._jiterator_parser import EntryFunction
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = ["Geometry", "Program", "geometry_of", "order_of_dims"]

_FLAT, _VECTOR = Shape("flat"), Shape("vector")
_VECTOR_BYTES = 16
_MOST_PLANS = 1024
_DIMS_COMPILED_FOR = (4, 12, 64)
_INDEX_LIMIT = 2**31


class Geometry(NamedTuple):
    """Where the elements of one call are.

    Parameters
    ----------
    shape
        Of the outputs.
    strides
        Of the outputs, in elements.
    elements
        How many elements there are.
    flat
        Whether element i of every operand is its i-th in memory.
    layout
        For kernels by strides: number of dimensions, sizes and strides, packed.
    shape_of_kernel
        Which such kernel.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    elements: int
    flat: bool
    layout: bytes
    shape_of_kernel: Shape


def order_of_dims(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """The dimensions from the innermost in memory outwards, as the operands have them.

    The first operand that tells two dimensions apart decides; where none does, the later dimension
    is the inner one.

    Parameters
    ----------
    shape
        The broadcast shape.
    strides
        For each operand the strides in it; 0 where the operand is broadcast.
    """
    order = list(range(len(shape) - 1, -1, -1))
    for at in range(1, len(order)):
        moving = at
        for other in range(at - 1, -1, -1):
            verdict = _compare(order[other], order[moving], shape, strides)
            if verdict < 0:
                break
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
    return order


def _compare(a: int, b: int, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    """Below 0 if dimension `a` is the inner one, above 0 if `b` is, 0 if nothing tells."""
    for own in strides:
        if own[a] == 0 or own[b] == 0:
            continue
        if own[a] != own[b]:
            return -1 if own[a] < own[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def _strides_in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _expanded(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor in a shape that it broadcasts to."""
    missing = len(shape) - tensor.ndim
    own = zip(tensor.shape, tensor.stride(), strict=True)
    given = [
        0 if size == 1 and shape[dim] != 1 else stride
        for dim, (size, stride) in enumerate(own, missing)
    ]
    return (*[0] * missing, *given)


def geometry_of(tensors: Sequence[Tensor], outputs: int) -> Geometry:
    """Broadcast the inputs and lay out the outputs in the memory order that the inputs have.

    Raises
    ------
    RuntimeError
        The shapes do not broadcast.
    """
    shape = broadcast_shapes(*(tuple(tensor.shape) for tensor in tensors))
    strides = [_expanded(tensor, shape) for tensor in tensors]
    order = order_of_dims(shape, strides)
    own = _strides_in_order(shape, order)
    count = 1
    for size in shape:
        count *= size
    outward = order[::-1]
    operands = [own] * outputs + strides
    sizes, merged = merged_dims(
        [shape[dim] for dim in outward], *([given[dim] for dim in outward] for given in operands)
    )
    flat = count == 1 or (len(sizes) == 1 and all(given == [1] for given in merged))
    most = next(limit for limit in _DIMS_COMPILED_FOR if len(sizes) <= limit)
    padding = [0] * (most - len(sizes))
    numbers = [len(sizes), *sizes, *padding]
    for given in merged:
        numbers += [*given, *padding]
    reach = max(
        (sum(max(size - 1, 0) * abs(step) for size, step in zip(sizes, given, strict=True)))
        for given in merged
    )
    small = max(count, reach + 1) < _INDEX_LIMIT
    return Geometry(
        shape,
        own,
        count,
        flat,
        struct.pack(f"<{len(numbers)}q", *numbers),
        Shape("strided32" if small else "strided64", most),
    )


class _Plan(NamedTuple):
    """What is known about calls with inputs of the same dtypes, shapes and strides."""

    signature: Signature
    common: dtype
    geometry: Geometry
    width: int
    kernels: dict[tuple[int, str], Kernel]  # by device and access


class Program:
    """A user's function with the kernels that were compiled from it.

    Parameters
    ----------
    code, entry
        The code, and the function in it that is called for each element.
    outputs
        How many outputs there are.
    by_reference
        Whether the function takes them as references.
    """

    def __init__(self, code: str, entry: EntryFunction, outputs: int, by_reference: bool) -> None:
        self.code, self.entry = code, entry
        self.outputs, self.by_reference = outputs, by_reference
        self._plans: dict[Any, _Plan] = {}
        self._epoch = _epoch

    def run(self, tensors: Sequence[Tensor], extras: Sequence[complex]) -> list[Tensor]:
        """Compute the outputs for tensors on one CUDA device.

        Raises
        ------
        RuntimeError
            The shapes do not broadcast, a dtype is not supported, or the code does not compile.
        OverflowError
            An int among the extras does not fit 64 bits.
        """
        plan = self._plan(tensors, tuple(type(extra) for extra in extras))
        geometry, device = plan.geometry, tensors[0].device
        results = [
            empty_strided(geometry.shape, geometry.strides, dtype=plan.common, device=device)
            for _ in range(self.outputs)
        ]
        if geometry.elements:
            self._launch(plan, results[0].get_device(), [*results, *tensors], extras)
        return results

    def _plan(self, tensors: Sequence[Tensor], extras: tuple[type, ...]) -> _Plan:
        if self._epoch != _epoch:
            self._plans, self._epoch = {}, _epoch
        key = (*((t.dtype, t.shape, t.stride()) for t in tensors), extras)
        found = self._plans.get(key)
        if found is None:
            common = _dtype.dtype_from_code(promote_kinds(tuple(kind_of(t) for t in tensors)))
            names = tuple(tensor.dtype.name for tensor in tensors)
            signature = Signature(names, common.name, extras, self.outputs, self.by_reference)
            signature.check()
            geometry = geometry_of(tensors, self.outputs)
            found = _Plan(signature, common, geometry, signature.vector_width, {})
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = found
        return found

    def _launch(
        self, plan: _Plan, device: int, operands: Sequence[Tensor], extras: Sequence[complex]
    ) -> None:
        geometry, width, shape = plan.geometry, 1, plan.geometry.shape_of_kernel
        addresses = [operand.data_ptr() for operand in operands]
        if geometry.flat:
            shape, wide = _FLAT, plan.width
            if wide > 1 and not any(address % _VECTOR_BYTES for address in addresses):
                shape, width = _VECTOR, wide
        kernel = self._kernel(plan, device, shape)
        values: list[Any] = [*addresses]
        for extra in extras:
            values += [extra.real, extra.imag] if isinstance(extra, complex) else [extra]
        values.append(geometry.elements)
        if not geometry.flat:
            values.append(geometry.layout)
        each = THREADS * width
        kernel(device, (geometry.elements + each - 1) // each, THREADS, 0, *values)

    def _kernel(self, plan: _Plan, device: int, shape: Shape) -> Kernel:
        key = (device, shape.access)
        found = plan.kernels.get(key)
        if found is None:
            function = self._compile(device, plan.signature, shape)
            letters = launch_signature(plan.signature, shape)
            found = plan.kernels[key] = Kernel(function, letters, name="jiterator")
        return found

    def _compile(self, device: int, signature: Signature, shape: Shape) -> int:
        from flambeau.kernels.compile import get_function, include_options

        source = kernel_source(self.code, self.entry, signature, shape)
        options = ("-lineinfo", *(include_options() if "#include <" in self.code else ()))
        _function.use_context(device)
        try:
            return get_function(source, kernel_name(self.entry), device, options)
        except CompilationError as error:
            raise CompilationError(self._explain(error, signature), error.log) from error

    def _explain(self, error: CompilationError, signature: Signature) -> str:
        numbered = "\n".join(f"{n:4d} | {line}" for n, line in enumerate(self.code.splitlines(), 1))
        return (
            f"jiterator could not compile {self.entry.name} for T = {signature.compute}, which "
            f"inputs of {', '.join(signature.inputs)} give.\n{error.log}\n\n"
            f"Source ({self.entry.name}.cu):\n{numbered}"
        )


_epoch = 0


def _forget_kernels() -> None:
    global _epoch
    _epoch += 1


lazy_init.on_forget(_forget_kernels)
