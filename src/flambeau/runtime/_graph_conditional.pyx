# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Bodies of conditional nodes: parts of a graph that run, or repeat, as a byte on the device says."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUdeviceptr, CUgraph, CUresult, CUstream, check, driver
from flambeau.runtime cimport _dtype, _state
from flambeau.runtime._allocator_pools cimport begin_allocate_to_pool, end_allocate_to_pool
from flambeau.runtime._allocator_types cimport PoolId, RouteFilter
from flambeau.runtime._graph cimport CapturedGraph, ConditionalBody
from flambeau.runtime._tensor cimport Tensor

from flambeau.runtime import _allocator_pools, _graph, _stream

cdef extern from "flambeau/runtime/graph_pool.hpp" namespace "flambeau" nogil:
    bint is_of_capture "flambeau::is_of_capture"(void*, CUstream) noexcept nogil

cdef enum:
    POOL_STREAMS = 32                   # that a device has at most


cdef CUdeviceptr condition_of(CapturedGraph graph, Tensor value) except 0:
    if value.scalar_type != _dtype.Bool or value.count != 1 or value.device_index != graph.device:
        raise ValueError(
            f"the condition is a bool tensor of one element on cuda:{graph.device}, where the graph is "
            f"captured; got {value.count} elements of {(<object>value).dtype} on {(<object>value).device}")
    return <CUdeviceptr>value.data


cdef object free_stream(int device):
    """A stream of the pool that no capture has."""
    cdef CUstream handle
    cdef int status = 0
    for _ in range(POOL_STREAMS):
        stream = _stream.Stream(device)
        handle = <CUstream><uintptr_t>stream.cuda_stream
        check(driver.StreamIsCapturing(handle, &status))
        if not status:
            return stream
    raise RuntimeError(
        f"every one of the {POOL_STREAMS} streams that bodies could be captured on is being captured: "
        "conditional nodes are nested too deep")


def begin_body(CapturedGraph graph not None, bint repeats, Tensor value not None, str call):
    """Add a conditional node after the current stream's work; the current stream becomes its body's."""
    cdef ConditionalBody body
    cdef CUstream stream
    cdef CUresult status
    cdef CUgraph made = NULL
    cdef int capturing = 0
    cdef int kind = repeats
    cdef CUdeviceptr address
    if not graph.capturing:
        raise RuntimeError(
            f"capture_begin() must be called before {call}(): conditional nodes are parts of a capture "
            "under way")
    address = condition_of(graph, value)
    stream = _state.thread_state().streams[graph.device]
    if not is_of_capture(innermost(graph), stream):
        raise RuntimeError(
            f"{call}() adds to the current stream, and 0x{<uintptr_t>stream:x} is not captured into the "
            "part of the graph that is open. Make a stream of it current")
    _state.ensure_context(graph.device)
    body = ConditionalBody.__new__(ConditionalBody)
    body.outer = _stream.current_stream(graph.device)
    body.inner = free_stream(graph.device)
    body.stream = <CUstream><uintptr_t>body.inner.cuda_stream
    body.pool_id = graph.pool_id
    with nogil:
        status = driver.GraphBeginBody(stream, body.stream, address, kind, &body.handle)
    check(status)
    body.filter.driver = driver
    try:
        check(driver.StreamGetCaptureInfo(
            body.stream, &capturing, &body.filter.id, NULL, NULL, NULL, NULL))
        for device in graph.pool_devices:
            begin_allocate_to_pool(
                device, PoolId(body.pool_id[0], body.pool_id[1]), <RouteFilter>is_of_capture, &body.filter, True)
            body.devices.append(device)
        _stream.set_stream(body.inner)
    except BaseException:
        # The node is there; its body stays empty, and its stream must not stay captured.
        driver.StreamEndCapture(body.stream, &made)
        close(graph, body)
        raise
    graph.bodies.append(body)


cdef void* innermost(CapturedGraph graph) noexcept:
    """The filter of the part that work is captured into now."""
    if graph.bodies:
        return &(<ConditionalBody>graph.bodies[len(graph.bodies) - 1]).filter
    return &graph.filter


def set_condition(CapturedGraph graph not None, Tensor value not None):
    """Have captured work decide anew whether the innermost open body runs again."""
    cdef ConditionalBody body
    cdef CUdeviceptr address
    if not graph.bodies:
        raise RuntimeError(
            "set_conditional_handle_for_current_node() belongs into the body of a conditional node: call "
            "begin_capture_to_while_node() first")
    address = condition_of(graph, value)
    body = graph.bodies[len(graph.bodies) - 1]
    _state.ensure_context(graph.device)
    check(driver.GraphSetConditional(
        body.handle, address, _state.thread_state().streams[graph.device]))


def end_body(CapturedGraph graph not None):
    """End the innermost open body; the stream before it becomes current again."""
    cdef ConditionalBody body
    cdef CUgraph made = NULL
    cdef CUresult status
    cdef CUstream stream
    if not graph.bodies:
        raise RuntimeError(
            "end_capture_to_conditional_node() must be preceded by begin_capture_to_if_node() or "
            "begin_capture_to_while_node()")
    body = graph.bodies[len(graph.bodies) - 1]
    stream = _state.thread_state().streams[graph.device]
    if stream != body.stream:
        raise RuntimeError(
            "the capture of a conditional node's body must end on the stream it began on. Make that stream "
            f"current again: it is 0x{<uintptr_t>body.stream:x}, and 0x{<uintptr_t>stream:x} is current")
    with nogil:
        status = driver.StreamEndCapture(body.stream, &made)
    close(graph, graph.bodies.pop())
    check(status)


cdef int close(CapturedGraph graph, ConditionalBody body) except -1:
    """A body is over, well or not: its memory is routed no more, the stream before it is current."""
    for device in body.devices:
        end_allocate_to_pool(device, PoolId(body.pool_id[0], body.pool_id[1]), &body.filter, True)
        _allocator_pools.drop_pool(device, body.pool_id)
    _stream.set_stream(body.outer)
    return 0


def abandon(CapturedGraph graph not None):
    """End the bodies that were left open when the capture itself ends."""
    cdef CUgraph made = NULL
    while graph.bodies:
        body = <ConditionalBody>graph.bodies[len(graph.bodies) - 1]
        driver.StreamEndCapture((<ConditionalBody>body).stream, &made)
        close(graph, graph.bodies.pop())


_graph.set_body_closer(abandon)
