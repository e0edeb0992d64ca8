# SPDX-License-Identifier: Apache-2.0
"""The profiler: what it collects over the steps of a program, and what it hands over."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
import warnings
from typing import TYPE_CHECKING, Any

from flambeau.profiler import _chrome, _collect, _stacks
from flambeau.profiler._events import EventList, events_of
from flambeau.profiler._settings import (
    CuspyConfig,
    PerformanceMetricsConfig,
    ProfilerAction,
    ProfilerActivity,
    ProfilerActivityConfig,
    why_no_cuda,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from flambeau.profiler._execution_trace import ExecutionTraceObserver
    from flambeau.profiler._recorder import Span
    from flambeau.profiler._timeline import Timeline

__all__ = ["profile", "tensorboard_trace_handler"]

_ACTIVE = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


class profile:  # noqa: N801 - torch's name
    """Context manager: collect what the host asks for and what GPUs do.

    On virtual GPUs all times are those of the modelled clock, so a trace is the same every time. On
    NVIDIA GPUs they come from CUPTI (extra ``profile``).

    Parameters
    ----------
    activities
        What to collect: `ProfilerActivity` members, or a dict from them to a
        `ProfilerActivityConfig`. Default: all that can be collected here.
    schedule
        From the number of a step to a `ProfilerAction`; see `flambeau.profiler.schedule`. Default
        None records everything.
    on_trace_ready
        Called with the profiler when a trace is complete. Default None.
    record_shapes
        Whether operands' shapes and dtypes are noted. Default False.
    profile_memory
        Whether memory taken and given back is noted. Default False.
    with_stack
        Whether operations carry the program's stack. Default False.
    with_flops
        Whether floating-point operations are estimated for products and sums; implies
        `record_shapes`. Default False.
    with_modules
        Deprecated in favour of `with_stack`; without effect.
    experimental_config
        A `CuspyConfig`. Default None.
    execution_trace_observer
        An `ExecutionTraceObserver` that runs while this profiler records. Default None.
    acc_events
        Whether `events` and `key_averages` cover all recordings of a schedule, not only the
        newest. Default False.
    custom_trace_id_callback
        Names a trace; see `get_trace_id`. Default None.
    post_processing_timeout_s
        Accepted; there is no background processing.

    Raises
    ------
    ValueError
        An activity is given twice.
    AssertionError
        No activity is given.

    Warns
    -----
    UserWarning
        CUDA is asked for and cannot be collected; the text says why.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.profiler.profile() as prof:
    ...     y = torch.ones(1024, device="cuda") * 2
    >>> [event.name for event in prof.events() if event.name.startswith("aten")]
    ['aten::fill_', 'aten::mul']
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity]
        | Mapping[ProfilerActivity, ProfilerActivityConfig]
        | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object | None = None,
        execution_trace_observer: ExecutionTraceObserver | None = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        configs = activities if isinstance(activities, dict) else {}
        self.activities = _chosen(activities)
        self.schedule = schedule or _always
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes or with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.acc_events = acc_events
        self.execution_trace_observer = execution_trace_observer
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._steps = schedule is not None
        self._step_span: Span | None = None
        self._session: _collect.Session | None = None
        self._timeline: Timeline | None = None
        self._events = EventList()
        self._metadata: dict[str, Any] = {}
        self._preset: dict[str, Any] = {}
        self._trace_id = ""
        self._trace_id_callback = custom_trace_id_callback
        self._options(configs, experimental_config)

    def _options(
        self, configs: Mapping[ProfilerActivity, ProfilerActivityConfig], experimental: object
    ) -> None:
        given = [c for config in configs.values() for c in config.profiler_configs]
        given += [experimental] if experimental is not None else []
        if any(isinstance(config, PerformanceMetricsConfig) for config in given):
            raise NotImplementedError("flambeau does not sample hardware counters")
        self._waits = any(
            isinstance(c, CuspyConfig) and c.enable_cuda_sync_events for c in given
        ) or bool(getattr(experimental, "enable_cuda_sync_events", False))
        kept = [c.activity_types for c in configs.values()]
        self._keep = set().union(*(k for k in kept if k)) if kept and all(kept) else None

    # --- recording

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, with what the schedule says of step 0."""
        self._enter(self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End. What was being recorded is complete, and `on_trace_ready` is called for it."""
        self._end_step()
        if self.current_action is ProfilerAction.WARMUP:
            self._drop()
        if self.current_action in _ACTIVE and self._session is not None:
            self.stop_trace()
            self._hand_over()

    def step(self) -> None:
        """End a step and begin the next, as the schedule says."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self.stop_trace()
            self._hand_over()
            self._enter(self.current_action)
        elif before in _ACTIVE and self.current_action not in _ACTIVE:
            warnings.warn(
                "the schedule stopped recording without RECORD_AND_SAVE; the trace is dropped",
                UserWarning,
                stacklevel=2,
            )
            self.stop_trace()
            self._enter(self.current_action)
        elif before not in _ACTIVE:
            self._enter(self.current_action)
        self._begin_step()

    def _enter(self, action: ProfilerAction) -> None:
        if action is ProfilerAction.WARMUP:
            self.prepare_trace()
        elif action in _ACTIVE:
            self.start_trace()

    def _begin_step(self) -> None:
        if self._steps and self._session is not None and self.current_action in _ACTIVE:
            self._step_span = self._session.recorder.open_span(f"ProfilerStep#{self.step_num}")

    def _end_step(self) -> None:
        if self._step_span is not None and self._session is not None:
            self._session.recorder.close_span(self._step_span)
        self._step_span = None

    def _hand_over(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def prepare_trace(self) -> None:
        """Begin to collect for nothing, so that the recording does not pay for the beginning."""
        self._drop()
        self._session = self._new_session()

    def start_trace(self) -> None:
        """Begin to record; what was collected before is dropped."""
        self._drop()
        self._metadata = dict(self._preset)
        self._trace_id = self._next_trace_id()
        self._session = self._new_session()
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.start()

    def stop_trace(self) -> None:
        """End the recording and put it together."""
        if self._session is None:
            raise RuntimeError("no trace is being recorded; start_trace() or start() begins one")
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.stop()
        session, self._session = self._session, None
        self._timeline = session.stop()
        if self._timeline.dropped:
            warnings.warn(
                f"{self._timeline.dropped} records of GPU activity were lost: buffers were full",
                UserWarning,
                stacklevel=2,
            )
        fresh = events_of(self._timeline, flops=self.with_flops)
        self._events = EventList([*self._events, *fresh]) if self.acc_events else fresh

    def _new_session(self) -> _collect.Session:
        session = _collect.Session(
            cpu=ProfilerActivity.CPU in self.activities,
            cuda=ProfilerActivity.CUDA in self.activities,
            shapes=self.record_shapes,
            memory=self.profile_memory,
            stacks=self.with_stack,
        )
        session.start()
        return session

    def _drop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Turn activities on or off while recording.

        Parameters
        ----------
        enable
            On or off.
        activities
            Which.

        Raises
        ------
        RuntimeError
            Nothing is being recorded.
        """
        if self._session is None:
            raise RuntimeError("activities can be toggled while a profiler records, not before")
        chosen = set(activities)
        if ProfilerActivity.CPU in chosen:
            self._session.toggle_cpu(enable)
        if ProfilerActivity.CUDA in chosen:
            self._session.toggle_cuda(enable)

    # --- what was recorded

    def events(self) -> EventList:
        """Every event of the newest recording, of all recordings with `acc_events`.

        Returns
        -------
        EventList
            Of `FunctionEvent`: times in microseconds since the recording began.

        Raises
        ------
        AssertionError
            Nothing has been recorded.
        """
        self._recorded()
        return self._events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
    ) -> EventList:
        """Totals by name, ready for ``.table()``.

        Parameters
        ----------
        group_by_input_shape
            Whether operations on different shapes are kept apart (needs `record_shapes`). Default
            False.
        group_by_stack_n
            How many innermost frames must be the same (needs `with_stack`). Default 0.
        group_by_overload_name, include_python_functions
            Without effect.
        """
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(
        self,
        path: str,
        use_python_export: bool = False,
        cuda_graph_annotations: Mapping[Any, Any] | None = None,
        graph_lanes: str = "none",
        default_stream: int = 7,
    ) -> None:
        """Write the trace as JSON that Perfetto and Chrome open.

        Parameters
        ----------
        path
            The file; a name that ends in ``.gz`` makes it packed.
        use_python_export
            Without effect: there is one writer.
        cuda_graph_annotations
            From nodes' ids to their annotations, as
            ``torch.cuda.graph_annotations.get_kernel_annotations`` gives them. Default None takes
            those that were alive when the recording ended.
        graph_lanes
            ``"all"`` moves work of graphs to the streams that annotations name. Default
            ``"none"``.
        default_stream
            Where ``"all"`` puts the rest. Default 7.

        Raises
        ------
        ValueError
            Lanes are unknown, or ``"all"`` comes without annotations.
        AssertionError
            Nothing has been recorded.
        """
        lanes = _chrome.GraphLanes(cuda_graph_annotations, graph_lanes, default_stream)
        _chrome.write(path, self._trace(lanes, os.fspath(path)))

    def _trace(self, lanes: _chrome.GraphLanes, name: str) -> dict[str, Any]:
        metadata = {
            **_collect.versions(),
            "trace_id": self._trace_id,
            "with_flops": int(self.with_flops),
            "record_shapes": int(self.record_shapes),
            "with_stack": int(self.with_stack),
            "profile_memory": int(self.profile_memory),
            **self._metadata,
        }
        return _chrome.trace(
            self._recorded(),
            lanes,
            metadata=metadata,
            name=name,
            waits=self._waits,
            keep=self._keep,
        )

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with a total each, for flame graphs; needs `with_stack`.

        Parameters
        ----------
        path
            The file; lines are ``outer;inner NUMBER``.
        metric
            ``"self_cpu_time_total"`` or ``"self_cuda_time_total"``, in microseconds.

        Raises
        ------
        ValueError
            There is no such metric.
        """
        _stacks.write(path, self.events(), metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write memory use over time; needs `profile_memory`.

        Parameters
        ----------
        path
            ``.html`` makes a page that draws it, ``.json`` (or ``.json.gz``) two lists, of times in
            microseconds and of bytes.
        device
            ``"cpu"`` or ``"cuda:0"``; default: the current GPU if there is one.

        Raises
        ------
        ValueError
            Memory was not profiled.
        """
        if not self.profile_memory:
            raise ValueError("export_memory_timeline needs profile(profile_memory=True)")
        _stacks.write_memory(path, self._recorded(), device)

    def _recorded(self) -> Timeline:
        if self._timeline is None:
            raise AssertionError(
                "nothing has been recorded: run the profiler (start() ... stop()) first"
            )
        return self._timeline

    def wait_for_exports(self) -> None:
        """Wait for traces that are written in the background: there are none."""

    def take_pending_cuspy_export(self) -> None:
        """Nothing is pending, ever."""

    # --- about the trace

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace's header."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put JSON text into the trace's header, as the value that it stands for."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """As `add_metadata_json`, for every recording that begins later."""
        self._preset[key] = json.loads(value)

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Have a function name each trace."""
        self._trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The name of the present trace; None before the first."""
        return self._trace_id or None

    def _next_trace_id(self) -> str:
        if self._trace_id_callback is not None:
            return str(self._trace_id_callback())
        return uuid.uuid4().hex.upper()


def _chosen(
    activities: Iterable[ProfilerActivity] | Mapping[ProfilerActivity, Any] | None,
) -> set[ProfilerActivity]:
    if activities is None:
        chosen = [ProfilerActivity.CPU]
        if not why_no_cuda():
            chosen.append(ProfilerActivity.CUDA)
        return set(chosen)
    chosen = list(activities)
    for activity in chosen:
        if chosen.count(activity) > 1:
            raise ValueError(f"the activity {activity} is given more than once")
    if not chosen:
        raise AssertionError("No valid profiler activities found: give CPU, CUDA or both")
    trouble = why_no_cuda() if ProfilerActivity.CUDA in chosen else ""
    if trouble:
        warnings.warn(
            f"GPU activity cannot be profiled, only the CPU is: {trouble}",
            UserWarning,
            stacklevel=3,
        )
        chosen.remove(ProfilerActivity.CUDA)
    return set(chosen)


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[profile], None]:
    """Make an ``on_trace_ready`` that writes each trace into a directory.

    Parameters
    ----------
    dir_name
        The directory; it is made if need be.
    worker_name
        The first part of the files' names. Default: host and process.
    use_gzip
        Whether they are packed. Default False.
    use_python_export
        Without effect.

    Raises
    ------
    RuntimeError
        The directory cannot be made.

    Examples
    --------
    >>> import flambeau as torch
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with torch.profiler.profile(
    ...     on_trace_ready=torch.profiler.tensorboard_trace_handler(folder, "worker")
    ... ):
    ...     y = torch.ones(4, device="cuda") * 2
    >>> [name.split(".")[0] for name in os.listdir(folder)]
    ['worker']
    """

    def handler(prof: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"the directory {dir_name} cannot be made: {error}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}{ending}"))

    return handler


profile.__module__ = tensorboard_trace_handler.__module__ = "flambeau.profiler"
