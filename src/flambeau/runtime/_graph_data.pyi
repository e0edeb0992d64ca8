# SPDX-License-Identifier: Apache-2.0
def nodes(graph: int) -> list[int]:
    """The handles of a template's nodes (``cuGraphGetNodes``)."""

def edges(graph: int) -> list[tuple[int, int, int, int, int]]:
    """Two nodes, the second after the first, both ports and the type (``cuGraphGetEdges``)."""

def dependencies(node: int) -> list[int]:
    """The nodes that a node comes right after (``cuGraphNodeGetDependencies``)."""

def node_type(node: int) -> str:
    """``"kernel"``, ``"memcpy"``, ... (``cuGraphNodeGetType``)."""

def frontier(stream: int) -> tuple[int, list[int]]:
    """The graph that a stream is captured into and what its next work depends on; (0, []) if none."""

def current_frontier() -> tuple[int, list[int]]:
    """`frontier` of the current stream."""

def graph_id(graph: int) -> int:
    """The number that tools know a template by; needs node ids of the driver, as all ids do."""

def exec_id(exec: int) -> int:
    """The number that tools know an executable graph by."""

def node_id(node: int) -> int:
    """The number of a node in its graph; executables keep it."""

def ids_work() -> bool:
    """Whether the driver knows ids of nodes."""

def kernel(
    node: int,
) -> tuple[str | None, tuple[int, int, int], tuple[int, int, int], int]:
    """Name, grid, block and bytes of dynamic shared memory of a kernel node."""

def kernel_function(node: int) -> int:
    """The ``CUfunction`` of a kernel node; 0 for a library's kernel."""

def host_function(node: int) -> int:
    """The address of a host node's function."""

def event(node: int, record: bool) -> int:
    """The event of a record node, or of a wait node."""

def print_dot(graph: int, path: bytes, verbose: bool) -> None:
    """Write a template as Graphviz text (``cuGraphDebugDotPrint``)."""

def waited_for(stream: int) -> set[int]:
    """The nodes that a captured stream's next work would come after."""
