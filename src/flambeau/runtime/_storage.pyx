# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Memory as users see it: storages, and host tensors as buffers."""
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport malloc

from flambeau.runtime cimport _allocator, _dlpack, _dtype, _launch, _tensor
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._device cimport device_of
from flambeau.runtime._dtype cimport dtype_of, item_bytes, set_public_name
from flambeau.runtime._tensor cimport Tensor, adopt_storage

import sys

from flambeau.runtime import _dtype as _dtype_module
from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_type_slots.hpp" namespace "flambeau":
    int set_class_attribute(object cls, object name, object value) except -1


# struct-module formats by scalar type; types that it lacks have none.
cdef tuple _FORMATS = (b"?", b"B", b"b", b"h", b"i", b"q", b"H", b"I", b"Q", b"e", None, b"f", b"d",
                       None, b"Zf", b"Zd", None, None, None, None)


cdef int _fill_buffer(Tensor t, Py_buffer* view, int flags) except -1:
    cdef int item = item_bytes[t.scalar_type]
    cdef bytes form = _FORMATS[t.scalar_type]
    cdef int i
    if t.device_index >= 0:
        raise BufferError(f"{device_of(t.device_index)} memory has no host buffer; copy it with Tensor.cpu()")
    if form is None:
        raise BufferError(f"torch.{dtype_of(t.scalar_type).name} has no buffer format; "
                          "use Tensor.view(torch.uint8) or another integer type of its size")
    if _launch.observed:
        from flambeau.runtime import observers
        observers.notify("host_access", "host buffer", (t,), ())
    view.shape = <Py_ssize_t*>malloc((2 * t.ndim_ + 1) * sizeof(Py_ssize_t))
    if view.shape == NULL:
        raise MemoryError
    view.strides = view.shape + t.ndim_
    for i in range(t.ndim_):
        view.shape[i] = t.sizes[i]
        view.strides[i] = t.strides[i] * item
    view.buf = t.data if t.data != NULL else <char*>view.shape
    view.obj = t
    view.len = t.count * item
    view.itemsize = item
    view.readonly = _dlpack.is_read_only(t.storage)
    view.ndim = t.ndim_
    view.format = <char*>form if flags & PyBUF_FORMAT else NULL
    view.suboffsets = NULL
    view.internal = t.storage           # kept alive: the tensor may get other memory meanwhile
    if t.storage != NULL:
        t.storage.retain()
    return 0


cdef UntypedStorage storage_of(Tensor t):
    cdef UntypedStorage face = UntypedStorage.__new__(UntypedStorage)
    if t.storage == NULL:   # an empty tensor: an empty storage, kept so that asking twice agrees
        t.storage = _allocator.allocate_host(0)
        t.storage.device = t.device_index
        t.data = NULL
    t.storage.retain()
    face.storage = t.storage
    return face


cdef Tensor _new_bytes(object contents, object device):
    from flambeau.runtime import _factory
    dtype = _dtype_module.dtype_named("uint8")
    if isinstance(contents, int) and not isinstance(contents, bool):
        if contents < 0:
            raise RuntimeError(f"a storage has at least 0 bytes, got a negative number: {contents}")
        return _factory.empty(contents, dtype=dtype, device=device)
    try:
        values = list(contents)
    except TypeError:
        raise RuntimeError(
            "torch.UntypedStorage(): Expected a sequence type or a number of bytes, but got "
            f"{type(contents).__name__}") from None
    for value in values:
        if not isinstance(value, int):
            raise RuntimeError(
                f"torch.UntypedStorage(): tried to construct a storage from a sequence "
                f"({type(contents).__name__}), but one of the items was of type "
                f"{type(value).__name__} instead of int")
    made = _factory.empty(len(values), dtype=dtype, device=device)
    if values:
        made.copy_(_factory.from_sequence([value & 0xFF for value in values], dtype))
    return made


cdef class UntypedStorage:
    """The bytes behind one or more tensors, as ``Tensor.untyped_storage()`` gives them, or new bytes.

    Parameters
    ----------
    contents
        How many bytes, which are not cleared; or a sequence of integers, of which each gives its
        lowest byte.
    device
        Where; the default device if left out.

    Raises
    ------
    RuntimeError
        `contents` is negative, or neither an int nor a sequence of integers.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.UntypedStorage(8, device="cuda").nbytes()
    8
    """

    def __init__(self, contents=0, *, device=None):
        cdef Storage* before = self.storage
        cdef UntypedStorage made = storage_of(_new_bytes(contents, device))
        made.storage.retain()
        self.storage = made.storage
        if before != NULL:
            before.drop()

    def __dealloc__(self):
        if self.storage != NULL:
            self.storage.drop()

    def data_ptr(self):
        """The address of the first byte."""
        return <uintptr_t>self.storage.data

    def nbytes(self):
        """How many bytes."""
        return self.storage.bytes

    def size(self):
        """How many bytes."""
        return self.storage.bytes

    def __len__(self):
        return self.storage.bytes

    @property
    def device(self):
        """Where the memory is."""
        return device_of(self.storage.device)

    @property
    def is_cuda(self):
        """Whether the memory is a CUDA device's."""
        return self.storage.device >= 0

    def get_device(self):
        """The CUDA device's index; -1 for host memory."""
        return self.storage.device

    def is_pinned(self, device=None):
        """Whether a device can reach this host memory directly."""
        if self.storage.device >= 0 or self.storage.data == NULL:
            return False
        return self.storage.pinned or _allocator.is_pinned_address(self.storage.data)

    def is_shared(self):
        """Whether other processes can map this memory; device memory always."""
        if self.storage.device >= 0:
            return True
        from flambeau.runtime import _sharing
        return _sharing.is_shared(self)

    def share_memory_(self):
        """This storage, if other processes can map it; host memory moves with its tensor only."""
        if not self.is_shared():
            raise RuntimeError(
                "a host storage cannot be moved into shared memory, because its tensors would stay "
                "behind: call share_memory_() on the tensor")
        return self

    def _share_cuda_(self):
        """What another process needs to hold this device memory too."""
        from flambeau.runtime import _sharing
        return _sharing.share_cuda(self)

    @staticmethod
    def _new_shared(size, *, device="cpu"):
        """A storage in memory that other processes can map."""
        from flambeau.runtime import _factory, shared_memory
        if str(device) == "cpu":
            return shared_memory.new_shared(size)
        return _factory.new_empty((size,), _dtype_module.dtype_named("uint8"), device=device).untyped_storage()

    @staticmethod
    def _new_shared_cuda(*shared):
        """A storage over device memory of another process, from what `_share_cuda_` gave there."""
        from flambeau.runtime import _sharing
        return _sharing.new_shared_cuda(*shared)

    @staticmethod
    def _release_ipc_counter(counters, slot, device=None):
        """Say that what was sent under this counter is not needed."""
        from flambeau.runtime import _sharing
        _sharing.release_ipc_counter(counters, slot, device)

    _release_ipc_counter_cuda = _release_ipc_counter

    def resizable(self):
        """Whether this memory may be replaced by a block of another size."""
        return self.storage.resizable

    def element_size(self):
        """Always 1: a storage counts bytes."""
        return 1

    @property
    def _cdata(self):
        return <uintptr_t><void*>self.storage

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self.storage == (<UntypedStorage>other).storage

    def __hash__(self):
        return <Py_hash_t>(<uintptr_t>self.storage >> 4)

    def _bytes(self):
        """All bytes as a uint8 tensor over this memory."""
        cdef int64_t[1] sizes
        sizes[0] = <int64_t>self.storage.bytes
        self.storage.retain()
        return adopt_storage(self.storage, self.storage.data, _dtype.UInt8, 1, sizes, NULL)

    def __getitem__(self, index):
        found = self._bytes()[index]
        return found.item() if isinstance(index, int) else found.untyped_storage()

    def __setitem__(self, index, value):
        self._bytes()[index] = value

    def tolist(self):
        """The bytes as a list of ints."""
        return self._bytes().tolist()

    def copy_(self, UntypedStorage source not None, non_blocking=False):
        """Copy all bytes of a storage of the same size into this one, and return it."""
        self._bytes().copy_(source._bytes(), non_blocking)
        return self

    def fill_(self, value):
        """Set every byte, and return this storage."""
        self._bytes().fill_(value)
        return self

    def clone(self):
        """A copy of the bytes, on the same device."""
        return self._bytes().clone().untyped_storage()

    def cpu(self):
        """The storage if it is the host's, else a copy there."""
        return self._bytes().cpu().untyped_storage()

    def cuda(self, device=None, non_blocking=False):
        """The storage if it is on that CUDA device, else a copy there."""
        return self._bytes().cuda(device, non_blocking).untyped_storage()

    def __repr__(self):
        return f"<UntypedStorage of {self.storage.bytes} bytes on {device_of(self.storage.device)}>"


def install_methods(dict table):
    """Add methods to `UntypedStorage`, by name."""
    for name, value in table.items():
        set_class_attribute(UntypedStorage, name, value)


def untyped_storage(Tensor self):
    """The memory behind this tensor and its views, as bytes."""
    return storage_of(self)


def storage(Tensor self):
    """The memory behind this tensor and its views, as elements of its dtype."""
    from flambeau.runtime.typed_storage import TypedStorage
    return TypedStorage(wrap_storage=storage_of(self), dtype=dtype_of(self.scalar_type))


def share_memory_(Tensor self):
    """This tensor, in memory that other processes can map.

    Device memory can be shared as it is. Host memory is copied; views made before stay behind.
    """
    if self.device_index >= 0:
        return self
    from flambeau.runtime import shared_memory
    return shared_memory.share_tensor(self)


def is_shared(Tensor self):
    """Whether other processes can map this tensor's memory; device memory always."""
    return storage_of(self).is_shared()


_tensor.fill_buffer = _fill_buffer
_tensor_module.install_methods({"untyped_storage": untyped_storage, "storage": storage, "share_memory_": share_memory_,
     "is_shared": is_shared})
_tensor_module.UntypedStorage = UntypedStorage
set_public_name(UntypedStorage, b"flambeau.UntypedStorage")


def _reduce_for_process(Tensor tensor):
    from flambeau.multiprocessing.reductions import reduce_tensor
    return reduce_tensor(tensor)


def _reduce_storage_for_process(UntypedStorage storage):
    from flambeau.multiprocessing.reductions import reduce_storage
    return reduce_storage(storage)


# A child of `multiprocessing` sends tensors as its parent does, whatever it imports itself.
_reduction = sys.modules.get("multiprocessing.reduction")
if _reduction is not None:
    _reduction.ForkingPickler.register(Tensor, _reduce_for_process)
    _reduction.ForkingPickler.register(UntypedStorage, _reduce_storage_for_process)
