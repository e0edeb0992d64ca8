# SPDX-License-Identifier: Apache-2.0
"""What a graph consists of, as plain data."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.runtime import _graph_data

__all__ = ["graph_data"]


def graph_data(template: int, executable: int) -> dict[str, Any]:
    """The nodes and edges of a template and the ids that they have in an executable of it."""
    exec_id = _graph_data.exec_id(executable)
    handles = _graph_data.nodes(template)
    index = {handle: place for place, handle in enumerate(handles)}
    nodes = [_node(place, handle, exec_id) for place, handle in enumerate(handles)]
    edges = []
    for begin, end, from_port, to_port, kind in _graph_data.edges(template):
        first, second = index[begin], index[end]
        nodes[first]["dependents"].append(second)
        nodes[second]["dependencies"].append(first)
        edges.append(
            {"from": first, "to": second, "from_port": from_port, "to_port": to_port, "type": kind}
        )
    if any(node["node_type"] in {"child_graph", "conditional"} for node in nodes):
        warnings.warn(
            "the bodies of child graphs and conditional nodes are not walked", stacklevel=3
        )
    return {"exec_graph_id": exec_id, "nodes": nodes, "edges": edges}


def _node(place: int, handle: int, exec_id: int) -> dict[str, Any]:
    kind = _graph_data.node_type(handle)
    node_id = _graph_data.node_id(handle)
    name = grid = block = shared = None
    event = host = 0
    if kind == "kernel":
        name, grid, block, shared = _graph_data.kernel(handle)
    elif kind in {"event_record", "wait_event"}:
        event = _graph_data.event(handle, kind == "event_record")
    elif kind == "host":
        host = _graph_data.host_function(handle)
    return {
        "index": place,
        "node_type": kind,
        "tools_id": exec_id << 32 | node_id,
        "graph_id": exec_id,
        "node_id": node_id,
        "kernel_name": name,
        "grid_dim": grid,
        "block_dim": block,
        "shared_mem_bytes": shared,
        "event_ptr": event,
        "host_fn_addr": host,
        "host_fn_name": None,
        "dependencies": [],
        "dependents": [],
    }
