# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Stacks as Python objects, for compiled callers."""
from flambeau.runtime._allocator_types cimport StackNode

# The frames, innermost first; empty for null. Equal stacks share one list, kept in `known`.
cdef list frames_of(const StackNode* stack, dict known)
