# SPDX-License-Identifier: Apache-2.0
"""Hooks that hear of every graph of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.cuda._graph_hooks import HookHandle, HookList
from flambeau.runtime import _graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.cuda.graphs import CUDAGraph

__all__ = [
    "all_capture_end",
    "all_capture_start",
    "all_destroy",
    "all_instantiate",
    "all_replay_end",
    "all_replay_start",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]


def _follow_replays() -> None:
    _graph.set_replay_hooks(bool(len(all_replay_start) or len(all_replay_end)))


all_capture_start, all_capture_end = HookList(), HookList()
all_instantiate, all_destroy = HookList(), HookList()
all_replay_start, all_replay_end = (HookList(lambda: _follow_replays) for _ in range(2))


def register_graph_capture_start_hook(fn: Callable[[CUDAGraph], object]) -> HookHandle:
    """Have `fn(graph)` called at the beginning of every capture; no CUDA work is allowed in it.

    What hooks of all graphs raise is logged; the next is called.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen, x = [], torch.ones(4, device="cuda")
    >>> with torch.cuda.graphs.register_graph_capture_start_hook(seen.append):
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x + 1
    ...     g.replay()
    >>> seen == [g]
    True
    """
    return all_capture_start.add(fn)


def register_graph_capture_end_hook(fn: Callable[[CUDAGraph], object]) -> HookHandle:
    """Have `fn(graph)` called at the end of every capture that ended well.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen, x = [], torch.ones(4, device="cuda")
    >>> with torch.cuda.graphs.register_graph_capture_end_hook(seen.append):
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x + 1
    ...     g.replay()
    >>> seen == [g]
    True
    """
    return all_capture_end.add(fn)


def register_graph_instantiate_hook(fn: Callable[[CUDAGraph], object]) -> HookHandle:
    """Have `fn(graph)` called after every instantiation.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen, x = [], torch.ones(4, device="cuda")
    >>> with torch.cuda.graphs.register_graph_instantiate_hook(seen.append):
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x + 1
    ...     g.replay()
    >>> seen == [g]
    True
    """
    return all_instantiate.add(fn)


def register_graph_replay_start_hook(fn: Callable[[CUDAGraph], object]) -> HookHandle:
    """Have `fn(graph)` called before every launch of a graph.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen, x = [], torch.ones(4, device="cuda")
    >>> with torch.cuda.graphs.register_graph_replay_start_hook(seen.append):
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x + 1
    ...     g.replay()
    >>> seen == [g]
    True
    """
    return all_replay_start.add(fn)


def register_graph_replay_end_hook(fn: Callable[[CUDAGraph], object]) -> HookHandle:
    """Have `fn(graph)` called after every launch of a graph was enqueued.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen, x = [], torch.ones(4, device="cuda")
    >>> with torch.cuda.graphs.register_graph_replay_end_hook(seen.append):
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x + 1
    ...     g.replay()
    >>> seen == [g]
    True
    """
    return all_replay_end.add(fn)


def register_graph_destroy_hook(fn: Callable[[set[int]], object]) -> HookHandle:
    """Have `fn(ids)` called when a graph is reset, collected, or at the end of the process.

    `ids` are the ids that its capture and executables had; empty without annotations.

    Examples
    --------
    >>> import flambeau as torch
    >>> seen = []
    >>> with torch.cuda.graphs.register_graph_destroy_hook(seen.append):
    ...     torch.cuda.CUDAGraph().reset()
    >>> seen
    [set()]
    """
    return all_destroy.add(fn)


for _function in (
    register_graph_capture_end_hook,
    register_graph_capture_start_hook,
    register_graph_destroy_hook,
    register_graph_instantiate_hook,
    register_graph_replay_end_hook,
    register_graph_replay_start_hook,
):
    _function.__module__ = "flambeau.cuda.graphs"
