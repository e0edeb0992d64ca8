# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Making tensors, for compiled callers."""
from flambeau.runtime._tensor cimport Tensor

cdef int default_float                  # ScalarType of floats without a dtype
cdef Tensor from_data(object data, object dtype_or_none)   # nested sequences of numbers -> a host tensor
