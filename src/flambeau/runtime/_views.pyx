# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Methods that give views: the same memory with other sizes and strides."""
from cpython.long cimport PyLong_AsLongLong, PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from flambeau.runtime cimport _dtype
from flambeau.runtime._dtype cimport dtype, item_bytes, legacy_name
from flambeau.runtime._dims cimport (
    contiguous_strides, parse_sizes, parse_varargs, shape_text, wrap_dim)
from flambeau.runtime._tensor cimport MAX_DIMS, Tensor, base_of, new_view, set_dims

from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_recorded.hpp" namespace "flambeau":
    object short_answer_capsule(void* answer)

ctypedef object (*ShortAnswer)(PyObject* op, PyObject** operands, Py_ssize_t count)

cdef extern from *:
    bint __builtin_mul_overflow(int64_t a, int64_t b, int64_t* product) nogil
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* sum) nogil


# -- other sizes -----------------------------------------------------------------------------------

cdef bint view_strides(Tensor t, int ndim, const int64_t* sizes, int64_t* strides) noexcept:
    """Walk both shapes from the innermost dimension; a run of old dimensions that continue each
    other in memory may be cut anew, but a new dimension may not span two runs."""
    cdef int new = ndim - 1, old
    cdef int64_t run_step, run_count = 1, filled = 1
    if t.contiguous:
        contiguous_strides(ndim, sizes, strides)
        return True
    if t.ndim_ == 0:
        for old in range(ndim):
            strides[old] = 1
        return True
    run_step = t.strides[t.ndim_ - 1]
    for old in range(t.ndim_ - 1, -1, -1):
        run_count *= t.sizes[old]
        if old == 0 or (t.sizes[old - 1] != 1 and t.strides[old - 1] != run_count * run_step):
            while new >= 0 and (filled < run_count or sizes[new] == 1):
                strides[new] = filled * run_step
                filled *= sizes[new]
                new -= 1
            if filled != run_count:
                return False
            if old > 0:
                run_step = t.strides[old - 1]
                run_count = 1
                filled = 1
    return new == -1


cdef int _infer_sizes(Tensor t, int ndim, int64_t* sizes) except -1:
    """Put a number for -1, and check that the sizes hold as many elements as the tensor."""
    cdef int64_t known = 1
    cdef int i, unknown = -1
    for i in range(ndim):
        if sizes[i] == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif sizes[i] < 0:
            raise RuntimeError(f"invalid shape dimension {sizes[i]} at index {i} of shape {shape_text(ndim, sizes)}")
        else:
            known *= sizes[i]
    if unknown >= 0:
        if known == 0:
            if t.count == 0:
                raise RuntimeError(
                    f"cannot reshape tensor of 0 elements into shape {shape_text(ndim, sizes)} because the "
                    "unspecified dimension size -1 can be any value and is ambiguous")
        elif t.count % known == 0:
            sizes[unknown] = t.count // known
            return 0
    elif known == t.count:
        return 0
    raise RuntimeError(f"shape '{shape_text(ndim, sizes)}' is invalid for input of size {t.count}")


cdef Tensor _viewed(Tensor t, int ndim, int64_t* sizes, bint must):
    """The view with these sizes (-1 allowed); if there is none, None unless it must be."""
    cdef int64_t[64] strides
    _infer_sizes(t, ndim, sizes)
    if view_strides(t, ndim, sizes, strides):
        return new_view(t, 0, ndim, sizes, strides)
    if must:
        raise RuntimeError(
            f"view size is not compatible with input tensor's size and stride: {shape_text(ndim, sizes)} of a "
            f"tensor of sizes {shape_text(t.ndim_, t.sizes)} and strides {shape_text(t.ndim_, t.strides)} would "
            "span two contiguous subspaces. Use .reshape(...) instead.")
    return None


cdef Tensor _view_as_dtype(Tensor t, dtype to):
    """The same bytes as elements of another type."""
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int before = item_bytes[t.scalar_type], after = to.itemsize, last = t.ndim_ - 1, i
    cdef int64_t ratio
    cdef Tensor made
    for i in range(t.ndim_):
        sizes[i], strides[i] = t.sizes[i], t.strides[i]
    if before != after:
        if last < 0:
            raise RuntimeError(
                "self.dim() cannot be 0 to view "
                f"{legacy_name(t.scalar_type)} as {legacy_name(to.code)} (different element sizes)")
        if strides[last] != 1:
            raise RuntimeError(
                f"self.stride(-1) must be 1 to view {legacy_name(t.scalar_type)} as {legacy_name(to.code)} "
                f"(different element sizes), but got {strides[last]}")
    if before > after:
        ratio = before // after
        sizes[last] *= ratio
        for i in range(last):
            strides[i] *= ratio
    elif before < after:
        ratio = after // before
        if sizes[last] % ratio:
            raise RuntimeError(
                f"self.size(-1) must be divisible by {ratio} to view {legacy_name(t.scalar_type)} as "
                f"{legacy_name(to.code)} (different element sizes), but got {sizes[last]}")
        if t.storage != NULL and (t.data - t.storage.data) % after:
            raise RuntimeError(
                f"self.storage_offset() must be divisible by {ratio} to view {legacy_name(t.scalar_type)} as "
                f"{legacy_name(to.code)} (different element sizes), but got {t.storage_offset()}")
        for i in range(last):
            if strides[i] % ratio:
                raise RuntimeError(
                    f"self.stride({i}) must be divisible by {ratio} to view {legacy_name(t.scalar_type)} as "
                    f"{legacy_name(to.code)} (different element sizes), but got {strides[i]}")
            strides[i] //= ratio
        sizes[last] //= ratio
    made = new_view(t, 0, t.ndim_, sizes, strides)
    made.scalar_type = to.code
    return made


cdef int _append(object value, int64_t* sizes, int n) except -1:
    if value is None:
        return n
    sizes[n] = value
    return n + 1


def view(Tensor self, size=None, size1=None, size2=None, size3=None, size4=None, size5=None, size6=None,
         size7=None, size8=None, size9=None, *, dtype=None):
    """The same memory with another shape or element type.

    Parameters
    ----------
    size, size1, …
        The sizes, one of which may be -1: ``view(2, -1)`` or ``view((2, -1))``; or one dtype.

    Raises
    ------
    RuntimeError
        The sizes hold another number of elements, or strides cannot express them.
    """
    cdef int64_t[64] sizes
    cdef int n
    if dtype is not None:
        return _view_as_dtype(self, dtype)
    if size1 is None:
        if isinstance(size, _dtype.dtype):
            return _view_as_dtype(self, size)
        if size is None:
            return _viewed(self, 0, sizes, True)
        return _viewed(self, parse_sizes(size, sizes), sizes, True)
    n = _append(size2, sizes, _append(size1, sizes, _append(size, sizes, 0)))
    if n == 3:
        for extent in (size3, size4, size5, size6, size7, size8, size9):
            n = _append(extent, sizes, n)
    return _viewed(self, n, sizes, True)


def reshape(Tensor self, *shape):
    """Another shape: a view where strides allow it, else a copy."""
    cdef int64_t[64] sizes
    cdef int ndim = parse_varargs(shape, sizes)
    cdef Tensor made
    made = _viewed(self, ndim, sizes, False)
    if made is None:
        return _viewed((<object>self).contiguous(), ndim, sizes, True)
    return made


cdef int _plain_sizes(PyObject** operands, Py_ssize_t count, int64_t* sizes) except -2:
    """The sizes after a tensor, all of them ints; their number, or -1 if that is not what was given."""
    cdef Py_ssize_t i
    if count < 2 or count > 64 or type(<object>operands[0]) is not Tensor:
        return -1
    for i in range(1, count):
        if not PyLong_CheckExact(<object>operands[i]):
            return -1
        sizes[i - 1] = PyLong_AsLongLong(<object>operands[i])
    return <int>(count - 1)


cdef object _answer_view(PyObject* op, PyObject** operands, Py_ssize_t count):
    cdef int64_t[64] sizes
    cdef int n = _plain_sizes(operands, count, sizes)
    return NotImplemented if n < 0 else _viewed(<Tensor>operands[0], n, sizes, True)


cdef object _answer_reshape(PyObject* op, PyObject** operands, Py_ssize_t count):
    cdef int64_t[64] sizes
    cdef int n = _plain_sizes(operands, count, sizes)
    if n < 0:
        return NotImplemented
    made = _viewed(<Tensor>operands[0], n, sizes, False)
    return NotImplemented if made is None else made


def short_answers():
    return {"view": (None, short_answer_capsule(<void*><ShortAnswer>_answer_view)),
            "reshape": (None, short_answer_capsule(<void*><ShortAnswer>_answer_reshape))}


def view_as(Tensor self, Tensor other not None):
    """A view with the shape of another tensor."""
    cdef int64_t[64] sizes
    for i in range(other.ndim_):
        sizes[i] = other.sizes[i]
    return _viewed(self, other.ndim_, sizes, True)


def reshape_as(Tensor self, Tensor other not None):
    """`reshape` to the shape of another tensor."""
    return reshape(self, other.shape)


def flatten(Tensor self, start_dim=0, end_dim=-1):
    """Dimensions `start_dim` to `end_dim` as one; a view where strides allow it, else a copy."""
    cdef int first = wrap_dim(start_dim, self.ndim_), last = wrap_dim(end_dim, self.ndim_)
    cdef int64_t merged = 1
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if self.ndim_ == 0:
        return reshape(self, 1)
    if first == last:
        return self
    shape = [self.sizes[i] for i in range(self.ndim_)]
    for i in range(first, last + 1):
        merged *= self.sizes[i]
    return reshape(self, shape[:first] + [merged] + shape[last + 1:])


def ravel(Tensor self):
    """All elements in one dimension; a view of a contiguous tensor, else a copy."""
    return reshape(self, -1)


def unflatten(Tensor self, dim, sizes):
    """One dimension as several, of which one size may be -1."""
    cdef int where = wrap_dim(dim, self.ndim_)
    shape = [self.sizes[i] for i in range(self.ndim_)]
    parts = list(sizes)
    known = 1
    for size in parts:
        known *= size if size != -1 else 1
    inferred = parts.count(-1) == 1
    if not parts or known == 0 and shape[where] or (shape[where] % known if inferred else known != shape[where]):
        raise RuntimeError(
            f"unflatten: Provided sizes {parts} don't multiply up to the size of dim {where} ({shape[where]}) "
            "in the input tensor")
    if inferred and known:
        parts[parts.index(-1)] = shape[where] // known
    return view(self, shape[:where] + parts + shape[where + 1:])


def as_strided(Tensor self, size, stride, storage_offset=None):
    """A view with these sizes, strides and offset into the storage, all in elements."""
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int ndim = parse_sizes(size, sizes), item = item_bytes[self.scalar_type], i
    cdef int64_t offset = self.storage_offset() if storage_offset is None else storage_offset
    cdef bint empty = False, beyond = False
    cdef int64_t reach = 1, step = 0
    cdef int64_t held = 0 if self.storage == NULL else <int64_t>self.storage.bytes
    if parse_sizes(stride, strides) != ndim:
        raise RuntimeError("mismatch in length of strides and shape")
    for i in range(ndim):
        if strides[i] < 0:
            raise RuntimeError(
                "as_strided: Negative strides are not supported at the moment, got strides: "
                f"{shape_text(ndim, strides)}")
        empty |= sizes[i] == 0
        beyond |= __builtin_mul_overflow(sizes[i] - 1, strides[i], &step)
        beyond |= __builtin_add_overflow(reach, step, &reach)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    beyond |= __builtin_add_overflow(reach, offset, &reach)
    if not empty and (beyond or reach > held or reach * item > held):
        raise RuntimeError(
            f"setStorage: sizes {shape_text(ndim, sizes)}, strides {shape_text(ndim, strides)}, storage offset "
            f"{offset}, and itemsize {item} requiring a storage size of "
            f"{'more than 64 bits can count' if beyond else item * <object>reach} are out of bounds for storage of "
            f"size {held}")
    return new_view(self, offset - <int64_t>self.storage_offset(), ndim, sizes, strides)


# -- other orders ----------------------------------------------------------------------------------

cdef Tensor transpose_dims(Tensor t, int a, int b):
    cdef Tensor made
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int i
    for i in range(t.ndim_):
        sizes[i], strides[i] = t.sizes[i], t.strides[i]
    if t.ndim_:
        sizes[a], sizes[b] = sizes[b], sizes[a]
        strides[a], strides[b] = strides[b], strides[a]
    return new_view(t, 0, t.ndim_, sizes, strides)


cdef Tensor _permuted(Tensor t, int* order):
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int i
    for i in range(t.ndim_):
        sizes[i], strides[i] = t.sizes[order[i]], t.strides[order[i]]
    return new_view(t, 0, t.ndim_, sizes, strides)


def transpose(Tensor self, dim0, dim1):
    """Two dimensions exchanged."""
    return transpose_dims(self, wrap_dim(dim0, self.ndim_), wrap_dim(dim1, self.ndim_))


def t(Tensor self):
    """A matrix transposed; a tensor with fewer dimensions as it is."""
    if self.ndim_ > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {self.ndim_}D")
    return transpose_dims(self, 0, self.ndim_ - 1 if self.ndim_ else 0)


def _reversed_dims(Tensor self):
    """All dimensions in reverse order."""
    cdef int[64] order
    for i in range(self.ndim_):
        order[i] = self.ndim_ - 1 - i
    return _permuted(self, order)


def _matrix_transposed(Tensor self):
    """The last two dimensions exchanged."""
    if self.ndim_ < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim_}-D tensor.")
    return transpose_dims(self, self.ndim_ - 2, self.ndim_ - 1)


def permute(Tensor self, *dims):
    """The dimensions in another order: ``permute(2, 0, 1)``."""
    cdef int64_t[64] wanted
    cdef int[64] order
    cdef int i, j, n = parse_varargs(dims, wanted)
    if n != self.ndim_:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {self.ndim_} is not equal to len(dims) = {n}")
    for i in range(n):
        order[i] = wrap_dim(wanted[i], n)
        for j in range(i):
            if order[j] == order[i]:
                raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _permuted(self, order)


def movedim(Tensor self, source, destination):
    """Dimensions moved to other places; the others keep their order."""
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({sources} dims) should contain the same "
            f"number of dims as destination ({targets} dims)")
    wrapped_sources = [wrap_dim(dim, self.ndim_) for dim in sources]
    wrapped_targets = [wrap_dim(dim, self.ndim_) for dim in targets]
    for name, dims, given in (("source", wrapped_sources, sources), ("destination", wrapped_targets, targets)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({given})")
    rest = [dim for dim in range(self.ndim_) if dim not in wrapped_sources]
    moved = dict(zip(wrapped_targets, wrapped_sources))
    return permute(self, *[moved[dim] if dim in moved else rest.pop(0) for dim in range(self.ndim_)])


def squeeze(Tensor self, dim=None):
    """Without the dimensions of size 1, or without those of `dim` that have size 1."""
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int i, n = 0
    chosen = None
    if dim is not None:
        chosen = {wrap_dim(d, self.ndim_) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))}
    for i in range(self.ndim_):
        if self.sizes[i] == 1 and (chosen is None or i in chosen):
            continue
        sizes[n], strides[n] = self.sizes[i], self.strides[i]
        n += 1
    return new_view(self, 0, n, sizes, strides)


def unsqueeze(Tensor self, dim):
    """With a new dimension of size 1."""
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int i, where = wrap_dim(dim, self.ndim_ + 1)
    if self.ndim_ == MAX_DIMS:
        raise RuntimeError(f"a tensor has at most {MAX_DIMS} dimensions")
    for i in range(where):
        sizes[i], strides[i] = self.sizes[i], self.strides[i]
    sizes[where] = 1
    strides[where] = self.sizes[where] * self.strides[where] if where < self.ndim_ else 1
    for i in range(where, self.ndim_):
        sizes[i + 1], strides[i + 1] = self.sizes[i], self.strides[i]
    return new_view(self, 0, self.ndim_ + 1, sizes, strides)


cdef Tensor expand_to(Tensor t, int ndim, const int64_t* sizes):
    cdef int64_t[64] target
    cdef int64_t[64] strides
    cdef int i, d, shift = ndim - t.ndim_
    if shift < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({ndim}) must be greater or equal to the number of "
            f"dimensions in the tensor ({t.ndim_})")
    for d in range(ndim):
        i = d - shift
        target[d] = sizes[d]
        if i < 0:
            if sizes[d] < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({sizes[d]}) isn't allowed in a leading, non-existing "
                    f"dimension {d}")
            strides[d] = 0
        elif sizes[d] == -1 or sizes[d] == t.sizes[i]:
            target[d] = t.sizes[i]
            strides[d] = t.strides[i]
        elif t.sizes[i] == 1:
            strides[d] = 0
        else:
            raise RuntimeError(
                f"The expanded size of the tensor ({sizes[d]}) must match the existing size ({t.sizes[i]}) at "
                f"non-singleton dimension {d}.  Target sizes: {shape_text(ndim, sizes)}.  Tensor sizes: "
                f"{shape_text(t.ndim_, t.sizes)}")
    return new_view(t, 0, ndim, target, strides)


def expand(Tensor self, *sizes, implicit=False):
    """Dimensions of size 1 repeated to these sizes without copying; -1 keeps a size."""
    cdef int64_t[64] wanted
    cdef int n = parse_varargs(sizes, wanted)
    return expand_to(self, n, wanted)


def expand_as(Tensor self, Tensor other not None):
    """`expand` to the shape of another tensor."""
    return expand_to(self, other.ndim_, other.sizes)


# -- parts -----------------------------------------------------------------------------------------

cdef Tensor _narrowed(Tensor t, int dim, int64_t start, int64_t length):
    cdef int64_t[64] sizes
    cdef int i
    for i in range(t.ndim_):
        sizes[i] = t.sizes[i]
    sizes[dim] = length
    return new_view(t, start * t.strides[dim], t.ndim_, sizes, t.strides)


cdef Tensor _selected(Tensor t, int dim, int64_t index):
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int i, n = 0
    for i in range(t.ndim_):
        if i != dim:
            sizes[n], strides[n] = t.sizes[i], t.strides[i]
            n += 1
    return new_view(t, index * t.strides[dim], n, sizes, strides)


def narrow(Tensor self, dim, start, length):
    """`length` indices of a dimension, from `start` on."""
    cdef int where
    cdef int64_t first, size
    if self.ndim_ == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    where = wrap_dim(dim, self.ndim_)
    size = self.sizes[where]
    first = int(start)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if first < -size or first > size:
        raise IndexError(f"start out of range (expected to be in range of [-{size}, {size}], but got {first})")
    if first < 0:
        first += size
    if first + length > size:
        raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return _narrowed(self, where, first, length)


def select(Tensor self, dim, index):
    """One index of a dimension, which goes away."""
    cdef int where
    cdef int64_t i
    if self.ndim_ == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    where = wrap_dim(dim, self.ndim_)
    i = index.__index__()
    if i < -self.sizes[where] or i >= self.sizes[where]:
        raise IndexError(
            f"select(): index {i} out of range for tensor of size {shape_text(self.ndim_, self.sizes)} at "
            f"dimension {where}")
    return _selected(self, where, i + self.sizes[where] if i < 0 else i)


def unbind(Tensor self, dim=0):
    """A tuple of the views at each index of a dimension."""
    cdef int where = wrap_dim(dim, self.ndim_)
    if self.ndim_ == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return tuple([_selected(self, where, i) for i in range(self.sizes[where])])


def split(Tensor self, split_size, dim=0):
    """A tuple of views along a dimension: of `split_size` each (the last may be smaller), or of these sizes."""
    cdef int where = wrap_dim(dim, self.ndim_)
    cdef int64_t size, step, start
    if self.ndim_ == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = self.sizes[where]
    if isinstance(split_size, (tuple, list)):
        return _split_sizes(self, list(split_size), where)
    step = split_size
    if step < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
    if step == 0:
        if size:
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return (_narrowed(self, where, 0, 0),)
    return tuple([_narrowed(self, where, start, min(step, size - start))
                  for start in range(0, max(size, 1), step)])


cdef tuple _split_sizes(Tensor self, list sizes, int where):
    cdef int64_t start = 0
    if any(size < 0 for size in sizes) or sum(sizes) != self.sizes[where]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {self.sizes[where]} (input tensor's size at "
            f"dimension {where}), but got split_sizes={sizes}")
    parts = []
    for size in sizes:
        parts.append(_narrowed(self, where, start, size))
        start += size
    return tuple(parts)


def split_with_sizes(Tensor self, split_sizes, dim=0):
    """`split` into parts of these sizes."""
    return split(self, list(split_sizes), dim)


def chunk(Tensor self, chunks, dim=0):
    """At most `chunks` views along a dimension, all of one size but the last."""
    cdef int where = wrap_dim(dim, self.ndim_)
    if self.ndim_ == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.sizes[where]
    step = (size + chunks - 1) // chunks
    if step == 0:
        return tuple([_narrowed(self, where, 0, 0) for _ in range(chunks)])
    return split(self, step, where)


def diagonal(Tensor self, offset=0, dim1=0, dim2=1):
    """The diagonals of the matrices in two dimensions, as a new last dimension."""
    cdef int a = wrap_dim(dim1, self.ndim_), b = wrap_dim(dim2, self.ndim_)
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int64_t start = 0, length, shift = offset
    cdef int i, n = 0
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    length = min(self.sizes[a], self.sizes[b] - shift) if shift >= 0 else min(self.sizes[a] + shift, self.sizes[b])
    length = max(length, 0)
    if length:
        start = shift * self.strides[b] if shift >= 0 else -shift * self.strides[a]
    for i in range(self.ndim_):
        if i != a and i != b:
            sizes[n], strides[n] = self.sizes[i], self.strides[i]
            n += 1
    sizes[n], strides[n] = length, self.strides[a] + self.strides[b]
    return new_view(self, start, n + 1, sizes, strides)


def unfold(Tensor self, dimension, size, step):
    """All windows of `size` along a dimension, `step` apart, as a new last dimension."""
    cdef int where = wrap_dim(dimension, self.ndim_), i
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int64_t most = self.sizes[where] if self.ndim_ else 1
    if size < 0 or size > most:
        raise RuntimeError(f"maximum size for tensor at dimension {where} is {most} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    for i in range(self.ndim_):
        sizes[i], strides[i] = self.sizes[i], self.strides[i]
    sizes[self.ndim_] = size
    strides[self.ndim_] = self.strides[where] if self.ndim_ else 1
    if self.ndim_:
        sizes[where] = (most - size) // step + 1
        strides[where] *= step
    return new_view(self, 0, self.ndim_ + 1, sizes, strides)


_tensor_module.install_methods({
    "view": view, "reshape": reshape, "view_as": view_as, "reshape_as": reshape_as, "flatten": flatten,
    "ravel": ravel, "unflatten": unflatten, "as_strided": as_strided, "transpose": transpose,
    "swapaxes": transpose, "swapdims": transpose, "t": t, "T": property(_reversed_dims),
    "mT": property(_matrix_transposed), "permute": permute, "movedim": movedim, "moveaxis": movedim,
    "squeeze": squeeze, "unsqueeze": unsqueeze, "expand": expand, "expand_as": expand_as,
    "narrow": narrow, "select": select, "unbind": unbind, "split": split,
    "split_with_sizes": split_with_sizes, "chunk": chunk, "diagonal": diagonal, "unfold": unfold,
})
