# SPDX-License-Identifier: Apache-2.0
"""Tensors that belong to a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.runtime import _tensor
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Buffer", "Parameter"]


def _empty() -> Tensor:
    return _tensor.empty((0,))


class Parameter(Tensor):
    """A tensor that a module registers when it is assigned to one of its attributes.

    Parameters
    ----------
    data
        The tensor; its memory is shared.
    requires_grad
        Whether gradients are computed for it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.nn.Parameter(torch.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    # Operations on parameters give ordinary tensors.
    __torch_function__ = _tensor._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls: type[Parameter], data: Tensor | None = None, requires_grad: bool = True
    ) -> Parameter:
        """Make a parameter over the memory of a tensor."""
        source = _empty() if data is None else data
        made: Parameter = Tensor._make_subclass(cls, source.detach(), requires_grad)
        return made

    def __repr__(self) -> str:
        return "Parameter containing:\n" + repr(as_tensor(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        made: Parameter = memo[id(self)]
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt, (type(self), as_tensor(self).detach(), self.requires_grad)


def as_tensor(parameter: Tensor) -> Tensor:
    """A parameter as an ordinary tensor over the same memory, of the same ``requires_grad``."""
    made = parameter.detach().as_subclass(Tensor)
    return made.requires_grad_() if parameter.requires_grad else made


def _rebuilt(cls: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    return cls(data, requires_grad)


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is assigned to an attribute.

    Parameters
    ----------
    data
        The tensor; its memory is shared.
    persistent
        Whether it is part of the module's ``state_dict``.
    """

    __torch_function__ = _tensor._disabled_torch_function_impl
    persistent: bool

    @staticmethod
    def __new__(
        cls: type[Buffer], data: Tensor | None = None, *, persistent: bool = True
    ) -> Buffer:
        """Make a buffer over the memory of a tensor."""
        source = _empty() if data is None else data
        made: Buffer = Tensor._make_subclass(cls, source.detach(), False)
        made.persistent = persistent
        return made
