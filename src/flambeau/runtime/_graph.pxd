# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Captured graphs, for compiled callers."""
from libc.stdint cimport uint64_t

from flambeau.driver._table cimport CUevent, CUgraph, CUgraphExec, CUstream, DriverTable
from flambeau.runtime._generator cimport PhiloxState

cdef extern from "flambeau/runtime/graph_pool.hpp" namespace "flambeau" nogil:
    cdef struct CaptureFilter:
        const DriverTable* driver
        uint64_t id

# A generator that kernels of the graph read from two cells.
cdef class CapturedGenerator:
    cdef PhiloxState state
    cdef int device
    cdef uint64_t total                 # by how much a replay advances the offset

# A conditional node's body, while it is captured.
cdef class ConditionalBody:
    cdef CaptureFilter filter
    cdef CUstream stream
    cdef uint64_t handle                # of the condition
    cdef object inner, outer            # the body's stream and the one that was current before
    cdef object pool_id
    cdef list devices                   # on which its memory is routed to the pool

cdef class CapturedGraph:
    cdef CUgraph template_              # null: none, or dropped after instantiation
    cdef CUgraphExec exec_              # null: not instantiated
    cdef CUstream stream                # that is captured
    cdef int device
    cdef int made_in                    # _state.epoch
    cdef bint keep_graph
    cdef bint capturing
    cdef bint captured                  # a capture ended well
    cdef bint quiet                     # the end of the capture warns of nothing
    cdef bint plain                     # a replay is one launch and nothing else, but for hooks
    cdef bint hooked                    # it has replay hooks of its own, or its replays are followed
    cdef CaptureFilter filter
    cdef object report                  # of the capture under way
    cdef list bodies                    # ConditionalBody: those that are open, the innermost last
    cdef object pool_id                 # of its memory, while it has any
    cdef list shared_pools              # entered by use_mem_pool during the capture
    cdef list pool_devices              # on which it is a user of its pools
    cdef list kept                      # pinned tensors that it copies from or to
    cdef list functions                 # of the host, that it calls
    cdef list generators                # CapturedGenerator
    cdef dict cells                     # device -> memory of its generators' seeds and offsets
    cdef CUstream last_stream           # of the newest replay with random numbers or host functions
    cdef CUevent last_launch            # after that; null: none
    cdef object __weakref__
    cdef int replay_plainly(self) except -1
    cdef int forget_work(self) except -1
    cdef int warn(self, report) except -1
