# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Nodes of the backward graph and a tensor's place in it, for compiled callers."""
from libc.stdint cimport int64_t, uint32_t
from flambeau.driver._table cimport CUstream
from flambeau.runtime._tensor cimport Tensor, TensorExtra

cdef extern from "flambeau/runtime/grad_state.hpp" namespace "flambeau" nogil:
    cdef cppclass GradState:
        bint grad
        bint inference
        bint autocast

cdef GradState* grad_state() noexcept nogil

# One operation of the backward graph. Gradients of its results come in, gradients of its inputs go
# out, one for each edge.
cdef class Node:
    cdef public list edges              # per input (Node, number of its output), or None
    cdef list results                   # per output of the forward (shape, scalar type, device index)
    cdef int64_t sequence               # later ones run first
    cdef int device                     # where the forward ran; -1 on the host
    cdef CUstream stream
    cdef int64_t stream_id
    cdef dict tensor_hooks              # output number -> {id: hook}
    cdef dict retained                  # output number -> weak reference to a tensor
    cdef dict pre_hooks
    cdef dict post_hooks
    cdef dict _metadata
    cdef object scope                   # of kernel annotations in the forward
    cdef object __weakref__
    cdef list run(self, list gradients)
    cdef int release(self) except -1
    cdef int begin(self, Tensor result) except -1       # device, stream and sequence number

cdef class AccumulateGrad(Node):
    cdef readonly Tensor variable

# The part of a tensor's state that has to do with gradients.
cdef class AutogradMeta(TensorExtra):
    cdef Node node                      # None for a leaf
    cdef int output
    cdef object accumulator             # weak reference to the AccumulateGrad of a leaf
    cdef dict hooks                     # of a leaf
    cdef dict post_accumulate
    cdef uint32_t view_version          # of the memory when the node of a view was made
    cdef bint of_many                   # a view made together with others
    cdef bint silent                    # a view made while gradients were not recorded
    cdef bint retains

# A tensor kept for the backward; raises when it was modified in between, or has been given back.
cdef class SavedTensor:
    cdef Tensor tensor
    cdef object packed
    cdef object unpack_hook
    cdef bint is_output
    cdef bint released
    cdef int output
    cdef uint32_t version

cdef bint tracked(Tensor t) noexcept                    # it requires grad
cdef AutogradMeta meta_of(Tensor t)                     # made if need be
cdef tuple edge_of(Tensor t)                            # where gradients of a tracked tensor go
cdef int attach(Tensor t, Node node, int output) except -1     # t is that output
cdef int set_history(Tensor t, Node node, bint of_many=*) except -1   # t is the node's next result
cdef int check_in_place(Tensor t) except -1             # refuse leaves and the like
# t was written in place by what `node` undoes; its edge number `own` is that of the old t, -1: none.
cdef int rebase_history(Tensor t, Node node, int own) except -1
cdef SavedTensor save(Tensor t)
cdef SavedTensor save_output(Tensor t, int output)
cdef Tensor unpack(SavedTensor saved, Node node)
cdef Tensor plain_alias(Tensor t)                       # the same memory, without history and base
cdef bint dense(Tensor t) noexcept                      # strides without gaps or overlaps
