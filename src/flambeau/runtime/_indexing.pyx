# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""``t[...]``: ints, slices, None, Ellipsis and bools here; tensors and lists go to the ops' hook."""
from cpython.slice cimport PySlice_AdjustIndices, PySlice_Unpack
from libc.stdint cimport int64_t

from flambeau.runtime cimport _tensor
from flambeau.runtime._autograd cimport grad_state, tracked
from flambeau.runtime._tensor cimport (
    MAX_DIMS, SLOT_GETITEM, SLOT_SETITEM, Tensor, new_view, operators)


# A view in the making: the dimension of the source that comes next, and what is decided.
cdef struct Walk:
    int source
    int ndim
    int64_t offset
    int64_t[64] sizes
    int64_t[64] strides


cdef int _take_index(Tensor t, Walk* w, int64_t index) except -1:
    cdef int64_t size
    if t.ndim_ == 0:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number")
    if w.source >= t.ndim_:
        raise IndexError(f"too many indices for tensor of dimension {t.ndim_}")
    size = t.sizes[w.source]
    if index < -size or index >= size:
        raise IndexError(f"index {index} is out of bounds for dimension {w.source} with size {size}")
    w.offset += (index + size if index < 0 else index) * t.strides[w.source]
    w.source += 1
    return 0


cdef int _take_slice(Tensor t, Walk* w, object part) except -1:
    cdef Py_ssize_t start, stop, step, length
    if w.source >= t.ndim_:
        if t.ndim_ == 0:
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        raise IndexError(f"too many indices for tensor of dimension {t.ndim_}")
    PySlice_Unpack(part, &start, &stop, &step)
    if step <= 0:
        raise ValueError(f"step must be greater than zero, got {step}; flip the dimension instead")
    length = PySlice_AdjustIndices(t.sizes[w.source], &start, &stop, step)
    w.offset += start * t.strides[w.source] if length else 0
    _emit(w, length, t.strides[w.source] * step)
    w.source += 1
    return 0


cdef int _emit(Walk* w, int64_t size, int64_t stride) except -1:
    if w.ndim == MAX_DIMS:
        raise IndexError(f"a tensor has at most {MAX_DIMS} dimensions")
    w.sizes[w.ndim] = size
    w.strides[w.ndim] = stride
    w.ndim += 1
    return 0


cdef int _take_rest(Tensor t, Walk* w, int stop) except -1:
    while w.source < stop:
        _emit(w, t.sizes[w.source], t.strides[w.source])
        w.source += 1
    return 0


cdef int _take(Tensor t, Walk* w, object part) except -1:
    """Apply one part of an index; 0 if it is none of the basic kinds."""
    if type(part) is int:
        _take_index(t, w, part)
    elif type(part) is slice:
        _take_slice(t, w, part)
    elif part is None:
        _emit(w, 1, 0 if w.source >= t.ndim_ else t.sizes[w.source] * t.strides[w.source])
    elif part is True or part is False:
        _emit(w, 1 if part is True else 0, 0)
    elif isinstance(part, Tensor) or isinstance(part, (list, tuple)) or hasattr(part, "__array__"):
        return _take_scalar_tensor(t, w, part)
    elif isinstance(part, (float, str, bytes, complex)) or not hasattr(part, "__index__"):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
            f"indices (got {type(part).__name__})")
    else:
        _take_index(t, w, part.__index__())
    return 1


cdef int _take_scalar_tensor(Tensor t, Walk* w, object part) except -1:
    """A host integer without dimensions is an index like an int; every other array is advanced."""
    if isinstance(part, Tensor):
        if (<Tensor>part).ndim_ == 0 and (<Tensor>part).device_index < 0 and not part.is_floating_point():
            if part.dtype.name == "bool":
                return 0
            _take_index(t, w, part.item())
            return 1
        return 0
    if getattr(part, "ndim", None) == 0 and hasattr(part, "__index__"):
        _take_index(t, w, part.__index__())
        return 1
    return 0


cdef int _consumed(object part) except -1:
    """How many dimensions a part of a basic index uses up."""
    return 0 if part is None or part is Ellipsis or part is True or part is False else 1


cdef Tensor _basic(Tensor t, object index):
    """The view that a basic index means, or None if the index is advanced."""
    cdef Walk w
    cdef int uses                       # dimensions that the parts not yet seen use up
    cdef bint expanded = False
    w.source = 0
    w.ndim = 0
    w.offset = 0
    if type(index) is not tuple:
        if index is Ellipsis:
            return new_view(t, 0, t.ndim_, t.sizes, t.strides)
        if not _take(t, &w, index):
            return None
    else:
        uses = 0
        for part in <tuple>index:
            uses += _consumed(part)
        for part in <tuple>index:
            if part is Ellipsis:
                if not expanded:
                    _take_rest(t, &w, t.ndim_ - uses)
                expanded = True
                continue
            if not _take(t, &w, part):
                return None
            uses -= _consumed(part)
    _take_rest(t, &w, t.ndim_)
    return new_view(t, w.offset, w.ndim, w.sizes, w.strides)


cdef object _recorded_get = None
cdef object _recorded_set = None


def install_recorded(get, set):
    """Have items of tensors that take part in gradients got and set through these."""
    global _recorded_get, _recorded_set
    _recorded_get, _recorded_set = get, set


def getitem(Tensor self not None, index):
    """``self[index]``, not recorded."""
    return _item(self, index)


def setitem(Tensor self not None, index, value):
    """``self[index] = value``, not recorded."""
    _store(self, index, value)


cdef object _get_item(Tensor t, object index):
    if t.extra is not None and grad_state().grad and tracked(t):
        return _recorded_get(t, index)
    return _item(t, index)


cdef object _item(Tensor t, object index):
    cdef Tensor made = _basic(t, index)
    if made is not None:
        return made
    hook = operators[SLOT_GETITEM]
    if hook is None:
        raise NotImplementedError("indexing with tensors or lists needs the operations that import flambeau installs")
    return hook(t, index)


cdef int _set_item(Tensor t, object index, object value) except -1:
    cdef Tensor part
    if grad_state().grad and (t.extra is not None or isinstance(value, Tensor) and (<Tensor>value).extra is not None):
        part = _basic(t, index)
        if part is None:
            _recorded_set(t, index, value)
        else:
            part._assign(value)
        return 0
    return _store(t, index, value)


cdef int _store(Tensor t, object index, object value) except -1:
    cdef Tensor part = _basic(t, index)
    if part is not None:
        part._assign(value)
        return 0
    hook = operators[SLOT_SETITEM]
    if hook is None:
        raise NotImplementedError("indexing with tensors or lists needs the operations that import flambeau installs")
    hook(t, index, value)
    return 0


_tensor.get_item = _get_item
_tensor.set_item = _set_item
