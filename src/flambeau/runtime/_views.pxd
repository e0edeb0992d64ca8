# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Views, for compiled callers."""
from libc.stdint cimport int64_t
from flambeau.runtime._tensor cimport Tensor

# The strides with which `t` has other sizes without moving data; 0 if there are none.
cdef bint view_strides(Tensor t, int ndim, const int64_t* sizes, int64_t* strides) noexcept
cdef Tensor expand_to(Tensor t, int ndim, const int64_t* sizes)
cdef Tensor transpose_dims(Tensor t, int a, int b)
