# SPDX-License-Identifier: Apache-2.0
"""Whether gradients are recorded: a flag per thread, and contexts that set it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from flambeau.runtime._autograd import (
    is_grad_enabled,
    is_inference_mode_enabled,
    set_modes,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound="Callable[..., Any]")


def is_inference(tensor: Tensor) -> bool:
    """Whether a tensor was made inside `inference_mode`, or is a view of what was."""
    return tensor.is_inference()


class _Mode:
    """A context and decorator that sets the flags and puts them back."""

    _grad = True
    _inference: bool | None = None

    def __init__(self) -> None:
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        inference = is_inference_mode_enabled()
        self._before.append((is_grad_enabled(), inference))
        if self._inference is None:
            set_modes(self._grad and not inference, inference)
        else:
            set_modes(self._grad, self._inference)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_modes(*self._before.pop())

    def __call__(self, function: F) -> F:
        import inspect

        if inspect.isgeneratorfunction(function):
            return self._generator(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The mode holds while the generator runs, not between."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            sent = None
            while True:
                try:
                    with self:
                        value = generator.send(sent)
                except StopIteration as stop:
                    return stop.value
                sent = yield value

        return wrapped


class no_grad(_Mode):  # noqa: N801 - torch's name
    """Do not record gradients: a context and a decorator.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.no_grad():
    ...     torch.is_grad_enabled()
    False
    """

    _grad = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Make the context; around a bare function, wrap it."""
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc] # used as a bare decorator
        return made(function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class enable_grad(no_grad):  # noqa: N801
    """Record gradients: a context and a decorator, for use inside `no_grad`."""

    _grad = True


class inference_mode(_Mode):  # noqa: N801
    """Do not record gradients, nor count writes: a context and a decorator.

    Tensors made inside are inference tensors (`Tensor.is_inference`) for as long as they live, and
    so are their views: outside the mode they cannot be written in place, kept for a backward pass
    or made to require grad. What is computed from them outside is a tensor like any other.

    Parameters
    ----------
    mode
        False switches the mode off.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.inference_mode():
    ...     x = torch.ones(2)
    ...     y = x.add_(1)
    >>> y.is_inference(), (y * 2).is_inference()
    (True, False)
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        """Make the context; around a bare function, wrap it."""
        made = super().__new__(cls)
        if not callable(mode):
            return made
        made.__init__()  # type: ignore[misc] # used as a bare decorator
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self._inference = mode
        self._grad = not mode


class set_grad_enabled(_Mode):  # noqa: N801
    """Record gradients or do not, at once; as a context until its end.

    Parameters
    ----------
    mode
        Whether to record.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._grad = mode
        self._outer = is_grad_enabled()
        set_modes(mode, is_inference_mode_enabled())

    def __enter__(self) -> None:
        inference = is_inference_mode_enabled()
        self._before.append((self._outer, inference))
        set_modes(self._grad, inference)
