# SPDX-License-Identifier: Apache-2.0
"""Derivatives of functions that hand their tensors to a library, written beside the function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from flambeau.runtime._autograd import is_grad_enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.runtime._tensor import Tensor

    Backward = Callable[[Sequence[Any], Sequence[Tensor], Sequence[Tensor], dict[str, Any]], Any]

__all__ = ["gradients_wanted", "refuse_gradients", "with_gradient"]

F = TypeVar("F", bound="Callable[..., Any]")


def gradients_wanted(*tensors: Tensor) -> bool:
    """Whether operations on these are being recorded for gradients."""
    return is_grad_enabled() and any(t.requires_grad for t in tensors)


def refuse_gradients(name: str, *tensors: Tensor) -> None:
    """Say that a function has no derivative, if one is wanted.

    Raises
    ------
    NotImplementedError
        A tensor requires gradients, and they are being recorded.
    """
    if gradients_wanted(*tensors):
        raise NotImplementedError(
            f"the derivative of {name} is not implemented; call it on .detach()ed tensors or under "
            "torch.no_grad() if no gradient is needed"
        )


@functools.cache
def _recorder() -> Any:
    from flambeau.autograd.function import Function

    class LibraryFunction(Function):
        """A library's function in the backward graph."""

        @staticmethod
        def forward(
            ctx: Any, function: Any, backward: Any, constant: Any, options: Any, *tensors: Any
        ) -> Any:
            found = function(*tensors, **options)
            results = found if isinstance(found, tuple) else (found,)
            ctx.count, ctx.rule, ctx.options = len(tensors), backward, options
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors, *results)
            ctx.mark_non_differentiable(*(results[i] for i in constant))
            return found

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = ctx.saved_tensors
            tensors, results = saved[: ctx.count], saved[ctx.count :]
            found = ctx.rule(grads, tensors, results, ctx.options)
            return (None, None, None, None, *found)

    return LibraryFunction


def with_gradient(backward: Backward, constant: Sequence[int] = ()) -> Callable[[F], F]:
    """Give a function of tensors its derivative.

    Parameters
    ----------
    backward
        Gets the results' gradients (None where there is none), the tensors, the results and the
        options; gives the tensors' gradients.
    constant
        Which results have none.
    """

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def call(*tensors: Tensor, **options: Any) -> Any:
            if not gradients_wanted(*tensors):
                return function(*tensors, **options)
            return _recorder().apply(function, backward, constant, options, *tensors)

        return call  # type: ignore[return-value]

    return wrap
