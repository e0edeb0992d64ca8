# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Products of small matrices by a kernel of our own, for compiled callers."""
from flambeau.driver._table cimport CUstream, GemmArgs

cdef enum:
    MOST = 64                           # rows and columns
    DEEPEST = 128                       # of k

cdef extern from "flambeau/runtime/scalar_type.hpp" namespace "flambeau" nogil:
    const int Float32


# Whether a product is one that `launch_small` may make: plain, of full precision.
cdef inline bint is_small(const GemmArgs* args) noexcept nogil:
    return (args.m <= MOST and args.n <= MOST and args.k <= DEEPEST and args.dtype == Float32
            and args.compute == 0 and args.batch == 1 and args.alpha == 1 and args.beta == 0
            and args.bias == 0)


# Launch the kernel on a stream of the device, whose context is current; 0, and nothing is done, where
# there is none.
cdef bint launch_small(const GemmArgs* args, int device, CUstream stream) except -1
