# SPDX-License-Identifier: Apache-2.0
"""The graph page: a captured graph as lanes of nodes, with its critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau import pages

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["describe", "durations_of", "page"]


def describe(graph: Any) -> dict[str, Any]:
    """What a `flambeau.cuda.CUDAGraph` consists of, with its annotations, as data for `page`.

    Parameters
    ----------
    graph
        A captured graph that keeps its template (``keep_graph=True``).

    Returns
    -------
    dict
        As ``graph.get_graph_data()``, with kernels named by what they do and ``annotations`` from
        nodes' ids (text) to fields. It is JSON; ``flambeau graph view`` reads it from a file.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.pages import graph as graph_page
    >>> g, x = torch.cuda.CUDAGraph(keep_graph=True), torch.ones(8, device="cuda")
    >>> with torch.cuda.graph(g):
    ...     y = (x * 2).sin()
    >>> g.instantiate()
    >>> len(graph_page.describe(g)["nodes"])
    2
    """
    from flambeau.cuda.graph_annotations import get_kernel_annotations

    data = dict(graph.get_graph_data())
    data["nodes"] = [dict(node) for node in data["nodes"]]
    _name_kernels(data["nodes"], graph.raw_cuda_graph())
    alive = get_kernel_annotations()
    ids = (node["tools_id"] for node in data["nodes"])
    data["annotations"] = {str(key): dict(alive[key][0]) for key in ids if alive.get(key)}
    return data


def _name_kernels(nodes: list[dict[str, Any]], template: int) -> None:
    """Our generated kernels are all called ``kernel``; give them the names of what they do."""
    from flambeau.kernels.compile import title_of
    from flambeau.runtime import _graph_data

    for node, handle in zip(nodes, _graph_data.nodes(template), strict=True):
        if node["kernel_name"] == "kernel":
            title = title_of(_graph_data.kernel_function(handle))
            node["kernel_name"] = f"{title.lower()}_kernel" if title else "kernel"


def durations_of(trace: Mapping[str, Any]) -> dict[int, float]:
    """Mean durations of graphs' nodes in a trace, in microseconds, by ``graph node id``."""
    found: dict[int, list[float]] = {}
    for event in trace["traceEvents"]:
        node = event.get("args", {}).get("graph node id")
        if event.get("ph") == "X" and node is not None:
            found.setdefault(int(node), []).append(event.get("dur", 0.0))
    return {node: sum(times) / len(times) for node, times in found.items()}


def page(
    data: Mapping[str, Any],
    title: str,
    *,
    annotations: Mapping[Any, Any] | None = None,
    durations: Mapping[int, float] | None = None,
) -> str:
    """The page of a graph, as HTML.

    Parameters
    ----------
    data
        As ``get_graph_data`` or `describe` give it.
    title
        The page's title.
    annotations
        From nodes' ids to fields, or to a list with one dict of them; default: those in `data`.
    durations
        From nodes' ids to microseconds; default None draws steps.
    """
    notes = _notes(annotations if annotations is not None else data.get("annotations", {}))
    nodes = data["nodes"]
    after = [list(node["dependencies"]) for node in nodes]
    order = _ordered(after)
    times = _times(nodes, durations or {})
    starts, through = _schedule(after, order, times)
    path = _critical(starts, times, through)
    lanes = _lanes(nodes, after, order, notes)
    on_path = set(path)
    shown = [
        {
            "id": str(node["node_id"]),
            "name": _name(node),
            "kind": node["node_type"],
            "lane": lanes[place],
            "from": starts[place],
            "to": starts[place] + times[place] * (1.0 if durations else 0.82),
            "critical": place in on_path,
            "criticalAfter": through[place],
            "after": after[place],
            "annotation": notes.get(node["tools_id"], {}).get("name", ""),
            "short": _short(node),
            "detail": _detail(node, notes.get(node["tools_id"], {}), times[place], durations),
        }
        for place, node in enumerate(nodes)
    ]
    end = max((s + t for s, t in zip(starts, times, strict=True)), default=1.0)
    figures = [
        ["nodes", f"{len(nodes):,}"],
        ["edges", f"{sum(map(len, after)):,}"],
        ["lanes", str(max(lanes, default=0) + 1)],
        ["nodes on the critical path", f"{len(path):,}"],
    ]
    if durations:
        figures.append(["critical path", f"{end:.3f} µs"])
        figures.append(["all nodes one after another", f"{sum(times):.3f} µs"])
    names = [f"lane {lane}" for lane in range(max(lanes, default=0) + 1)]
    return pages.render(
        "graph",
        title,
        {
            "nodes": shown,
            "lanes": names,
            "end": end,
            "timed": bool(durations),
            "figures": figures,
        },
    )


def _notes(annotations: Mapping[Any, Any]) -> dict[int, dict[str, Any]]:
    found = {}
    for key, value in annotations.items():
        fields = value[0] if isinstance(value, (list, tuple)) and value else value
        if fields:
            found[int(key)] = dict(fields)
    return found


def _ordered(after: list[list[int]]) -> list[int]:
    """Places in an order in which every node follows what it waits for."""
    waiting = [len(earlier) for earlier in after]
    dependents: list[list[int]] = [[] for _ in after]
    for place, earlier in enumerate(after):
        for one in earlier:
            dependents[one].append(place)
    order = [place for place, count in enumerate(waiting) if not count]
    for place in order:
        for later in dependents[place]:
            waiting[later] -= 1
            if not waiting[later]:
                order.append(later)
    if len(order) != len(after):
        raise ValueError("this is no graph of work: its nodes wait for each other in a circle")
    return order


def _times(nodes: list[dict[str, Any]], durations: Mapping[int, float]) -> list[float]:
    if not durations:
        return [1.0] * len(nodes)
    return [durations.get(node["tools_id"], 0.0) for node in nodes]


def _schedule(
    after: list[list[int]], order: list[int], times: list[float]
) -> tuple[list[float], list[int]]:
    """The earliest start of each node, and which node it waits for longest (-1: none)."""
    starts, through = [0.0] * len(after), [-1] * len(after)
    for place in order:
        for one in after[place]:
            if through[place] < 0 or starts[one] + times[one] > starts[place]:
                starts[place] = starts[one] + times[one]
                through[place] = one
    return starts, through


def _critical(starts: list[float], times: list[float], through: list[int]) -> list[int]:
    """The longest chain of nodes that wait for each other, the first one first."""
    if not starts:
        return []
    place = max(range(len(starts)), key=lambda p: starts[p] + times[p])
    path = []
    while place >= 0:
        path.append(place)
        place = through[place]
    return path[::-1]


def _lanes(
    nodes: list[dict[str, Any]],
    after: list[list[int]],
    order: list[int],
    notes: Mapping[int, Mapping[str, Any]],
) -> list[int]:
    """A lane for each node: that of a stream, as the chains of dependencies show them.

    A capture does not keep streams. A node goes on in the lane whose last node it waits for, else
    in one whose work is all done before it, else it begins a lane; annotations that name streams
    are followed.
    """
    lanes = [0] * len(nodes)
    before = [0] * len(nodes)  # all that a node waits for, however indirectly, as bits
    last: list[int] = []  # the newest node of each lane
    named: dict[str, int] = {}
    for place in order:
        stream = notes.get(nodes[place]["tools_id"], {}).get("stream")
        lane = named.get(str(stream)) if stream is not None else None
        if lane is None:
            lane = next((i for i, newest in enumerate(last) if newest in after[place]), None)
        for one in after[place]:
            before[place] |= before[one] | 1 << one
        if lane is None:
            done = before[place]
            lane = next((i for i, newest in enumerate(last) if done >> newest & 1), None)
        if lane is None:
            lane = len(last)
            last.append(place)
        if stream is not None:
            named.setdefault(str(stream), lane)
        last[lane] = place
        lanes[place] = lane
    return lanes


def _name(node: Mapping[str, Any]) -> str:
    name = node.get("kernel_name") or node.get("host_fn_name") or node["node_type"]
    return str(name)


def _short(node: Mapping[str, Any]) -> str:
    if node["node_type"] != "kernel" or not node.get("grid_dim"):
        return ""
    grid, block = (" x ".join(map(str, node[key])) for key in ("grid_dim", "block_dim"))
    return f"{grid} blocks of {block}"


def _detail(
    node: Mapping[str, Any],
    notes: Mapping[str, Any],
    time: float,
    durations: Mapping[int, float] | None,
) -> str:
    lines = [
        _name(node),
        f"{node['node_type']}, node {node['node_id']} of graph {node['graph_id']}",
    ]
    if node["node_type"] == "kernel" and node.get("grid_dim"):
        lines.append(
            f"{_short(node)} threads, {node['shared_mem_bytes']} bytes of dynamic shared memory"
        )
    if durations:
        lines.append(f"{time:.3f} µs")
    lines += [f"{name}: {value}" for name, value in notes.items()]
    return "\n".join(lines)
