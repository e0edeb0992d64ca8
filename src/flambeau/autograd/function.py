# SPDX-License-Identifier: Apache-2.0
"""Functions that bring their own derivative."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.ops.grad_mode import no_grad, set_grad_enabled
from flambeau.runtime._autograd import is_grad_enabled
from flambeau.runtime._autograd_function import FunctionNode, apply_function
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


class FunctionCtx(FunctionNode):
    """What forward and backward of a `Function` share: the node in the backward graph.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        For each argument of the forward, whether its gradient is wanted.
    saved_tensors : tuple of Tensor
        What `save_for_backward` was given.
    """

    materialize_grads = True
    needs_input_grad: tuple[bool, ...] = ()
    _function: Any = None

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which arguments the forward wrote in place."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which results have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros for results without a gradient, or None."""
        self.materialize_grads = value

    def save_for_forward(self, *tensors: Tensor) -> None:
        """Accept tensors for forward-mode derivatives, which are not computed."""

    def _run_backward(self, gradients: tuple[Tensor | None, ...]) -> Any:
        """Call the function's backward; the engine asks for this."""
        return self._function.backward(self, *gradients)


BackwardCFunction = FunctionCtx


class _FunctionMeta(type):
    """Gives each function a class of nodes named after it."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(f"{name}Backward", (FunctionCtx,), {"_function": cls})


class Function(metaclass=_FunctionMeta):
    """An operation whose derivative is written by hand: subclass it and call ``apply``.

    Define ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``, and ``backward(ctx, *grad_outputs)``, all static, the
    last giving a gradient or None for each argument of the forward. Inside the forward nothing is
    recorded.

    Examples
    --------
    >>> import flambeau as torch
    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x * x * grad
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    _backward_cls: type[FunctionCtx]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself: "
            f"{type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results; to be defined by the subclass."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Keep what backward needs, if the forward does not take a ``ctx``."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute the arguments' gradients; to be defined by the subclass."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Compute the results and record how to go back."""
        ctx: Any = cls._backward_cls.__new__(cls._backward_cls)  # type: ignore[call-overload]
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = is_grad_enabled() and any(ctx.needs_input_grad)
        separate = cls.setup_context is not Function.setup_context
        with no_grad():
            if separate:
                results = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, results)
            else:
                results = cls.forward(ctx, *args, **kwargs)
        return apply_function(ctx, args, results, recording)


class InplaceFunction(Function):
    """An older name for functions that may write in place."""


class NestedIOFunction(Function):
    """An older name for functions of nested tuples; takes flat arguments like `Function`."""


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a ``backward`` that cannot be differentiated itself.

    A second derivative through it raises RuntimeError instead of being wrong.
    """

    @functools.wraps(fn)
    def wrapped(ctx: Any, *args: Any) -> Any:
        with no_grad():
            results = fn(ctx, *args)
        tracked = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        if not is_grad_enabled() or not tracked:
            return results
        with set_grad_enabled(True):
            several = isinstance(results, tuple)
            marked = [
                _NotTwice.apply(one, *[a for a in args if isinstance(a, Tensor)])
                if isinstance(one, Tensor) else one
                for one in (results if several else (results,))
            ]  # fmt: skip
        return tuple(marked) if several else marked[0]

    return wrapped


class _NotTwice(Function):
    """Passes its first argument on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *args: Tensor) -> Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
