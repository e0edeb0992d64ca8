# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels from a function template in CUDA C++, compiled at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.cuda import _jiterator_launch
from flambeau.cuda._jiterator_parser import CodeError, parse
from flambeau.ops.common import same_device
from flambeau.runtime import lazy_init
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["CodeError"]

MOST_OPERANDS = 8

CodeError.__module__ = __name__


class _NoDeviceError(AssertionError, RuntimeError):
    """No CUDA device is available."""


class _LimitError(AssertionError, ValueError, RuntimeError):
    """There are more operands than a kernel takes."""


class _UnknownExtraError(KeyError, TypeError):
    """An extra argument that was not declared."""

    def __str__(self) -> str:
        return str(self.args[0])


class _ArgumentError(RuntimeError, TypeError):
    """An argument is of the wrong kind, or the arguments do not fit the function."""


class _JittedFunction:
    """A compiled elementwise function. Programs get one from the functions of this module.

    Parameters
    ----------
    code_string
        The code.
    return_by_ref
        Whether the function takes its outputs as references.
    num_outputs
        How many outputs there are.
    **kwargs
        The extra arguments, in order, and their default values.
    """

    def __init__(
        self, code_string: str, return_by_ref: bool, num_outputs: int, **kwargs: Any
    ) -> None:
        if not return_by_ref and num_outputs != 1:
            raise _LimitError(
                f"Return by value only works for single output; {num_outputs} were asked for. "
                "A function with several outputs takes them as references."
            )
        entry = parse(code_string)
        self.code_string = code_string
        self.return_by_ref = return_by_ref
        self.num_outputs = num_outputs
        self.kernel_name = entry.name
        self.kwargs_dict = kwargs
        self._program = _jiterator_launch.Program(code_string, entry, num_outputs, return_by_ref)

    def __repr__(self) -> str:
        return f"<jiterator function {self.kernel_name}>"

    def __call__(self, *tensors: Tensor, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Compute the function for each element of the broadcast inputs.

        Parameters
        ----------
        *tensors
            1 to 8 CUDA tensors of one device.
        **kwargs
            Extra arguments other than by default: numbers or tensors of one element.

        Returns
        -------
        Tensor or tuple of Tensor
            New tensors of the dtype that the inputs promote to.
        """
        _require_device()
        if len(tensors) > MOST_OPERANDS:
            raise _LimitError(
                f"jiterator only supports up to {MOST_OPERANDS} tensor inputs, got {len(tensors)}"
            )
        if not 1 <= self.num_outputs <= MOST_OPERANDS:
            raise _LimitError(
                f"jiterator only supports 1 to {MOST_OPERANDS} outputs, got {self.num_outputs}"
            )
        extras = self._extras(kwargs)
        self._check(tensors, len(extras))
        results = self._program.run(tensors, extras)
        return results[0] if self.num_outputs == 1 else tuple(results)

    def _extras(self, given: Mapping[str, Any]) -> list[complex]:
        for name in given:
            if name not in self.kwargs_dict:
                declared = ", ".join(self.kwargs_dict) or "none"
                raise _UnknownExtraError(
                    f"{name} is not declared in function definition of {self.kernel_name}; "
                    f"declared are: {declared}"
                )
        return [_number(name, value) for name, value in {**self.kwargs_dict, **given}.items()]

    def _check(self, tensors: Sequence[Tensor], extras: int) -> None:
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise _ArgumentError(
                    f"{position} of input tensors tuple is not a Tensor, but "
                    f"{type(tensor).__name__}; numbers are passed by name"
                )
        if not tensors:
            raise _ArgumentError(f"{self.kernel_name} was called without an input tensor")
        same_device(*tensors)
        if not tensors[0].is_cuda:
            raise RuntimeError(
                f"the inputs of {self.kernel_name} are on {tensors[0].device}, and jiterator "
                "kernels run on CUDA devices; move the inputs there with .cuda()"
            )
        outputs = self.num_outputs if self.return_by_ref else 0
        self._check_parameters(len(tensors), extras, outputs)

    def _check_parameters(self, inputs: int, extras: int, outputs: int) -> None:
        entry = self._program.entry
        if not entry.takes(inputs + extras + outputs):
            raise _ArgumentError(
                f"{entry.name} has {len(entry.parameters)} parameters and was called with {inputs} "
                f"inputs, {extras} extra arguments and {outputs} outputs by reference"
            )
        by_value = [p for p in entry.parameters[-outputs:] if not p.is_reference]
        if outputs and by_value and len(entry.parameters) == inputs + extras + outputs:
            raise _ArgumentError(
                f"the last {outputs} parameters of {entry.name} are its outputs and have to be "
                "references, such as T& out"
            )


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., Any]:
    """Make an elementwise function from a C++ function template that returns its result.

    The template's first parameter is the type that is computed in. Inputs broadcast and promote to
    a common dtype, which the result has too; float16 and bfloat16 compute in ``float``.

    Parameters
    ----------
    code_string
        ``template <typename T> T name(T x, T y, T alpha) { ... }``: first the inputs, then the
        extra arguments. Helper functions may stand before it; the last function template counts.
    **kwargs
        The extra arguments in the function's order, with their default values. A float is passed
        as double, an int as 64 bits, and converted to the parameter's type.

    Returns
    -------
    callable
        Takes 1 to 8 CUDA tensors, of any layout, and the extra arguments by name.

    Raises
    ------
    CodeError
        The code is not of this form; what the compiler says shows at the call.

    Examples
    --------
    >>> import flambeau as torch
    >>> axpy = torch.cuda.jiterator._create_jit_fn(
    ...     "template <typename T> T axpy(T x, T y, T alpha) { return alpha * x + y; }", alpha=1.0)
    >>> x = torch.arange(3, dtype=torch.float32, device="cuda")
    >>> axpy(x, torch.ones_like(x), alpha=2.5).tolist()
    [1.0, 3.5, 6.0]
    """
    return _JittedFunction(code_string, return_by_ref=False, num_outputs=1, **kwargs)


def _create_multi_output_jit_fn(
    code_string: str, num_outputs: int, **kwargs: Any
) -> Callable[..., Any]:
    """Make an elementwise function from a C++ function template that fills several outputs.

    Parameters
    ----------
    code_string
        ``template <typename T> void name(T x, T alpha, T& first, T& second) { ... }``: inputs,
        extra arguments, outputs.
    num_outputs
        How many outputs there are, 1 to 8.
    **kwargs
        The extra arguments in the function's order, with their default values.

    Returns
    -------
    callable
        As of `_create_jit_fn`; it gives a tuple, or the tensor itself if there is one output.

    Raises
    ------
    CodeError
        The code is not of this form.

    Examples
    --------
    >>> import flambeau as torch
    >>> split = torch.cuda.jiterator._create_multi_output_jit_fn(
    ...     "template <typename T> void split(T x, T& a, T& b) { a = x / 10; b = x % 10; }", 2)
    >>> tens, ones = split(torch.tensor([42, 7], device="cuda"))
    >>> tens.tolist(), ones.tolist()
    ([4, 0], [2, 7])
    """
    return _JittedFunction(code_string, return_by_ref=True, num_outputs=num_outputs, **kwargs)


def _require_device() -> None:
    if lazy_init.is_initialized():
        return
    from flambeau import cuda

    if not cuda.is_available():
        raise _NoDeviceError(
            "Jiterator is only supported on CUDA devices, and none is available; "
            "flambeau.cuda.explain() says why"
        )


def _number(name: str, value: Any) -> complex:
    """An extra argument as a Python number."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise _ArgumentError(
            f"extra argument {name} is a tensor of {value.numel()} elements; it has to be a number "
            "or a tensor of one element"
        )
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        return number
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise OverflowError(f"extra argument {name} has 64 bits, too few for {number}")
        return int(number)
    if isinstance(number, float):
        return float(number)
    if isinstance(number, complex):
        return complex(number)
    raise _ArgumentError(
        f"extra argument {name} has to be a number or a tensor of one element, not "
        f"{type(value).__name__}"
    )
