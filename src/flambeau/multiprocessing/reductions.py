# SPDX-License-Identifier: Apache-2.0
"""What becomes of tensors, storages and events on their way through a queue or a pipe."""

from __future__ import annotations

from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _serialize, _sharing, _tensor
from flambeau.runtime._event import Event
from flambeau.runtime._storage import UntypedStorage
from flambeau.runtime.shared_memory import share_tensor
from flambeau.runtime.typed_storage import TypedStorage

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = [
    "init_reductions",
    "reduce_event",
    "reduce_storage",
    "reduce_tensor",
    "reduce_typed_storage",
]

Tensor = _tensor.Tensor


def init_reductions() -> None:
    """Let the pickler of `multiprocessing` share memory in place of copying it."""
    reduction.ForkingPickler.register(Tensor, reduce_tensor)
    reduction.ForkingPickler.register(UntypedStorage, reduce_storage)
    reduction.ForkingPickler.register(TypedStorage, reduce_typed_storage)
    reduction.ForkingPickler.register(Event, reduce_event)
    for parameter in _parameter_classes():
        reduction.ForkingPickler.register(parameter, reduce_tensor)


def _parameter_classes() -> list[type]:
    try:
        from flambeau.nn import Parameter
    except (ImportError, AttributeError):
        return []
    return [Parameter]


# --- tensors ------------------------------------------------------------------------------------


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor as what the receiver rebuilds it from.

    Raises
    ------
    RuntimeError
        It requires a gradient and is not a leaf, or it is another process's.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries. If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    storage = tensor.untyped_storage()
    if not tensor.is_cuda and not _sharing.is_shared(storage):
        storage = share_tensor(tensor).untyped_storage()
    return rebuild_tensor, (
        type(tensor),
        storage,
        tensor.dtype,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        dict(tensor.__dict__),
    )


def rebuild_tensor(
    cls: type[Tensor],
    storage: UntypedStorage,
    of: dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    attributes: dict[str, Any],
) -> Tensor:
    """A tensor over a storage that was received."""
    return _serialize.rebuild_tensor(
        cls, storage, of, offset, size, stride, requires_grad, attributes
    )


# --- storages -----------------------------------------------------------------------------------


def reduce_storage(storage: UntypedStorage) -> tuple[Any, ...]:
    """A storage as what the receiver rebuilds it from."""
    if storage.is_cuda:
        return _reduce_cuda(storage)
    if not _sharing.is_shared(storage):
        raise RuntimeError(
            "this host storage is not in shared memory, and its tensors cannot be moved from here. "
            "Send a tensor, or call Tensor.share_memory_() first"
        )
    descriptor = _sharing.descriptor_of(storage)
    if descriptor >= 0:
        return rebuild_storage_fd, (reduction.DupFd(descriptor), storage.nbytes())
    return rebuild_storage_filename, (_sharing.name_of(storage), storage.nbytes())


def rebuild_storage_fd(descriptor: Any, nbytes: int) -> UntypedStorage:
    """A storage over shared memory by its descriptor."""
    return _sharing.open_shared(descriptor.detach(), nbytes)


def rebuild_storage_filename(name: bytes, nbytes: int) -> UntypedStorage:
    """A storage over shared memory by its name."""
    return _sharing.open_shared(name, nbytes)


def _reduce_cuda(storage: UntypedStorage) -> tuple[Any, ...]:
    shared = _sharing.share_cuda(storage)
    descriptors = []
    handle = shared[1]
    if handle is not None and handle[1:2] == b"e":
        # Over a socket: taking descriptors from another process is often forbidden.
        descriptors = [reduction.DupFd(number) for number in _sharing.descriptor_numbers(handle)]
    return rebuild_storage_cuda, (shared, descriptors)


def rebuild_storage_cuda(shared: tuple[Any, ...], descriptors: list[Any]) -> UntypedStorage:
    """A storage over device memory of the process that sent it. Initialises CUDA."""
    from flambeau.runtime import lazy_init

    lazy_init.lazy_init()
    opened = [descriptor.detach() for descriptor in descriptors] or None
    return _sharing.new_shared_cuda(*(*shared, opened))


def reduce_typed_storage(storage: TypedStorage) -> tuple[Any, ...]:
    """A storage of elements as what the receiver rebuilds it from."""
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def rebuild_typed_storage(storage: UntypedStorage, of: dtype) -> TypedStorage:
    """A storage of elements over one of bytes."""
    return TypedStorage(wrap_storage=storage, dtype=of)


# --- events -------------------------------------------------------------------------------------


def reduce_event(event: Event) -> tuple[Any, ...]:
    """An event that was made with ``interprocess=True`` as what the receiver opens it from."""
    return rebuild_event, (str(event.device), event.ipc_handle())


def rebuild_event(device: str, handle: bytes) -> Event:
    """An event of another process."""
    from flambeau import cuda

    return cuda.Event.from_ipc_handle(device, handle)
