# SPDX-License-Identifier: Apache-2.0
"""The backward graph: nodes, hooks of saved tensors, streams of nodes from before a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.runtime._autograd import (
    Node,
    RemovableHandle,
    gradient_edge,
    pop_saved_tensor_hooks,
    push_saved_tensor_hooks,
)
from flambeau.runtime._autograd_engine import set_override_stale_capture_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "GradientEdge",
    "Node",
    "get_gradient_edge",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_override_stale_capture_stream",
]


class GradientEdge(NamedTuple):
    """Where a tensor's gradient goes."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor that requires grad goes.

    Raises
    ------
    RuntimeError
        It does not require grad.
    """
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*gradient_edge(tensor))


class saved_tensors_hooks:  # noqa: N801 - torch's name
    """Have tensors that are kept for the backward pass go through two functions.

    Parameters
    ----------
    pack_hook
        Gets the tensor when it is kept and gives what to keep instead.
    unpack_hook
        Gets that and gives the tensor, when the backward pass needs it.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        push_saved_tensor_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exception: object) -> None:
        pop_saved_tensor_hooks()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Keep tensors for the backward pass in host memory.

    Parameters
    ----------
    pin_memory
        Whether in pinned memory, so that copies are asynchronous.
    device_type
        Accepted; tensors come back to where they were.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            if not tensor.is_cuda:
                return tensor.device, tensor
            kept = tensor.cpu()
            return tensor.device, kept.pin_memory() if pin_memory else kept

        def unpack(packed: Any) -> Tensor:
            device, tensor = packed
            found: Tensor = tensor.to(device, non_blocking=pin_memory)
            return found

        super().__init__(pack, unpack)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Have a function called once the gradients of several tensors are there.

    Parameters
    ----------
    tensors
        Tensors that require grad.
    fn
        With ``mode="all"`` it gets the list of all gradients, after the last; with ``"any"`` the
        first one.
    mode
        ``"all"`` or ``"any"``.
    """
    if mode not in {"all", "any"}:
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode!r}")
    found: list[Any] = [None] * len(tensors)
    seen = 0

    def hook_of(number: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            nonlocal seen
            found[number] = grad
            seen += 1
            if mode == "any":
                if seen == 1:
                    fn(grad)
            elif seen == len(tensors):
                fn(list(found))
            if seen == len(tensors):
                seen = 0
                found[:] = [None] * len(tensors)

        return hook

    handles = {k: tensor.register_hook(hook_of(k)) for k, tensor in enumerate(tensors)}
    return _Handles(handles)


class _Handles(RemovableHandle):
    """Takes several hooks away."""

    def __init__(self, handles: dict[int, RemovableHandle]) -> None:
        super().__init__({})
        self._handles = handles

    def remove(self) -> None:
        """Take all of them away."""
        for handle in self._handles.values():
            handle.remove()
