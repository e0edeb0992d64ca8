# SPDX-License-Identifier: Apache-2.0
"""Names for the kernels of graphs: scopes in the capture, a registry that traces are joined with.

A scope compares what the current stream's next captured work would depend on at its beginning and
at its end; the nodes between are those made inside.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from flambeau.cuda import _availability
from flambeau.runtime import _autograd, _graph, _graph_data, lazy_init

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from flambeau.cuda.graphs import CUDAGraph

__all__ = [
    "AnnotationConfig",
    "GraphAnnotations",
    "get_stream_for_pg",
    "is_available",
    "mark_kernels",
    "mark_stream",
]

_RESERVED = ("stream", "autograd_phase")
_COVERED = frozenset(
    {"kernel", "memcpy", "memset", "batch_mem_op", "event_record", "wait_event", "host"}
)
_OPTIONS = ("backend", "key_by", "record_py_stacks", "py_stack_filter_paths")
_BACKENDS, _KEYS = ("auto", "cupti", "edge_walk"), ("auto", "exec", "source")

registry: dict[int, list[dict[str, Any]]] = {}
"""Annotations of all graphs that are alive: tools id of a node -> [what its scopes say]."""

_scopes = threading.local()
_FIRST_LANE = 1000
_lanes: dict[Hashable, int] = {}
_lanes_lock = threading.Lock()


class Availability:
    """Whether annotations work here, and why not.

    True and False as a bool.

    Attributes
    ----------
    reason : str
        Why not; empty if they work.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return not self.reason

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __repr__(self) -> str:
        return f"False ({self.reason})" if self.reason else "True"


def is_available() -> Availability:
    """Whether kernels of graphs can be annotated here.

    The driver must know ids of graph nodes: NVIDIA's from version 13.1 on, virtual GPUs always.

    Returns
    -------
    Availability
        Used as a bool; its `reason` says why not.

    Examples
    --------
    >>> import flambeau as torch
    >>> bool(torch.cuda.graph_annotations.is_available())
    True
    """
    if not _availability.is_available():
        return Availability("there is no CUDA device; flambeau.cuda.explain() says why")
    lazy_init.lazy_init()
    if _graph_data.ids_work():
        return Availability()
    return Availability(
        "this driver does not know ids of graph nodes (cuGraphNodeGetToolsId): driver 13.1 or "
        "newer is needed"
    )


class AnnotationConfig:
    """The options of ``annotation_config``, checked.

    Raises
    ------
    ValueError
        An option or a value is unknown, or two contradict each other.
    RuntimeError
        A key by source is asked for, which no driver here offers.
    """

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        given = dict(options or {})
        unknown = sorted(set(given) - set(_OPTIONS))
        if unknown:
            raise ValueError(
                f"annotation_config takes {', '.join(_OPTIONS)}; got {', '.join(unknown)}"
            )
        self.backend = _one_of("backend", given.get("backend", "auto"), _BACKENDS)
        self.key_by = _one_of("key_by", given.get("key_by", "auto"), _KEYS)
        self.record_py_stacks = bool(given.get("record_py_stacks", False))
        if self.record_py_stacks and self.backend == "edge_walk":
            raise ValueError(
                "record_py_stacks needs the cupti backend: an edge walk does not see each call"
            )
        if self.key_by == "source":
            raise RuntimeError('key_by="source" needs CUPTI and a driver of 13.4 or newer')
        if self.backend == "cupti" or self.record_py_stacks:
            raise RuntimeError(
                'the cupti backend is not available; use backend="edge_walk" or "auto"'
            )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}, got {value!r}")
    return str(value)


class GraphAnnotations:
    """The annotations of one graph, kept under the ids of its newest incarnation."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self._by_node: dict[int, dict[str, Any]] = {}
        self._graph_id = 0

    def begin(self, graph_id: int) -> None:
        """The capture is under way; `graph_id` is that of what it makes."""
        self._graph_id = graph_id
        self.ids.add(graph_id)

    def add(self, nodes: set[int], annotation: dict[str, Any]) -> None:
        """Annotate nodes (handles) that a scope made; scopes inside it were here first."""
        for node in nodes:
            if _graph_data.node_type(node) not in _COVERED:
                continue
            node_id = _graph_data.node_id(node)
            merged = {**annotation, **self._by_node.get(node_id, {})}
            self._by_node[node_id] = merged
            registry[self._graph_id << 32 | node_id] = [merged]

    def move(self, graph_id: int) -> None:
        """The graph was instantiated, with this id: its nodes keep theirs."""
        self._forget()
        self._graph_id = graph_id
        self.ids.add(graph_id)
        for node_id, merged in self._by_node.items():
            registry[graph_id << 32 | node_id] = [merged]

    def close(self) -> set[int]:
        """The graph goes: drop its entries; all ids that it had."""
        self._forget()
        self._by_node.clear()
        return self.ids

    def _forget(self) -> None:
        for node_id in self._by_node:
            registry.pop(self._graph_id << 32 | node_id, None)


def _normalized(annotation: str | Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": annotation} if isinstance(annotation, str) else dict(annotation)
    reserved = [key for key in _RESERVED if key in fields]
    if reserved:
        raise ValueError(
            f"the keys {', '.join(_RESERVED)} are reserved; the annotation has {reserved[0]!r}"
        )
    return fields


@contextmanager
def mark_kernels(annotation: str | Mapping[str, Any], *, backward: bool = True) -> Iterator[None]:
    """Context manager that annotates what is captured inside, on the current stream.

    It does nothing outside a capture with ``enable_annotations=True``. Nested scopes are merged; an
    inner one wins.

    Parameters
    ----------
    annotation
        A dict of fields, or a string for ``{"name": ...}``. The keys ``stream`` and
        ``autograd_phase`` are reserved.
    backward
        Whether the backward of operations inside is annotated too.

    Raises
    ------
    ValueError
        A key is reserved.

    Examples
    --------
    >>> import flambeau as torch
    >>> g, x = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
    >>> with torch.cuda.graph(g, enable_annotations=True):
    ...     with torch.cuda.graph_annotations.mark_kernels("scale"):
    ...         y = x * 2
    >>> list(torch.cuda.graph_annotations.get_kernel_annotations().values())
    [[{'name': 'scale'}]]
    """
    with _scope(_normalized(annotation), backward):
        yield


@contextmanager
def mark_stream(stream: int, annotation: str | Mapping[str, Any]) -> Iterator[None]:
    """As `mark_kernels`, with the number of a stream that traces show the work on."""
    with _scope({**_normalized(annotation), "stream": stream}):
        yield


def get_stream_for_pg(pg_key: Hashable) -> int:
    """Give a group of processes a lane of its own in traces.

    Parameters
    ----------
    pg_key
        What names the group. The same key has the same lane for the life of the process.

    Returns
    -------
    int
        A number for `mark_stream`, beyond those of streams: 1000 for the first key, then 1001.
    """
    with _lanes_lock:
        return _lanes.setdefault(pg_key, _FIRST_LANE + len(_lanes))


class _BackwardScope:
    """What an operation's backward runs in: the annotation of its forward, and the phase."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = {**fields, "autograd_phase": "backward"}
        self._open: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._open.append(_scope(self.fields, backward=False))
        self._open[-1].__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._open.pop().__exit__(*exception)


_open: set[_BackwardScope] = set()


def _present_scope() -> _BackwardScope | None:
    """What operations recorded now keep for their backward."""
    stack = getattr(_scopes, "forward", None)
    return stack[-1] if stack else None


@contextmanager
def _for_backward(fields: dict[str, Any]) -> Iterator[None]:
    stack = _scopes.__dict__.setdefault("forward", [])
    outer = dict(stack[-1].fields) if stack else {}
    scope = _BackwardScope({**outer, **fields})
    stack.append(scope)
    _open.add(scope)
    _autograd.set_scope_source(_present_scope)
    try:
        yield
    finally:
        stack.pop()
        _open.discard(scope)
        if not _open:  # in no thread
            _autograd.set_scope_source(None)


@contextmanager
def _scope(fields: dict[str, Any], backward: bool = True) -> Iterator[None]:
    # Only a `CUDAGraph` is ever captured into: its base class is not public.
    captured = _graph.currently_capturing() if _graph.any_capturing() else None
    graph = cast("CUDAGraph | None", captured)
    notes = None if graph is None else graph._annotations
    if notes is None:
        yield
        return
    template, _ = _graph_data.current_frontier()
    before = set(_graph_data.nodes(template)) if template else set()
    try:
        with _for_backward(fields) if backward else nullcontext():
            yield
    finally:
        now, frontier = _graph_data.current_frontier()
        if template and now == template:
            notes.add(_made_since(before, frontier), fields)


def _made_since(before: set[int], frontier: list[int]) -> set[int]:
    """The nodes that a frontier depends on, and is, without those of before."""
    found = set(frontier) - before
    open_nodes = list(found)
    while open_nodes:
        for earlier in _graph_data.dependencies(open_nodes.pop()):
            if earlier not in before and earlier not in found:
                found.add(earlier)
                open_nodes.append(earlier)
    return found


def get_kernel_annotations() -> Mapping[int, list[dict[str, Any]]]:
    """The annotations of all graphs that are alive: a live, read-only mapping.

    Returns
    -------
    Mapping
        A node's id, ``graph id << 32 | node id`` with the executable graph's id, to a list with
        one dict. Entries go when their graph does.

    Examples
    --------
    >>> import flambeau as torch
    >>> x, g = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    >>> with torch.cuda.graph(g, enable_annotations=True):
    ...     with torch.cuda.graph_annotations.mark_kernels("increment"):
    ...         y = x + 1
    >>> list(torch.cuda.graph_annotations.get_kernel_annotations().values())
    [[{'name': 'increment'}]]
    """
    return MappingProxyType(registry)
