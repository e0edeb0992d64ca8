# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Histories of the allocators: recording, stacks, and traces as Python objects."""
from libc.stdint cimport uintptr_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport (
    StackSource, Storage, allocator_of, allocators, block_behind, pinned, require_native, set_stack_sources,
    set_thread_metadata, thread_metadata,
)
from flambeau.runtime._allocator_types cimport (
    Block, Metadata, StackNode, StackUse, TraceEntry,
)

cdef extern from "flambeau/runtime/allocator_stacks.hpp" namespace "flambeau" nogil:
    cdef cppclass Node "flambeau::StackNode":
        const StackNode* caller
        void* code
        int line() const
    cdef cppclass StackTable:
        const StackNode* capture()

cdef extern from *:
    """
    namespace flambeau {
    inline Metadata make_metadata(const std::string &text) {
      return std::make_shared<const std::string>(text);
    }
    inline std::string metadata_text(const Metadata &text) { return text ? *text : std::string(); }
    }
    """
    Metadata make_metadata "flambeau::make_metadata"(const string&)
    string metadata_text "flambeau::metadata_text"(const Metadata&)

cdef extern from "Python.h" nogil:
    bint PyGILState_Check()

cdef StackTable stacks

_ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
            "segment_map", "segment_unmap", "snapshot", "oom", "annotate")
_STACK_USES = {None: 0, "state": 1, "alloc": 2, "all": 3}

# How the allocators record, None for not at all: (stacks, most entries, skipped actions).
recording = None
recording_host = None


cdef const StackNode* capture_held() noexcept nogil:
    return stacks.capture()


cdef const StackNode* capture_if_held() noexcept nogil:
    return stacks.capture() if PyGILState_Check() else NULL


cdef int tell(int device) except -1:
    if recording is None:
        allocators[device].stop_history()
    else:
        level, most, skipped = recording
        allocators[device].start_history(<StackUse><int>level, most, skipped, False)
    return 0


def follow(int device):
    """A new allocator records as all others do."""
    if recording is not None:
        tell(device)


def record(context, size_t most, skip_actions=(), *, bint clear=False, bint cuda=True,
           bint host=False):
    """Start recording, or change how."""
    global recording, recording_host
    cdef unsigned skipped = 0
    cdef int device
    cdef int level = _STACK_USES[context]
    for action in skip_actions:
        skipped |= 1u << <int>_ACTIONS.index(action)
    if clear:
        clear_traces()
    if cuda:
        recording = (level, most, skipped)
    recording_host = (level, most, skipped) if host else None
    for device in range(_state.device_total):
        if allocators[device] != NULL:
            tell(device)
    tell_host()
    choose_sources()


def stop(*, bint cuda=True):
    """Stop recording and forget the traces. Blocks keep the stacks they have."""
    global recording, recording_host
    cdef int device
    if cuda:
        recording = None
        for device in range(_state.device_total):
            if allocators[device] != NULL:
                tell(device)
    recording_host = None
    tell_host()
    choose_sources()


def tell_host():
    """Have the pinned cache, if there is one, record as it should."""
    if pinned == NULL:
        return
    if recording_host is None:
        pinned.stop_history()
    else:
        level, most, skipped = recording_host
        pinned.start_history(<StackUse><int>level, most, skipped)


cdef int choose_sources() except -1:
    cdef StackSource at_allocation = NULL
    cdef StackSource at_free = NULL
    cdef int level = max(
        [kept[0] for kept in (recording, recording_host) if kept is not None], default=0)
    if level >= 1:
        at_allocation = capture_held
    if level >= 3:
        at_free = capture_if_held
    set_stack_sources(at_allocation, at_free)
    return 0


def clear_traces():
    """Forget what was recorded so far."""
    cdef int device
    for device in range(_state.device_total):
        if allocators[device] != NULL:
            allocators[device].clear_history()
    if pinned != NULL:
        pinned.clear_history()


# -- stacks and traces as Python objects -----------------------------------------------------------

cdef list frames_of(const StackNode* stack, dict known):
    """The frames, innermost first. Equal stacks share one list, by their node in `known`."""
    cdef const Node* node = <const Node*>stack
    key = <uintptr_t>stack
    found = known.get(key)
    if found is not None:
        return found
    frames = []
    while node != NULL:
        code = <object>node.code
        place = (<uintptr_t>node,)
        frame = known.get(place)
        if frame is None:
            frame = known[place] = {
                "name": code.co_qualname, "filename": code.co_filename, "line": node.line(),
            }
        frames.append(frame)
        node = <const Node*>node.caller
    known[key] = frames
    return frames


cdef dict entry_dict(const TraceEntry& entry, bint host, dict known):
    action = _ACTIONS[<int>entry.action]
    result = {
        "action": action,
        "device_free" if action == "oom" else "addr": entry.address,
        "size": entry.size,
        "stream": <uintptr_t>entry.stream,
        "time_us": entry.time_us,
        "compile_context": "" if host else "N/A",
        "user_metadata": metadata_text(entry.metadata).decode(),
        "pool_id": (entry.pool.first, entry.pool.second),
    }
    if host:
        result["device"] = -1
    if entry.stack != NULL:
        result["frames"] = frames_of(entry.stack, known)
    return result


def traces(dict known):
    """What each device's allocator did, oldest first: one list a device."""
    cdef int device
    cdef vector[TraceEntry] entries
    result = []
    for device in range(_state.device_total):
        mine = []
        if allocators[device] != NULL:
            entries = allocators[device].trace()
            for entry in entries:
                mine.append(entry_dict(entry, False, known))
            allocators[device].note_snapshot()
        result.append(mine)
    return result


def host_traces(dict known):
    """What the pinned cache did, oldest first."""
    cdef vector[TraceEntry] entries
    result = []
    if pinned != NULL:
        entries = pinned.trace()
        for entry in entries:
            result.append(entry_dict(entry, True, known))
    return result


def traceback_of(uintptr_t address):
    """The frames of who allocated the block that starts here; None if nothing is known."""
    cdef int device
    cdef const StackNode* stack
    for device in range(_state.device_total):
        if allocators[device] != NULL:
            stack = allocators[device].stack_at(address)
            if stack != NULL:
                return frames_of(stack, {})
    return None


def annotate(uintptr_t storage, str text):
    """An entry about the block behind a storage, by the storage's address in memory."""
    cdef Block* block = block_behind(<Storage*>storage)
    require_native("annotations")
    if block == NULL:
        raise RuntimeError("only memory of the caching allocator can be annotated")
    allocator_of(block.device).annotate(
        block, make_metadata(text.encode()),
        stacks.capture() if recording is not None and recording[0] >= 2 else NULL)


def set_metadata(str text):
    set_thread_metadata(make_metadata(text.encode()) if text else Metadata())


def get_metadata():
    return metadata_text(thread_metadata()).decode()
