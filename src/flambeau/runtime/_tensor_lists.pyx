# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Lists of tensors as kernels take them: whether they are alike, and tables of their addresses."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memset

from flambeau.runtime._autograd cimport dense, grad_state, tracked
from flambeau.runtime._dtype cimport type_category
from flambeau.runtime._tensor cimport Tensor, check_writable, mark_written


def same_kind(lists):
    cdef Tensor first, leading, other
    cdef Py_ssize_t k, n
    cdef int d
    cdef bint recording = grad_state().grad
    rows = [list(tensors) for tensors in lists]
    n = len(rows[0])
    first = <Tensor?>rows[0][0]
    if first.device_index < 0 or type_category[first.scalar_type] != 2:
        return False
    for row in rows:
        if len(row) != n:
            raise ValueError(f"lists of tensors differ in length: {n} and {len(row)}")
    for k in range(n):
        leading = <Tensor?>(<list>rows[0])[k]
        if not leading.contiguous and not dense(leading):
            return False
        for row in rows:
            other = <Tensor?>(<list>row)[k]
            if (other.device_index != first.device_index or other.scalar_type != first.scalar_type
                    or other.ndim_ != leading.ndim_ or (recording and tracked(other))):
                return False
            for d in range(leading.ndim_):
                if other.sizes[d] != leading.sizes[d]:
                    return False
            if leading.contiguous and other.contiguous:
                continue
            for d in range(leading.ndim_):
                if other.strides[d] != leading.strides[d]:
                    return False
    return True


def mark_all_written(tensors):
    for tensor in tensors:
        check_writable(<Tensor?>tensor)
        mark_written(<Tensor?>tensor)


def tables(int capacity, int64_t chunk, lists, addresses, numbers):
    cdef Py_ssize_t k, begin, end, operand
    cdef int64_t blocks, blocks_before = 0, tensors_before = 0
    cdef Tensor tensor
    cdef Py_ssize_t pointers = len(lists) + len(addresses), values = max(1, len(numbers))
    cdef Py_ssize_t size = (pointers + values + 1) * 8 * capacity + 4 * capacity + 16
    cdef char* at
    cdef uint64_t* pointer
    cdef double* value
    cdef int64_t* sizes
    cdef int32_t* first
    size = (size + 7) & ~7
    rows = [list(tensors) for tensors in lists]
    present = [k for k in range(len(rows[0])) if (<Tensor?>(<list>rows[0])[k]).count]
    made = []
    for begin in range(0, len(present), capacity):
        end = min(begin + capacity, len(present))
        table = PyBytes_FromStringAndSize(NULL, size)
        at = PyBytes_AS_STRING(table)
        memset(at, 0, size)
        pointer = <uint64_t*>at
        value = <double*>(pointer + pointers * capacity)
        sizes = <int64_t*>(value + values * capacity)
        first = <int32_t*>(sizes + capacity)
        for operand in range(len(rows)):
            for k in range(begin, end):
                tensor = <Tensor?>(<list>rows[operand])[present[k]]
                pointer[operand * capacity + k - begin] = <uint64_t><uintptr_t>tensor.data
        for operand in range(len(addresses)):
            for k in range(begin, end):
                pointer[(len(rows) + operand) * capacity + k - begin] = addresses[operand][present[k]]
        for operand in range(len(numbers)):
            for k in range(begin, end):
                value[operand * capacity + k - begin] = numbers[operand][present[k]]
        blocks = 0
        for k in range(begin, end):
            tensor = <Tensor>(<list>rows[0])[present[k]]
            sizes[k - begin] = tensor.count
            first[k - begin] = <int32_t>blocks
            blocks += (tensor.count + chunk - 1) // chunk
        first[capacity] = <int32_t>(end - begin)
        first[capacity + 1] = <int32_t>blocks
        first[capacity + 2] = <int32_t>blocks_before
        first[capacity + 3] = <int32_t>tensors_before
        blocks_before += blocks
        tensors_before += end - begin
        made.append((table, end - begin, blocks))
    return made
