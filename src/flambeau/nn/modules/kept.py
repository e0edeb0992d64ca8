# SPDX-License-Identifier: Apache-2.0
"""How a module is kept: its ``state_dict``, and taking one back."""

from __future__ import annotations

import itertools
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any

from flambeau.nn.parameter import Parameter
from flambeau.ops.grad_mode import no_grad
from flambeau.runtime._autograd import add_hook
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flambeau.runtime._autograd import RemovableHandle

__all__ = ["Kept", "add"]

IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


class _KeysFound(IncompatibleKeys):
    """Names that a state dict lacked, and those that had no place."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


def add(hooks: dict[int, Any], hook: Any, prepend: bool) -> RemovableHandle:
    """Put a hook behind the others, or before them."""
    handle = add_hook(hooks, hook)
    if prepend:
        for key in [key for key in hooks if key != handle.id]:
            hooks[key] = hooks.pop(key)
    return handle


class Kept:
    """The part of `Module` that is about its `state_dict`."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _load_post_hooks: dict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """What else belongs in the `state_dict`; a subclass may define it."""
        raise NotImplementedError

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise NotImplementedError

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Kept.get_extra_state

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by their paths.

        Parameters
        ----------
        destination
            Where to put them; a new dict by default.
        prefix
            Put before each path.
        keep_vars
            Whether to give the tensors themselves, and not detached ones over their memory.
        """
        if args:  # as older programs call it
            destination, prefix, keep_vars = (*args, prefix, keep_vars)[:3]
        result: dict[str, Any] = OrderedDict() if destination is None else destination
        self._save_to_state_dict(result, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=result, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in list(self._state_dict_hooks.values()):
            changed = hook(self, result, prefix, {})
            if changed is not None:
                result = changed
        return result

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, tensor in self._persistent():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if self._has_extra_state():
            destination[prefix + "_extra_state"] = self.get_extra_state()

    def _persistent(self) -> Iterator[tuple[str, Tensor | None]]:
        skipped = self._non_persistent_buffers_set
        kept = ((name, b) for name, b in self._buffers.items() if name not in skipped)
        return itertools.chain(self._parameters.items(), kept)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, {})`` after `state_dict`."""
        return add(self._state_dict_hooks, hook, False)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after `load_state_dict`."""
        return add(self._load_post_hooks, hook, False)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Copy parameters and buffers from a `state_dict`.

        Parameters
        ----------
        state_dict
            Tensors by their paths.
        strict
            Whether names must match exactly.
        assign
            Whether to take the tensors themselves instead of copying their elements.

        Returns
        -------
        tuple
            ``missing_keys`` and ``unexpected_keys``.

        Raises
        ------
        RuntimeError
            A shape does not match, or with `strict` a name.
        """
        missing: list[str] = []
        known: set[str] = set()
        errors: list[str] = []
        with no_grad():
            self._load(state_dict, "", assign, missing, known, errors)
        unexpected = [key for key in state_dict if key not in known]
        found = _KeysFound(missing, unexpected)
        for module in self.modules():  # type: ignore[attr-defined]
            for hook in list(module._load_post_hooks.values()):
                hook(module, found)
        if strict:
            for what, keys in (("Unexpected", found[1]), ("Missing", found[0])):
                if keys:
                    names = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{what} key(s) in state_dict: {names}.")
        if errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                + "\n\t".join(errors)
            )
        return found

    def _load(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        assign: bool,
        missing: list[str],
        known: set[str],
        errors: list[str],
    ) -> None:
        for name, own in self._persistent():
            if own is None:
                continue
            key = prefix + name
            known.add(key)
            if key in state_dict:
                self._load_one(name, own, key, state_dict[key], assign, errors)
            else:
                missing.append(key)
        if self._has_extra_state():
            key = prefix + "_extra_state"
            known.add(key)
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            else:
                missing.append(key)
        for name, module in self._modules.items():
            if module is not None:
                module._load(state_dict, f"{prefix}{name}.", assign, missing, known, errors)

    def _load_one(
        self, name: str, own: Tensor, key: str, given: Any, assign: bool, errors: list[str]
    ) -> None:
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                f"object from checkpoint but received {type(given)}"
            )
            return
        if given.shape != own.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from "
                f"checkpoint, the shape in current model is {own.shape}."
            )
            return
        if not assign:
            own.copy_(given)
        elif isinstance(own, Parameter):
            if not isinstance(given, Parameter):
                given = Parameter(given, requires_grad=own.requires_grad)
            self._parameters[name] = given
        else:
            self._buffers[name] = given
