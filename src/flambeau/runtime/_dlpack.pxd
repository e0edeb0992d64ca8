# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What came from other libraries, for compiled callers."""
from flambeau.driver._table cimport CUstream
from flambeau.runtime._allocator cimport Storage

# Whether this memory was imported with the remark that it must not be written.
cdef bint is_read_only(const Storage* storage) noexcept
# Have work of `after` (null: the default stream of the device) wait for what `before` has so far.
cdef int order_streams(int device, CUstream before, CUstream after) except -1
