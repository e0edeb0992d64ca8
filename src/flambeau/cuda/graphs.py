# SPDX-License-Identifier: Apache-2.0
"""Graphs: the work of streams, captured once and launched many times at the cost of one launch."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import pickle
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flambeau.cuda import _device
from flambeau.cuda._graph_annotations import AnnotationConfig, GraphAnnotations, is_available
from flambeau.cuda._graph_export import graph_data
from flambeau.cuda._graph_hooks import HookHandle, HookList
from flambeau.cuda._graph_hooks_of_all import (
    all_capture_end,
    all_capture_start,
    all_destroy,
    all_instantiate,
    all_replay_end,
    all_replay_start,
    register_graph_capture_end_hook,
    register_graph_capture_start_hook,
    register_graph_destroy_hook,
    register_graph_instantiate_hook,
    register_graph_replay_end_hook,
    register_graph_replay_start_hook,
)
from flambeau.cuda._memory_pool import graph_pool_handle
from flambeau.cuda.streams import ExternalStream, Stream, StreamContext, is_current_stream_capturing
from flambeau.driver.errors import AcceleratorError
from flambeau.runtime import (
    _allocator,
    _graph,
    _graph_conditional,
    _graph_data,
    lazy_init,
    observers,
)
from flambeau.runtime._graph_inputs import WatchedInputs
from flambeau.runtime._stream import current_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from flambeau.cuda._graphed_callables import make_graphed_callables
    from flambeau.runtime._generator import Generator
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "CUDAGraph",
    "export_dot",
    "export_graph_data",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]

_logger = logging.getLogger(__name__)
_alive: weakref.WeakSet[CUDAGraph] = weakref.WeakSet()


class CUDAGraph(_graph.CapturedGraph):
    """A graph of captured work (``CUgraph`` and ``CUgraphExec``).

    `graph` is the usual way to capture one; `replay` launches it.

    Parameters
    ----------
    keep_graph
        Keep the template after the capture, for `raw_cuda_graph` and for more than one
        `instantiate`. The graph is then instantiated by `instantiate` or the first `replay`.

    Examples
    --------
    >>> import flambeau as torch
    >>> g, x = torch.cuda.CUDAGraph(), torch.ones(3, device="cuda")
    >>> with torch.cuda.graph(g):
    ...     y = x * 2
    >>> x.fill_(5).tolist()
    [5.0, 5.0, 5.0]
    >>> g.replay()
    >>> y.tolist()
    [10.0, 10.0, 10.0]
    """

    _closed = True  # destruction was told, or there is nothing to tell of yet

    def __init__(self, keep_graph: bool = False) -> None:
        self._capture_start, self._capture_end = HookList(), HookList()
        self._post_instantiate = HookList()
        see_hooks = weakref.WeakMethod(self._see_hooks)
        self._replay_start, self._replay_end = (HookList(see_hooks) for _ in range(2))
        self._destroy_callbacks: list[Callable[[], object]] = []
        self._retained: list[object] = []
        self._annotations: GraphAnnotations | None = None
        self._data: dict[str, Any] | None = None
        self._replay_streams: set[int] | None = None  # kept if a destruction waits for them
        self._inputs: WatchedInputs | None = None
        self._watched = False  # all of the capture's inputs are known
        self._closed = False
        _alive.add(self)

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._tell_destruction()
        super().__del__()

    # -- capturing -------------------------------------------------------------------------------

    def capture_begin(
        self,
        pool: object = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture the current stream's work (``cuStreamBeginCapture``).

        Parameters
        ----------
        pool
            Whose memory to use: what `graph_pool_handle` or another graph's `pool` gave, or a
            ``MemPool``; by default a new private one.
        capture_error_mode
            Whose potentially unsafe calls break the capture: ``"global"`` those of all threads,
            ``"thread_local"`` those of this one, ``"relaxed"`` none.
        check_input_liveness
            Have each `replay` raise if a tensor that the graph reads or writes, and that was not
            made in the capture, is gone by then. Its memory is held as long as the graph.

        Raises
        ------
        RuntimeError
            The graph owns a capture already, the current stream is the default one, or the mode is
            unknown.
        """
        super().capture_begin(pool, capture_error_mode)
        if check_input_liveness:
            self._inputs, self._watched = WatchedInputs(self.pool()), False
            observers.register("operation", self._watch_inputs)
        self._closed = False
        if self._annotations is not None:
            self._annotations.begin(_graph_data.graph_id(_graph_data.current_frontier()[0]))
        all_capture_start.run_all(self)
        try:
            self._capture_start.run(self)
        except BaseException:
            self.reset()
            raise

    def capture_end(self) -> None:
        """End the capture, tell the hooks and instantiate, unless ``keep_graph`` was asked for.

        Raises
        ------
        AcceleratorError
            The capture is invalid: the error of the call that broke it first.
        RuntimeError
            Another stream is current than at the beginning.
        """
        self.capture_end_pre()
        try:
            all_capture_end.run_all(self)
            self._capture_end.run(self)
            if not self._keeps_graph():
                self.instantiate()
        finally:
            self.capture_end_post()

    def capture_end_pre(self) -> None:
        """End the capture (``cuStreamEndCapture``); the first part of `capture_end`."""
        try:
            super().capture_end_pre()
        finally:
            if not self._is_capturing:  # it is still, if the end was asked for on another stream
                self._stop_watching()
        self._see_hooks()

    def capture_end_post(self) -> None:
        """Drop the template unless ``keep_graph`` was asked for; the last part of `capture_end`."""
        super().capture_end_post()

    def instantiate(self) -> None:
        """Make the executable graph (``cuGraphInstantiateWithFlags``).

        With ``keep_graph=True`` it may be called again: the new executable replaces the old one.

        Raises
        ------
        RuntimeError
            Nothing was captured, or it is instantiated and the template was not kept.
        """
        self._instantiate()
        self._data = None
        if self._annotations is not None:
            self._annotations.move(_graph_data.exec_id(self.raw_cuda_graph_exec()))
        all_instantiate.run_all(self)
        self._post_instantiate.run(self)

    # -- running -----------------------------------------------------------------------------------

    def _replay_with_hooks(self) -> None:
        if self._inputs is not None:
            self._refuse_dead_inputs(self._inputs)
        if not self._has_graph_exec:
            self.instantiate()  # the first replay of one that is kept; says what is wrong otherwise
        all_replay_start.run_all(self)
        self._replay_start.run(self)
        try:
            self._launch()
            if self._replay_streams is not None:
                self._replay_streams.add(current_stream(self._device).cuda_stream)
        finally:
            all_replay_end.run_all(self)
            self._replay_end.run(self)

    def reset(self) -> None:
        """Give up what was captured, with its memory; the object may capture again."""
        self._stop_watching()
        self._tell_destruction()
        self._release()
        self._closed = True

    def _watch_inputs(self, name: str, read: object, written: object, stream: int) -> None:
        if self._inputs is not None and _graph.currently_capturing() is self:
            self._inputs.watch(name, (*read, *written))  # type: ignore[misc]

    def _stop_watching(self) -> None:
        if self._inputs is not None and not self._watched:
            self._watched = True
            observers.unregister("operation", self._watch_inputs)

    def _refuse_dead_inputs(self, inputs: WatchedInputs) -> None:
        dead = inputs.dead()
        if dead:
            raise RuntimeError(
                f"CUDA graph replay detected {len(dead)} dead tensor(s). The graph would read or "
                "write memory that nobody holds any more; keep what it uses alive:\n"
                + "\n".join(dead)
            )

    # -- what it is --------------------------------------------------------------------------------

    def pool(self) -> tuple[int, int]:
        """The id of the pool that holds its memory, for other graphs to share.

        Raises
        ------
        RuntimeError
            Nothing was captured.
        """
        return super().pool()

    def pools(self) -> list[tuple[int, int]]:
        """The id of its pool and of those that ``use_mem_pool`` entered during the capture."""
        return super().pools()

    def raw_cuda_graph(self) -> int:
        """The template's handle (``CUgraph``); it is kept with ``keep_graph=True`` only."""
        return super().raw_cuda_graph()

    def raw_cuda_graph_exec(self) -> int:
        """The executable's handle (``CUgraphExec``); each `instantiate` makes a new one."""
        return super().raw_cuda_graph_exec()

    @staticmethod
    def get_currently_capturing_graph() -> CUDAGraph | None:
        """The graph that the current stream is captured into, or None."""
        found = _graph.currently_capturing()
        return found if isinstance(found, CUDAGraph) else None

    def begin_capture_to_if_node(self, scalar_cuda_pred_tensor: Tensor) -> None:
        """Begin a part of the graph that a replay runs only if a tensor holds True then.

        Until `end_capture_to_conditional_node` the current stream is one of the part's own.
        Random numbers cannot be drawn in it, host functions and external events have no place in
        it, and parts can be nested. A conditional node of CUDA 12.4 and later.

        Parameters
        ----------
        scalar_cuda_pred_tensor
            A bool tensor of one element on the device of the capture. It is read when a replay
            reaches this place, so captured work may have computed it.

        Raises
        ------
        RuntimeError
            No capture is under way, or the current stream is no part of it.
        ValueError
            The tensor is none of these.

        Examples
        --------
        >>> import flambeau as torch
        >>> x, wanted = torch.zeros(2, device="cuda"), torch.tensor(True, device="cuda")
        >>> g = torch.cuda.CUDAGraph()
        >>> with torch.cuda.graph(g):
        ...     g.begin_capture_to_if_node(wanted)
        ...     _ = x.add_(1)
        ...     g.end_capture_to_conditional_node()
        >>> g.replay()
        >>> _ = wanted.fill_(False)
        >>> g.replay()
        >>> x.tolist()
        [1.0, 1.0]
        """
        _graph_conditional.begin_body(
            self, False, scalar_cuda_pred_tensor, "begin_capture_to_if_node"
        )

    def begin_capture_to_while_node(self, scalar_cuda_pred_tensor: Tensor) -> None:
        """Begin a part of the graph that a replay repeats while a tensor holds True.

        As `begin_capture_to_if_node`; the tensor is read before the first time. The part must
        call `set_conditional_handle_for_current_node` to have it read again, or it never ends.
        """
        _graph_conditional.begin_body(
            self, True, scalar_cuda_pred_tensor, "begin_capture_to_while_node"
        )

    def set_conditional_handle_for_current_node(self, scalar_cuda_pred_tensor: Tensor) -> None:
        """Have the replay read the tensor here, to decide whether the part is run again.

        Parameters
        ----------
        scalar_cuda_pred_tensor
            A bool tensor of one element on the device of the capture.
        """
        _graph_conditional.set_condition(self, scalar_cuda_pred_tensor)

    def end_capture_to_conditional_node(self) -> None:
        """End the innermost conditional part; the stream before it becomes current again."""
        _graph_conditional.end_body(self)

    def register_generator_state(self, generator: Generator) -> None:
        """Do nothing: generators join a graph when it first draws from them.

        .. deprecated:: 0.1
        """
        warnings.warn(
            "register_generator_state() does nothing: generators join a graph at their first use",
            FutureWarning,
            stacklevel=2,
        )

    def enable_debug_mode(self) -> None:
        """Keep the template, for `debug_dump`."""
        self._keep()

    def debug_dump(self, debug_path: str | os.PathLike[str], *, verbose: bool = True) -> None:
        """Write the graph as Graphviz text (``cuGraphDebugDotPrint``).

        Parameters
        ----------
        debug_path
            The file; replaced if it exists.
        verbose
            Whether to write all that is known of each node.

        Raises
        ------
        RuntimeError
            The template was not kept; see ``keep_graph`` and `enable_debug_mode`.
        """
        _graph_data.print_dot(self.raw_cuda_graph(), os.fsencode(debug_path), verbose)

    def get_graph_data(self) -> dict[str, Any]:
        """What the graph consists of.

        Returns
        -------
        dict
            ``exec_graph_id``; ``nodes``, dicts with ``index node_type tools_id graph_id node_id
            kernel_name grid_dim block_dim shared_mem_bytes event_ptr host_fn_addr host_fn_name
            dependencies dependents``; ``edges``, dicts with ``from to from_port to_port type``.
            What does not apply to a node is None, addresses 0. All hooks of one instantiation get
            the same dict.

        Raises
        ------
        RuntimeError
            The graph is not instantiated, its template is gone, or the driver knows no node ids.
        """
        if self._data is None:
            available = is_available()
            if not available:
                raise RuntimeError(f"get_graph_data() is not available: {available.reason}")
            self._data = graph_data(self.raw_cuda_graph(), self.raw_cuda_graph_exec())
        return self._data

    # -- hooks -------------------------------------------------------------------------------------

    def register_capture_start_hook(self, hook: Callable[[CUDAGraph], object]) -> HookHandle:
        """Have `hook(graph)` called when the capture has begun; no CUDA work is allowed in it.

        Hooks of a graph run after those of all graphs. What they raise propagates.
        """
        return self._capture_start.add(hook)

    def register_capture_end_hook(self, hook: Callable[[CUDAGraph], object]) -> HookHandle:
        """Have `hook(graph)` called when the capture has ended well, before the instantiation.

        If it raises, the graph is not instantiated.
        """
        return self._capture_end.add(hook)

    def register_post_instantiate_hook(self, hook: Callable[[CUDAGraph], object]) -> HookHandle:
        """Have `hook(graph)` called after each instantiation."""
        return self._post_instantiate.add(hook)

    def register_replay_start_hook(self, hook: Callable[[CUDAGraph], object]) -> HookHandle:
        """Have `hook(graph)` called before each launch; if it raises, there is none."""
        return self._replay_start.add(hook)

    def register_replay_end_hook(self, hook: Callable[[CUDAGraph], object]) -> HookHandle:
        """Have `hook(graph)` called after each launch was enqueued, also if that raised."""
        return self._replay_end.add(hook)

    def register_destroy_callback(
        self, cb: Callable[[], object], *, synchronize_before_release: bool = False
    ) -> None:
        """Have `cb()` called once when the graph is reset, collected, or at the end of the process.

        Parameters
        ----------
        cb
            It must not refer to the graph, which would keep it alive. What it raises is logged.
        synchronize_before_release
            Wait first for the streams on which the graph was replayed.
        """
        self._destroy_callbacks.append(cb)
        self._wait_before_release(synchronize_before_release)

    def retain_object(self, obj: object, *, synchronize_before_release: bool = False) -> None:
        """Keep an object alive as long as what was captured.

        Parameters
        ----------
        obj
            The object.
        synchronize_before_release
            Wait for the streams on which the graph was replayed before it is let go.
        """
        self._retained.append(obj)
        self._wait_before_release(synchronize_before_release)

    def _wait_before_release(self, wanted: bool) -> None:
        if wanted and self._replay_streams is None:
            self._replay_streams = set()
            self._see_hooks()

    def _see_hooks(self) -> None:
        self._follow_replays(
            bool(len(self._replay_start) or len(self._replay_end))
            or self._replay_streams is not None
            or self._inputs is not None
        )

    def _tell_destruction(self) -> None:
        """Annotations go, hooks and callbacks hear of it; errors of theirs are logged."""
        if self._replay_streams:
            self._synchronize_replays()
        ids = set() if self._annotations is None else self._annotations.close()
        self._annotations = None
        callbacks, self._destroy_callbacks = self._destroy_callbacks, []
        all_destroy.run_all(ids)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _logger.exception("a destroy callback of a graph failed")
        self._retained.clear()
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
        self._replay_streams = None
        self._data = None
        self._see_hooks()

    def _synchronize_replays(self) -> None:
        for stream in self._replay_streams or ():
            try:
                ExternalStream(stream, device=self._device).synchronize()
            except AcceleratorError:
                _logger.exception("waiting for the replays of a graph failed")


def _tell_destruction_at_exit() -> None:
    for alive in list(_alive):
        if not alive._closed:
            alive._closed = True
            alive._tell_destruction()


atexit.register(_tell_destruction_at_exit)


class graph:  # noqa: N801 - torch's name
    """Context manager that captures what is done inside into a graph.

    At its beginning the device is synchronised and the caches are emptied; then a capture begins on
    another stream, which is current inside.

    Parameters
    ----------
    cuda_graph
        The graph to capture into.
    pool
        Whose memory to use, as for `CUDAGraph.capture_begin`.
    stream
        The stream to capture; by default one that all captures share.
    capture_error_mode
        As for `CUDAGraph.capture_begin`.
    enable_annotations
        Whether `graph_annotations.mark_kernels` annotates.
    annotation_config
        Options of the annotations: ``backend``, ``key_by``, ``record_py_stacks``,
        ``py_stack_filter_paths``.
    check_input_liveness
        As for `CUDAGraph.capture_begin`.

    Raises
    ------
    AcceleratorError
        At the end, if the capture is invalid: the error of the call that broke it first.

    Examples
    --------
    >>> import flambeau as torch
    >>> g, x = torch.cuda.CUDAGraph(), torch.zeros(2, device="cuda")
    >>> with torch.cuda.graph(g):
    ...     y = x.add_(1)
    >>> for _ in range(3):
    ...     g.replay()
    >>> x.tolist()
    [3.0, 3.0]
    """

    default_capture_stream: ClassVar[Stream | None] = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: object = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        annotation_config: Mapping[str, Any] | None = None,
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None and graph.default_capture_stream is None:
            graph.default_capture_stream = Stream()
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = graph.default_capture_stream if stream is None else stream
        self.stream_ctx = StreamContext(self.capture_stream)
        self.capture_error_mode = capture_error_mode
        self.enable_annotations = enable_annotations
        self.annotation_config = AnnotationConfig(annotation_config)
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        _device.synchronize()
        if os.environ.get("TORCH_CUDAGRAPH_GC") == "1":
            gc.collect()
        _allocator.empty_cache()
        _allocator.empty_host_cache()
        if self.enable_annotations and is_available():
            self.cuda_graph._annotations = GraphAnnotations()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        first = self.cuda_graph.first_error()
        self.cuda_graph._warn_at_end(value is None)  # else the exception says what went wrong
        try:
            self.cuda_graph.capture_end()
        except AcceleratorError:
            if value is None or value is not first:
                raise
            # What comes out of the block is the very error that broke the capture.
        finally:
            self.stream_ctx.__exit__(kind, value, traceback)


def export_dot(
    path: str | os.PathLike[str], *, verbose: bool = True
) -> Callable[[CUDAGraph], None]:
    """A hook for `CUDAGraph.register_capture_end_hook` that writes the graph as Graphviz text.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    verbose
        Whether to write all that is known of each node.

    Examples
    --------
    >>> import flambeau as torch
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "graph.dot")
    >>> x, g = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    >>> handle = g.register_capture_end_hook(torch.cuda.export_dot(path))
    >>> with torch.cuda.graph(g):
    ...     y = x + 1
    >>> with open(path) as file:
    ...     file.read(11)
    'digraph dot'
    """

    def write(captured: CUDAGraph) -> None:
        captured.debug_dump(path, verbose=verbose)

    return write


def export_graph_data(path: str | os.PathLike[str]) -> Callable[[CUDAGraph], None]:
    """A hook for `CUDAGraph.register_post_instantiate_hook` that pickles the graph's data.

    Parameters
    ----------
    path
        The file; replaced if it exists.

    Examples
    --------
    >>> import flambeau as torch
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "graph.pickle")
    >>> x, g = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph(keep_graph=True)
    >>> handle = g.register_post_instantiate_hook(torch.cuda.export_graph_data(path))
    >>> with torch.cuda.graph(g):
    ...     y = x + 1
    >>> g.instantiate()
    >>> os.path.getsize(path) > 0
    True
    """

    def write(captured: CUDAGraph) -> None:
        Path(path).write_bytes(pickle.dumps(captured.get_graph_data()))

    return write


def _forget() -> None:
    graph.default_capture_stream = None


lazy_init.on_forget(_forget)


def __getattr__(name: str) -> Any:
    if name == "make_graphed_callables":  # it needs gradients, which graphs do not
        from flambeau.cuda._graphed_callables import make_graphed_callables

        return make_graphed_callables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
