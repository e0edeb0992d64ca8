# SPDX-License-Identifier: Apache-2.0
def stream_begin_capture(stream: int, mode: int = 0) -> None:
    """``cuStreamBeginCapture``; modes: 0 global, 1 thread local, 2 relaxed."""

def stream_end_capture(stream: int) -> int:
    """``cuStreamEndCapture``: the graph."""

def stream_capture_info(stream: int) -> tuple[int, int, int, list[int]]:
    """``cuStreamGetCaptureInfo``: status, id, graph, and what the next work would depend on."""

def event_record_with_flags(event: int, stream: int, flags: int) -> None:
    """``cuEventRecordWithFlags``; flag 1 makes a node of it in a capture."""

def graph_destroy(graph: int) -> None:
    """``cuGraphDestroy``."""

def graph_instantiate(graph: int, flags: int = 0) -> int:
    """``cuGraphInstantiateWithFlags``: the executable graph."""

def graph_exec_destroy(exec: int) -> None:
    """``cuGraphExecDestroy``."""

def graph_launch(exec: int, stream: int) -> None:
    """``cuGraphLaunch``."""

def graph_nodes(graph: int) -> list[int]:
    """``cuGraphGetNodes``."""

def graph_edges(graph: int) -> list[tuple[int, int]]:
    """``cuGraphGetEdges``: pairs of nodes."""

def graph_node_type(node: int) -> int:
    """``cuGraphNodeGetType``."""

def graph_kernel_shape(node: int) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    """Grid, block and bytes of dynamic shared memory, from ``cuGraphKernelNodeGetParams``."""

def graph_node_event(node: int) -> int:
    """``cuGraphEventRecordNodeGetEvent`` or ``cuGraphEventWaitNodeGetEvent``, as the node is."""

def graph_debug_dot(graph: int, path: str, flags: int = 0) -> None:
    """``cuGraphDebugDotPrint``."""

def graph_id(graph: int) -> int:
    """``cuGraphGetId``."""

def graph_exec_id(exec: int) -> int:
    """``cuGraphExecGetId``."""

def graph_node_tools_id(node: int) -> int:
    """``cuGraphNodeGetToolsId``: the graph's id in the upper 32 bits, the node's in the lower."""
