# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Stream capture and graphs of the active driver table as Python functions: for tests and tools."""
from libc.stdint cimport uint64_t, uintptr_t
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUevent, CUgraph, CUgraphExec, CUgraphNode, CUkernelNodeParams, CUresult, CUstream, check, driver,
)


def stream_begin_capture(uintptr_t stream, int mode=0):
    check(driver.StreamBeginCapture(<CUstream>stream, mode))


def stream_end_capture(uintptr_t stream):
    cdef CUgraph graph = NULL
    check(driver.StreamEndCapture(<CUstream>stream, &graph))
    return <uintptr_t>graph


def stream_capture_info(uintptr_t stream):
    cdef int status = 0
    cdef uint64_t id = 0
    cdef CUgraph graph = NULL
    cdef const CUgraphNode* nodes = NULL
    cdef size_t count = 0
    check(driver.StreamGetCaptureInfo(<CUstream>stream, &status, &id, &graph, &nodes, NULL, &count))
    return status, id, <uintptr_t>graph, [<uintptr_t>nodes[i] for i in range(count)]


def event_record_with_flags(uintptr_t event, uintptr_t stream, unsigned flags):
    check(driver.EventRecordWithFlags(<CUevent>event, <CUstream>stream, flags))


def graph_destroy(uintptr_t graph):
    check(driver.GraphDestroy(<CUgraph>graph))


def graph_instantiate(uintptr_t graph, uint64_t flags=0):
    cdef CUgraphExec exec = NULL
    check(driver.GraphInstantiateWithFlags(&exec, <CUgraph>graph, flags))
    return <uintptr_t>exec


def graph_exec_destroy(uintptr_t exec):
    check(driver.GraphExecDestroy(<CUgraphExec>exec))


def graph_launch(uintptr_t exec, uintptr_t stream):
    cdef CUresult status
    with nogil:
        status = driver.GraphLaunch(<CUgraphExec>exec, <CUstream>stream)
    check(status)


def graph_nodes(uintptr_t graph):
    cdef size_t count = 0
    cdef vector[CUgraphNode] nodes
    check(driver.GraphGetNodes(<CUgraph>graph, NULL, &count))
    nodes.resize(count)
    check(driver.GraphGetNodes(<CUgraph>graph, nodes.data(), &count))
    return [<uintptr_t>node for node in nodes]


def graph_edges(uintptr_t graph):
    cdef size_t count = 0
    cdef vector[CUgraphNode] begins
    cdef vector[CUgraphNode] ends
    check(driver.GraphGetEdges(<CUgraph>graph, NULL, NULL, NULL, &count))
    begins.resize(count)
    ends.resize(count)
    check(driver.GraphGetEdges(<CUgraph>graph, begins.data(), ends.data(), NULL, &count))
    return [(<uintptr_t>begins[i], <uintptr_t>ends[i]) for i in range(count)]


def graph_node_type(uintptr_t node):
    cdef int type = 0
    check(driver.GraphNodeGetType(<CUgraphNode>node, &type))
    return type


def graph_kernel_shape(uintptr_t node):
    cdef CUkernelNodeParams p
    check(driver.GraphKernelNodeGetParams(<CUgraphNode>node, &p))
    return (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ), p.sharedMemBytes


def graph_node_event(uintptr_t node):
    cdef CUevent event = NULL
    cdef int type = 0
    check(driver.GraphNodeGetType(<CUgraphNode>node, &type))
    if type == 6:
        check(driver.GraphEventWaitNodeGetEvent(<CUgraphNode>node, &event))
    else:
        check(driver.GraphEventRecordNodeGetEvent(<CUgraphNode>node, &event))
    return <uintptr_t>event


def graph_debug_dot(uintptr_t graph, str path, unsigned flags=0):
    cdef bytes encoded = path.encode()
    check(driver.GraphDebugDotPrint(<CUgraph>graph, encoded, flags))


def graph_id(uintptr_t graph):
    cdef unsigned id = 0
    check(driver.GraphGetId(<CUgraph>graph, &id))
    return id


def graph_exec_id(uintptr_t exec):
    cdef unsigned id = 0
    check(driver.GraphExecGetId(<CUgraphExec>exec, &id))
    return id


def graph_node_tools_id(uintptr_t node):
    cdef unsigned long long id = 0
    check(driver.GraphNodeGetToolsId(<CUgraphNode>node, &id))
    return id
