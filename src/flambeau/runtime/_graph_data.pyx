# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Looking into graphs: nodes, edges, ids, pictures."""
from libc.stdint cimport uint64_t, uintptr_t
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUDA_SUCCESS, CUevent, CUfunction, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUhostNodeParams,
    CUkernelNodeParams, CUresult, CUstream, check, driver,
)
from flambeau.runtime cimport _state

cdef enum:
    KERNEL = 0
    HOST = 3
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    PRINT_VERBOSE = 1

cdef tuple _types = (
    "kernel", "memcpy", "memset", "host", "child_graph", "empty", "wait_event", "event_record",
    "ext_semas_signal", "ext_semas_wait", "mem_alloc", "mem_free", "batch_mem_op", "conditional",
)


def nodes(uintptr_t graph):
    cdef size_t count = 0
    cdef vector[CUgraphNode] found
    check(driver.GraphGetNodes(<CUgraph>graph, NULL, &count))
    found.resize(count)
    if count:
        check(driver.GraphGetNodes(<CUgraph>graph, found.data(), &count))
    return [<uintptr_t>node for node in found]


def edges(uintptr_t graph):
    cdef size_t count = 0
    cdef size_t i
    cdef vector[CUgraphNode] begins
    cdef vector[CUgraphNode] ends
    cdef vector[CUgraphEdgeData] data
    check(driver.GraphGetEdges(<CUgraph>graph, NULL, NULL, NULL, &count))
    begins.resize(count)
    ends.resize(count)
    data.resize(count)
    if count:
        check(driver.GraphGetEdges(
            <CUgraph>graph, begins.data(), ends.data(), data.data(), &count))
    return [
        (<uintptr_t>begins[i], <uintptr_t>ends[i], data[i].from_port, data[i].to_port, data[i].type)
        for i in range(count)]


def dependencies(uintptr_t node):
    cdef size_t count = 0
    cdef vector[CUgraphNode] found
    cdef vector[CUgraphEdgeData] data   # not asking for it is an error where there is any
    check(driver.GraphNodeGetDependencies(<CUgraphNode>node, NULL, NULL, &count))
    found.resize(count)
    data.resize(count)
    if count:
        check(driver.GraphNodeGetDependencies(
            <CUgraphNode>node, found.data(), data.data(), &count))
    return [<uintptr_t>earlier for earlier in found]


def node_type(uintptr_t node):
    cdef int type = 0
    check(driver.GraphNodeGetType(<CUgraphNode>node, &type))
    return _types[type] if 0 <= type < len(_types) else f"type {type}"


def frontier(uintptr_t stream):
    """The graph that a stream is captured into and what its next work depends on; (0, []) if none."""
    cdef const CUgraphNode* found = NULL
    cdef const CUgraphEdgeData* data = NULL
    cdef CUgraph graph = NULL
    cdef size_t count = 0
    cdef size_t i
    cdef int status = 0
    check(driver.StreamGetCaptureInfo(<CUstream>stream, &status, NULL, &graph, &found, &data, &count))
    if status != 1:
        return 0, []
    return <uintptr_t>graph, [<uintptr_t>found[i] for i in range(count)]


def current_frontier():
    cdef _state.ThreadState* state = _state.thread_state()
    return frontier(<uintptr_t>state.streams[state.device])


def graph_id(uintptr_t graph):
    cdef unsigned id = 0
    check(driver.GraphGetId(<CUgraph>graph, &id))
    return id


def exec_id(uintptr_t exec):
    cdef unsigned id = 0
    check(driver.GraphExecGetId(<CUgraphExec>exec, &id))
    return id


def node_id(uintptr_t node):
    cdef unsigned id = 0
    check(driver.GraphNodeGetLocalId(<CUgraphNode>node, &id))
    return id


def ids_work():
    """Whether the driver knows ids of nodes: it then finds fault with a null node, and with nothing else."""
    cdef unsigned long long id = 0
    cdef CUresult status = driver.GraphNodeGetToolsId(NULL, &id)
    return status == 0 or status == 1


def kernel(uintptr_t node):
    """Name, grid, block and bytes of dynamic shared memory of a kernel node; the name may be None."""
    cdef CUkernelNodeParams p
    cdef const char* name = NULL
    check(driver.GraphKernelNodeGetParams(<CUgraphNode>node, &p))
    known = p.func != NULL and driver.FuncGetName(&name, p.func) == CUDA_SUCCESS and name != NULL
    return (
        (<bytes>name).decode() if known else None,
        (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ),
        p.sharedMemBytes)


def kernel_function(uintptr_t node):
    """The ``CUfunction`` of a kernel node; 0 for a library's kernel."""
    cdef CUkernelNodeParams p
    check(driver.GraphKernelNodeGetParams(<CUgraphNode>node, &p))
    return <uintptr_t>p.func


def host_function(uintptr_t node):
    """The address of a host node's function."""
    cdef CUhostNodeParams p
    check(driver.GraphHostNodeGetParams(<CUgraphNode>node, &p))
    return <uintptr_t><void*>p.fn


def event(uintptr_t node, bint record):
    """The event of an event node."""
    cdef CUevent found = NULL
    if record:
        check(driver.GraphEventRecordNodeGetEvent(<CUgraphNode>node, &found))
    else:
        check(driver.GraphEventWaitNodeGetEvent(<CUgraphNode>node, &found))
    return <uintptr_t>found


def print_dot(uintptr_t graph, bytes path, bint verbose):
    check(driver.GraphDebugDotPrint(<CUgraph>graph, path, PRINT_VERBOSE if verbose else 0))


def waited_for(uintptr_t stream):
    """The nodes that a captured stream's next work would come after."""
    template_, ends = frontier(stream)
    found = set(ends)
    before = {}
    for begin, end, *_ in edges(template_):
        before.setdefault(end, []).append(begin)
    unseen = list(found)
    while unseen:
        for earlier in before.get(unseen.pop(), ()):
            if earlier not in found:
                found.add(earlier)
                unseen.append(earlier)
    return found
