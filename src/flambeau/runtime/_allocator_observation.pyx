# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Who is told of each allocation and of each block's return: observers, and the driver's checks."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUdeviceptr, CUstream, driver
from flambeau.runtime cimport _allocator, _state
from flambeau.runtime._allocator cimport allocators, block_behind, set_release_observer
from flambeau.runtime._allocator_types cimport Block, BlockState, Storage

cdef bint published = False  # the driver is told of each block: what a check wants to know


cdef int report_allocation(
    Storage* storage, size_t nbytes, int device, CUstream stream
) except -1:
    cdef Block* block = block_behind(storage)
    if published and block != NULL:
        publish(block, 1)
    if _allocator.observed:
        from flambeau.runtime import observers
        observers.notify("memory_allocation", <uintptr_t>storage.data, nbytes, device,
                         <uintptr_t>stream)
    return 0


cdef void report_release(Block* block) noexcept nogil:
    with gil:
        if published:
            publish(block, 0)
        if _allocator.observed:
            from flambeau.runtime import observers
            observers.notify("memory_deallocation", <uintptr_t>block.data)


cdef void report_or_not() noexcept:
    if _allocator.observed or published:
        set_release_observer(report_release)
        _allocator.on_allocation = report_allocation
    else:
        set_release_observer(NULL)
        _allocator.on_allocation = NULL


def set_observed(bint on):
    _allocator.observed = on
    report_or_not()


cdef void publish(Block* block, int state) noexcept:
    driver.MemNoteBlock(<CUdeviceptr>block.data, block.requested, block.size, state)


def publish_blocks(bint on):
    """Whether to tell the driver of each block: first of those that are held, then of changes."""
    global published
    cdef int device
    published = on
    report_or_not()
    for device in range(_state.MAX_DEVICES):
        if not on or allocators[device] == NULL or allocators[device].is_dead():
            continue
        for segment in allocators[device].snapshot():
            for block in segment.blocks:
                if block.state == BlockState.allocated:
                    driver.MemNoteBlock(block.address, block.requested, block.size, 2)


def follow():
    """A device is used for the first time: its driver may want to know of blocks."""
    from flambeau.driver import current
    if not published and current().supports("block_bounds"):
        publish_blocks(True)
