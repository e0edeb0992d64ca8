# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Private pools, for compiled callers such as graph captures."""
from flambeau.runtime._allocator_types cimport PoolId, RouteFilter

# Take from this pool what `filter` says yes to, given `context` and the stream: it is called with a
# lock held and must not wait. Makes the pool if there is none, and adds a user to it either way,
# which `_allocator_pools.drop_pool` takes away. With `capturing`, no event is recorded or asked for
# until the end.
cdef int begin_allocate_to_pool(
    int device, PoolId pool, RouteFilter filter, void* context, bint capturing) except -1
cdef int end_allocate_to_pool(int device, PoolId pool, void* context, bint capturing) except -1
