# SPDX-License-Identifier: Apache-2.0
"""What all optimizers share: groups of parameters, state, and keeping both."""

from __future__ import annotations

import functools
from collections import defaultdict
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from flambeau.ops.grad_mode import enable_grad, no_grad
from flambeau.runtime._autograd import add_hook
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flambeau.runtime._autograd import RemovableHandle

__all__ = ["Optimizer"]

F = TypeVar("F", bound="Callable[..., Any]")


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _counted(function: F) -> F:
    """Wrap a ``step``: hooks before and after, and a count of the calls."""

    @functools.wraps(function)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for before in list(self._step_pre_hooks.values()):
            changed = before(self, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        result = function(self, *args, **kwargs)
        self._step_count += 1
        for after in list(self._step_post_hooks.values()):
            after(self, args, kwargs)
        return result

    return step  # type: ignore[return-value]


def steps(function: F) -> F:
    """Wrap a ``step``: the closure records gradients, and nothing else does."""

    @functools.wraps(function)
    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        with no_grad():
            loss = None
            if closure is not None:
                with enable_grad():
                    loss = closure()
            function(self)
        return loss

    return step  # type: ignore[return-value]


class Optimizer:
    """The base of optimizers.

    Parameters
    ----------
    params
        Tensors, pairs of name and tensor, or dicts with ``"params"`` and options of that group.
    defaults
        Options of groups that do not say otherwise.

    Raises
    ------
    TypeError
        `params` is one tensor, or holds something else than tensors.
    ValueError
        There is none, one appears twice, or one is not a leaf.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "step" in vars(cls):
            cls.step = _counted(vars(cls)["step"])  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._step_pre_hooks: dict[int, Callable[..., Any]] = {}
        self._step_post_hooks: dict[int, Callable[..., Any]] = {}
        self._step_count = 0
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Parameters
        ----------
        param_group
            ``"params"``: a tensor or several, or pairs of name and tensor; and options.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections")
        params = list(given)
        if params and isinstance(params[0], tuple):
            param_group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        param_group["params"] = params
        self._check(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization "
                    f"parameter {name}"
                )
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def _check(self, params: list[Any]) -> None:
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param)}"
                )
            if not param.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(param) in known:
                raise ValueError("some parameters appear in more than one parameter group")
            known.add(id(param))

    # -- gradients ---------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients.

        Parameters
        ----------
        set_to_none
            False keeps the tensors and sets them to 0; graphs that were captured need that where
            they add to gradients.
        """
        kept: list[Tensor] = []
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                if set_to_none:
                    param.grad = None
                else:
                    kept.append(param.grad.detach())
        if kept:
            from flambeau.ops.foreach import FOREACH

            with no_grad():
                FOREACH["_foreach_zero_"](kept)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients.

        Parameters
        ----------
        closure
            Computes the loss anew, with gradients, and returns it.

        Returns
        -------
        object
            What the closure returned.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step."""
        return add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return add_hook(self._step_post_hooks, hook)

    # -- keeping -----------------------------------------------------------------------------------

    def _numbered(self) -> dict[int, int]:
        """The number of each parameter, by its identity."""
        every = chain.from_iterable(group["params"] for group in self.param_groups)
        return {id(param): number for number, param in enumerate(every)}

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later.

        Returns
        -------
        dict
            ``"state"`` by the number of a parameter, and ``"param_groups"`` with numbers in place
            of parameters. Tensors are the optimizer's own.
        """
        numbers = self._numbered()
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        groups = [
            {**group, "params": [numbers[id(param)] for param in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        Parameters
        ----------
        state_dict
            What `state_dict` gave. Its tensors are copied to the parameters' devices, those of
            floating-point parameters to their dtype.

        Raises
        ------
        ValueError
            The groups are not as many, or not of the sizes, that this optimizer has.
        """
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(
            len(own["params"]) != len(group["params"])
            for own, group in zip(self.param_groups, saved, strict=True)
        ):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        params = dict(
            zip(
                chain.from_iterable(group["params"] for group in saved),
                chain.from_iterable(group["params"] for group in self.param_groups),
                strict=True,
            )
        )
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            param = params.get(key)
            state[key if param is None else param] = (
                deepcopy(value) if param is None else self._fitted(param, value)
            )
        for own, group in zip(self.param_groups, saved, strict=True):
            options = {k: deepcopy(v) for k, v in group.items() if k != "params"}
            own.update(options)
        self.state = state

    def _fitted(self, param: Tensor, value: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter with tensors where and as they are needed."""
        fitted = {}
        for name, kept in value.items():
            if not isinstance(kept, Tensor):
                fitted[name] = deepcopy(kept)
            elif name == "step":
                fitted[name] = (
                    kept.clone()
                    if not self._step_on_device(param)
                    else kept.to(param.device, copy=True)
                )
            else:
                of = param.dtype if param.is_floating_point() else kept.dtype
                fitted[name] = kept.to(device=param.device, dtype=of, copy=True)
        return fitted

    def _step_on_device(self, param: Tensor) -> bool:
        for group in self.param_groups:
            if any(p is param for p in group["params"]):
                return bool(group.get("capturable") or group.get("fused"))
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
            "_step_count": self._step_count,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._step_pre_hooks, self._step_post_hooks = {}, {}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def check_lr(lr: float | Tensor) -> None:
    """Refuse a learning rate that is negative.

    Raises
    ------
    ValueError
        It is, or it is a tensor of several elements.
    """
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        return
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_forms(foreach: bool | None, fused: bool | None) -> None:
    """Refuse `foreach` and `fused` together."""
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
