# SPDX-License-Identifier: Apache-2.0
"""The base of neural networks: parameters, buffers and modules in a tree."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self

from flambeau.nn.modules.kept import Kept, add
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.ops.grad_mode import no_grad
from flambeau.runtime._dtype import dtype as _dtype_class
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flambeau.runtime._autograd import RemovableHandle

__all__ = ["Module"]

_DICTS = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_hooks",
    "_state_dict_hooks",
    "_load_post_hooks",
)


class Module(Kept):
    """A part of a network: a function with parameters, buffers and modules of its own.

    Assigning a `Parameter` or a `Module` to an attribute registers it. A subclass calls
    ``super().__init__()`` before that, and defines ``forward``.

    Attributes
    ----------
    training : bool
        Whether the module is in training mode.

    Examples
    --------
    >>> import flambeau as torch
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = torch.nn.Parameter(torch.tensor(2.0))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> scale = Scale().cuda()
    >>> scale(torch.ones(2, device="cuda")).tolist()
    [2.0, 2.0]
    >>> list(scale.state_dict())
    ['factor']
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        for name in (*_DICTS, *_HOOKS):
            own[name] = {}
        own["_non_persistent_buffers_set"] = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's function."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward``, with the hooks before and after."""
        if not (self._forward_pre_hooks or self._forward_hooks or self._backward_hooks):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            if with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        if self._backward_hooks:
            from flambeau.nn.modules import backward_hooks

            result = backward_hooks.call(self, args, kwargs, list(self._backward_hooks.values()))
        else:
            result = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    # -- attributes --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for kind in _DICTS:
            held = own.get(kind)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._make_room(name, "_parameters", "parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._make_room(name, "_modules", "module")
            own["_modules"][name] = value
        elif isinstance(value, Buffer):
            self._make_room(name, "_buffers", "buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            own["_parameters"][name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            own["_modules"][name] = None
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as buffer '{name}' "
                    "(torch.Tensor or None expected)"
                )
            own["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def _make_room(self, name: str, kind: str, plural: str) -> None:
        own = self.__dict__
        if kind not in own:
            raise AttributeError(f"cannot assign {plural} before Module.__init__() call")
        own.pop(name, None)
        for other in _DICTS:
            if other != kind:
                own[other].pop(name, None)

    def __delattr__(self, name: str) -> None:
        for kind in _DICTS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        for kind in _DICTS:
            names.update(self.__dict__[kind])
        return sorted(name for name in names if not name[0].isdigit())

    def _check_name(self, what: str, name: str, kind: str) -> None:
        if kind not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[kind]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one."""
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly."
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is no parameter.

        Parameters
        ----------
        name
            The attribute's name.
        tensor
            The tensor, or None.
        persistent
            Whether it is part of the `state_dict`.
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_name("module", name, "_modules")
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a module, like `add_module`."""
        self.add_module(name, module)

    # -- the tree ----------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Give this module and all below it, each once, with their paths."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Give this module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, each once, with their names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules right below, each once."""
        return (module for _, module in self.named_children())

    def _named_members(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, member in getattr(module, kind).items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters, each once, with their paths.

        Parameters
        ----------
        prefix
            Put before each path.
        recurse
            Whether those of modules below belong to them.
        remove_duplicate
            Whether a shared one appears once.
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, each once, with their paths; as for `named_parameters`."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as ``"encoder.0"``; this one for ``""``.

        Raises
        ------
        AttributeError
            There is no such module.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        found: Module = module
        return found

    def _get_member(self, target: str, kind: type, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        found = getattr(module, name)
        if not isinstance(found, kind):
            raise AttributeError(f"`{name}` is not {what}")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as ``"encoder.0.weight"``."""
        found: Parameter = self._get_member(target, Parameter, "an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        found: Tensor = self._get_member(target, Tensor, "a buffer")
        return found

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call a function with each module below, then with this one, which is returned."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- where and of what type --------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace each parameter's and buffer's data by what a function makes of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            with no_grad():
                parameter.data = fn(parameter.data)
                gradient = parameter.grad
                if gradient is not None:
                    parameter.grad = None
                    parameter.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, and floating-point ones to a dtype.

        Parameters
        ----------
        device, dtype
            Either or both, or a tensor whose device and dtype are taken.
        non_blocking
            As for ``Tensor.to``.

        Raises
        ------
        TypeError
            The dtype is an integer one.
        """
        given = [*args, *kwargs.values()]
        of = next((arg for arg in given if isinstance(arg, _dtype_class)), None)
        like = next((arg for arg in given if isinstance(arg, Tensor)), None)
        of = like.dtype if like is not None else of
        if of is not None and of.category < 2:
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={of}"
            )

        def moved(tensor: Tensor) -> Tensor:
            if tensor.is_floating_point() or tensor.is_complex():
                return tensor.to(*args, **kwargs)
            where = like.device if like is not None else kwargs.get("device")
            rest = [a for a in args if not isinstance(a, (Tensor, _dtype_class, bool))]
            if where is None and rest:
                where = rest[0]
            return tensor if where is None else tensor.to(where)

        return self._apply(moved)

    def cuda(self, device: Any = None) -> Self:
        """Move parameters and buffers to a CUDA device, the current one by default."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def cpu(self) -> Self:
        """Move parameters and buffers to host memory."""
        return self._apply(lambda tensor: tensor.cpu())

    def _cast(self, name: str) -> Self:
        convert = functools.partial(_floats_only, name)
        return self._apply(convert)

    def type(self, dst_type: Any) -> Self:
        """Convert parameters and buffers to a dtype."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def float(self) -> Self:
        """Convert floating-point parameters and buffers to float32."""
        return self._cast("float")

    def double(self) -> Self:
        """Convert floating-point parameters and buffers to float64."""
        return self._cast("double")

    def half(self) -> Self:
        """Convert floating-point parameters and buffers to float16."""
        return self._cast("half")

    def bfloat16(self) -> Self:
        """Convert floating-point parameters and buffers to bfloat16."""
        return self._cast("bfloat16")

    # -- modes -------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Put this module and all below it into training mode, or out of it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Put this module and all below it out of training mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed for the parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to 0."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad.detach_().zero_()

    # -- hooks -------------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before each forward; what it returns replaces the arguments.

        Parameters
        ----------
        hook
            With `with_kwargs` it is ``hook(module, args, kwargs)`` and returns both.
        prepend
            Whether it comes before the others.
        with_kwargs
            Whether it gets keyword arguments.
        """
        return add(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, result)`` after each forward; what it returns replaces that.

        Parameters
        ----------
        hook
            With `with_kwargs` it is ``hook(module, args, kwargs, result)``.
        prepend, with_kwargs
            As for `register_forward_pre_hook`.
        always_call
            Not offered: True raises.
        """
        if always_call:
            raise NotImplementedError("forward hooks are not called after an exception")
        return add(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when gradients of the inputs are there.

        What it returns replaces the gradients of the inputs.
        """
        return add(self._backward_hooks, hook, prepend)

    # -- text --------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands in the parentheses of the module's text."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        if not below and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *lines, *below]) + "\n)"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _floats_only(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    converted: Tensor = getattr(tensor, name)()
    return converted
