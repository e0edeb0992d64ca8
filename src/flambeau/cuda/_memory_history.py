# SPDX-License-Identifier: Apache-2.0
"""Histories of the allocators, and snapshots that tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.cuda import _memory_ranges
from flambeau.cuda._memory_pool import pool_snapshot
from flambeau.runtime import (
    _allocator,
    _allocator_history,
    _allocator_settings,
    _memory_stats,
    _state,
    lazy_init,
    out_of_memory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime._tensor import Tensor

__all__ = ["memory_snapshot"]

_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
)
_UNLIMITED = (1 << 63) - 1


# --- recording ----------------------------------------------------------------------------------


def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    """Record what the allocators do, for `_snapshot`. Initialises CUDA.

    Costs nothing while off.

    Parameters
    ----------
    enabled
        ``"all"`` keeps the stacks of live memory and a trace of all that happens, ``"state"`` the
        stacks and the last entry only; None stops and forgets the trace. A bool here means the
        old form of this call, with separate flags.
    context
        Whose Python stacks to keep: None, ``"state"`` (of memory that is held), ``"alloc"`` (of
        allocations in the trace too) or ``"all"`` (of frees too).
    stacks
        ``"python"`` or ``"all"``; the C++ frames of flambeau itself are in neither.
    max_entries
        How many entries to keep for each device; the newest stay.
    device
        Accepted as in torch; all devices record.
    clear_history
        Whether to forget what was recorded so far.
    compile_context
        Accepted as in torch; there are no compilations to name.
    global_record_annotations
        Whether the ranges of ``torch.profiler.record_function`` in all threads show in the
        snapshot, or those of the calling thread alone.
    skip_actions
        Actions of which no entry is made, such as ``["free_requested"]``.
    record_pinned_host_memory
        Whether to record the allocator of pinned memory too.
    record_cuda
        Whether to record device memory.

    Raises
    ------
    RuntimeError
        An argument has none of its values; nothing has changed then.
    TypeError
        `max_entries` is negative.
    """
    if isinstance(enabled, bool):
        _record_memory_history_legacy(enabled, *args, **kwargs)
    else:
        _record_memory_history_impl(enabled, *args, **kwargs)


def _record_memory_history_impl(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = 9223372036854775807,
    device: DeviceArgument = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Record as `_record_memory_history` says."""
    _one_of("state", enabled, (None, "state", "all"))
    _one_of("context", context, (None, "state", "alloc", "all"))
    _one_of("stacks", stacks, ("python", "all"))
    most = _entries(max_entries)
    skipped = _actions(skip_actions)
    if enabled is None and record_pinned_host_memory:
        raise RuntimeError(
            "record_pinned_host_memory=True needs a history that is on: pass enabled='all' or "
            "'state'"
        )
    lazy_init.lazy_init()
    _allocator.check_native("memory histories")
    if enabled is None:
        _allocator_history.stop(cuda=record_cuda)
        _memory_ranges.stop()
        return
    _memory_ranges.start(most, every_thread=global_record_annotations, clear=clear_history)
    _allocator_history.record(
        context,
        1 if enabled == "state" else most,
        skipped,
        clear=clear_history,
        cuda=record_cuda,
        host=record_pinned_host_memory,
    )


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: DeviceArgument = None,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Record as `_record_memory_history` does, by the older flags.

    Parameters
    ----------
    enabled
        Whether to record.
    record_context, trace_alloc_record_context
        Whether to keep the stacks of memory that is held, and of allocations in the trace.
    trace_alloc_max_entries
        How many entries to keep.
    device, record_context_cpp, compile_context
        Accepted as in torch.
    clear_history, global_record_annotations, skip_actions, record_pinned_host_memory, record_cuda
        As for `_record_memory_history`.
    """
    context = None
    if trace_alloc_record_context:
        context = "alloc"
    elif record_context:
        context = "state"
    _record_memory_history_impl(
        "all" if enabled else None,
        context,
        "all" if record_context_cpp else "python",
        trace_alloc_max_entries,
        device,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
        record_pinned_host_memory,
        record_cuda,
    )


_record_memory_history.__wrapped__ = _record_memory_history_impl  # type: ignore[attr-defined]


def _one_of(name: str, value: object, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        listed = ", ".join(repr(one) for one in allowed)
        raise RuntimeError(f"expected {name} to be one of {listed}, got {value!r}")


def _entries(most: int) -> int:
    if not isinstance(most, int) or most < 0:
        raise TypeError(f"max_entries is a number of entries from 0 up, got {most!r}")
    return min(max(most, 1), _UNLIMITED)


def _actions(names: Sequence[str] | None) -> list[str]:
    for name in names or ():
        if name not in _ACTIONS:
            raise RuntimeError(
                f"Unknown TraceEntry action {name!r}; the actions are {', '.join(_ACTIONS)}"
            )
    return list(names or ())


# --- snapshots ----------------------------------------------------------------------------------


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Every segment that is reserved on any device, and the blocks in it.

    Parameters
    ----------
    mempool_id
        Only the segments of this pool.
    include_traces
        Accepted as in torch; the segments have no traces.

    Returns
    -------
    list of dict
        By device and address. Each has ``device``, ``address``, ``total_size``,
        ``allocated_size``, ``active_size``, ``requested_size``, ``stream``, ``segment_type``,
        ``segment_pool_id``, ``is_expandable``, ``frames`` and ``blocks``; empty before CUDA is
        initialised and for an unknown pool.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(1, device="cuda")
    >>> torch.cuda.memory_snapshot()[0]["segment_pool_id"]
    (0, 0)
    """
    return pool_snapshot(mempool_id)


def _snapshot(
    device: DeviceArgument = None, augment_with_fx_traces: bool = False
) -> dict[str, Any]:
    """The state of all allocators, and what was recorded.

    Parameters
    ----------
    device
        Accepted as in torch; all devices are listed.
    augment_with_fx_traces
        Accepted as in torch; there are no FX graphs to name.

    Returns
    -------
    dict
        ``segments`` as `memory_snapshot`, ``device_traces`` (a list of entries for each device,
        oldest first), ``allocator_settings``, ``external_annotations`` (the begin and the end of
        each named range: ``stage``, ``name``, ``device`` and ``time_us``), ``host_segments`` and
        ``host_traces``.
    """
    known: dict[Any, Any] = {}
    segments = _allocator.memory_snapshot_raw(known)
    segments.sort(key=lambda segment: (segment["device"], segment["address"]))
    ready = _state.is_initialized()
    return {
        "segments": segments,
        "device_traces": _allocator_history.traces(known) if ready else [],
        "allocator_settings": _allocator_settings.describe(),
        "external_annotations": _memory_ranges.entries(),
        "host_segments": _memory_stats.host_snapshot_raw(known),
        "host_traces": _allocator_history.host_traces(known),
    }


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write a `_snapshot` to a file: plain containers, pickle protocol 4, which all viewers read.

    Parameters
    ----------
    filename
        The file; a name that ends in ``.jsonl`` or ``.jsonl.gz`` gives JSON lines instead, which
        any language reads.
    augment_with_fx_traces
        As for `_snapshot`.
    """
    import pickle

    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    if filename.endswith((".jsonl", ".jsonl.gz")):
        from flambeau.cuda import _memory_file

        _memory_file.write_lines(snapshot, filename)
        return
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def _save_segment_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Write a flame graph of the segments as SVG.

    Parameters
    ----------
    filename
        The file.
    snapshot
        What `_snapshot` returned; None takes one.
    """
    from flambeau.cuda import _memory_viz

    _write(filename, _memory_viz.segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(
    filename: str = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Write a flame graph of the memory as SVG.

    Parameters
    ----------
    filename
        The file.
    snapshot
        What `_snapshot` returned; None takes one.
    """
    from flambeau.cuda import _memory_viz

    _write(filename, _memory_viz.memory(_snapshot() if snapshot is None else snapshot))


def _write(filename: str, text: str) -> None:
    with open(filename, "w", encoding="utf-8") as file:
        file.write(text)


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack of who allocated a live block, innermost frame first.

    Parameters
    ----------
    data_ptr
        The block's first address.

    Returns
    -------
    list of dict or None
        Each with ``name``, ``filename`` and ``line``; None where nothing was recorded.
    """
    return _allocator_history.traceback_of(data_ptr)


# --- what users add -----------------------------------------------------------------------------


def _memory_metadata_supported() -> bool:
    """Whether entries carry the text of `_set_memory_metadata`."""
    return not (_allocator.is_foreign() or _allocator.is_async())


def _set_memory_metadata(metadata: str | dict[str, Any]) -> None:
    """Add a text to all entries that this thread makes from now on; an empty one ends that.

    Parameters
    ----------
    metadata
        The text; a dict is written as JSON.
    """
    _allocator_history.set_metadata(_text(metadata))


def _text(metadata: str | dict[str, Any]) -> str:
    if isinstance(metadata, dict):
        import json

        return json.dumps(metadata, separators=(",", ":"))
    if not isinstance(metadata, str):
        raise TypeError(f"metadata is a str or a dict, got {type(metadata).__name__}")
    return metadata


def _get_memory_metadata() -> str:
    """The text that `_set_memory_metadata` set in this thread."""
    return _allocator_history.get_metadata()


def _annotate_tensor(tensor: Tensor, metadata: str | dict[str, Any]) -> None:
    """Make an entry about the memory behind a tensor.

    Parameters
    ----------
    tensor
        A CUDA tensor.
    metadata
        The entry's text; a dict is written as JSON.

    Raises
    ------
    ValueError
        The tensor is no CUDA tensor.
    RuntimeError
        It has no memory, or none of the caching allocator's.
    """
    if not tensor.is_cuda:
        raise ValueError(f"only CUDA tensors can be annotated, this one is on {tensor.device}")
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        raise RuntimeError("the tensor is empty: there is no memory to annotate")
    _allocator_history.annotate(storage._cdata, _text(metadata))


def _attach_out_of_memory_observer(observer: out_of_memory.Observer) -> None:
    """Have a function called before each out-of-memory error. Initialises CUDA.

    Parameters
    ----------
    observer
        Gets the device, the bytes asked of the driver, the limit or the capacity, and what is
        free. What it raises is raised in place of the error, which becomes its cause.
    """
    lazy_init.lazy_init()
    _allocator.check_native("out-of-memory observers")
    out_of_memory.attach_observer(observer)


def _detach_out_of_memory_observer(observer: out_of_memory.Observer) -> None:
    """Undo one `_attach_out_of_memory_observer`."""
    out_of_memory.detach_observer(observer)
