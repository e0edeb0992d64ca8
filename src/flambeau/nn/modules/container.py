# SPDX-License-Identifier: Apache-2.0
"""Modules and parameters held in order or by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(index: Any, length: int) -> int:
    at = operator.index(index)
    if not -length <= at < length:
        raise IndexError(f"index {at} is out of range")
    return at % length


class _Ordered(Module):
    """Modules whose names are numbers from 0 on."""

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules.clear()
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def _name(self, index: Any) -> str:
        return list(self._modules)[_position(index, len(self))]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._sliced(list(self._modules.items())[index])
        return self._modules[self._name(index)]

    def _sliced(self, items: list[tuple[str, Any]]) -> Any:
        return type(self)([module for _, module in items])  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self._modules.values())
        del modules[index]
        self._renumber(m for m in modules if m is not None)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one at a position."""
        modules: list[Any] = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: Any = -1) -> Any:
        """Take a module out, and give it."""
        taken = self[key]
        del self[key]
        return taken


class Sequential(_Ordered):
    """Modules that are called one after the other.

    Parameters
    ----------
    args
        Modules, or one dict of them, whose keys are their names then.

    Examples
    --------
    >>> import flambeau as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()).cuda()
    >>> net(torch.ones(3, 4, device="cuda")).shape
    torch.Size([3, 2])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for number, module in enumerate(args):
                self.add_module(str(number), module)

    def _sliced(self, items: list[tuple[str, Any]]) -> Sequential:
        return type(self)(OrderedDict(items))

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        if all(name.isdigit() for name in names):
            self._renumber(m for m in list(self._modules.values()) if m is not None)

    def forward(self, input: Any) -> Any:
        """Call the modules, each with the result of the one before."""
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


class ModuleList(_Ordered):
    """A list of modules.

    Parameters
    ----------
    modules
        What it holds at first.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """Modules by names.

    Parameters
    ----------
    modules
        A mapping, or pairs.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def update(self, modules: Any) -> None:
        """Add modules of a mapping, or of pairs."""
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self[key] = module

    def pop(self, key: str) -> Any:
        """Take a module out, and give it."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Take all out."""
        self._modules.clear()


class ParameterList(Module):
    """A list of parameters; tensors become such.

    Parameters
    ----------
    values
        What it holds at first.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[k] for k in range(*index.indices(self._size))])
        return getattr(self, str(_position(index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, self._size)), _parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self._size))

    def append(self, value: Any) -> Self:
        """Add a parameter at the end."""
        setattr(self, str(self._size), _parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add parameters at the end."""
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """One line for each parameter."""
        lines = []
        for number, p in enumerate(self):
            shape = "x".join(map(str, p.shape))
            where = f" ({p.device})" if p.is_cuda else ""
            lines.append(f"({number}): Parameter containing: [{p.dtype} of size {shape}{where}]")
        return "\n".join(lines)


class ParameterDict(Module):
    """Parameters by names; tensors become such.

    Parameters
    ----------
    parameters
        A mapping, or pairs.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return self._parameters.items()

    def update(self, parameters: Any) -> None:
        """Add parameters of a mapping, or of pairs."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value


def _parameter(value: Any) -> Any:
    from flambeau.runtime._tensor import Tensor

    plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return Parameter(value) if plain else value
