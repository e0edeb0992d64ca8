# SPDX-License-Identifier: Apache-2.0
"""Out of memory, explained: what was asked, where the memory is, what stopped it, what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

from flambeau import driver
from flambeau.driver.errors import OutOfMemoryError

if TYPE_CHECKING:
    from flambeau.driver.contract import ProcessInfo

__all__ = [
    "Figures",
    "FreeMemory",
    "Observer",
    "async_error",
    "attach_observer",
    "beyond_exabyte",
    "detach_observer",
    "error",
    "explain",
    "format_size",
    "pinned_error",
]


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Free memory that the allocator keeps: bytes, the largest block, and whose that one is."""

    bytes: int = 0
    largest: int = 0
    stream: int = 0
    pool: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of a device's memory when an allocation failed; amounts in bytes.

    Parameters
    ----------
    device
        The device's index.
    requested, rounded, segment_size
        What was asked of the allocator, the size of a block for that, and what it asked of the
        driver.
    stream, pool
        The stream (handle) and the pool that the request was for.
    refused_by
        Who said no: ``"driver"``, ``"limit"`` (what this process may reserve), ``"rejection"`` (the
        configured share, without a retry), ``"reserve"`` (the addresses of an expandable segment),
        ``"source"`` (a user's allocator) or ``"overlap"`` (that gave memory which is reserved
        already).
    total, free
        The device's capacity, and what the driver has left.
    limit
        What the allocator may reserve, or None.
    allocated, reserved
        What tensors hold, and what the allocator got from the driver.
    pending, idle_segments, split_remainders, pool_bytes
        The rest of what is reserved: freed but waiting for events of other streams; wholly free
        segments; free parts of segments in use; free in private pools.
    own, other_stream, other_pool, other_kind
        The free memory again: what the request could have used, and what it could not for being
        another stream's, another pool's, or for requests of another size.
    """

    device: int
    requested: int
    segment_size: int
    total: int
    free: int
    limit: int | None
    allocated: int
    reserved: int
    pool_bytes: int = 0
    rounded: int = 0
    stream: int = 0
    pool: tuple[int, int] = (0, 0)
    refused_by: str = "driver"
    pending: int = 0
    idle_segments: int = 0
    split_remainders: int = 0
    own: FreeMemory = FreeMemory()
    other_stream: FreeMemory = FreeMemory()
    other_pool: FreeMemory = FreeMemory()
    other_kind: FreeMemory = FreeMemory()

    def __str__(self) -> str:
        return explain(self)

    @property
    def cached(self) -> int:
        """What is reserved and free."""
        return self.idle_segments + self.split_remainders + self.pool_bytes

    @property
    def elsewhere(self) -> int:
        """What is neither free nor reserved here: other processes, the context, modules."""
        return max(0, self.total - self.free - self.reserved)

    @property
    def largest(self) -> FreeMemory:
        """The free memory that has the largest block."""
        kinds = (self.own, self.other_stream, self.other_pool, self.other_kind)
        return max(kinds, key=lambda kind: kind.largest)

    @property
    def largest_free_block(self) -> int:
        """The largest free block that the allocator keeps."""
        return self.largest.largest

    @property
    def fragmentation(self) -> float:
        """1 - largest free block / all free memory: 0 if it is in one piece."""
        return 1 - self.largest_free_block / self.cached if self.cached else 0.0


def format_size(size: int) -> str:
    """An amount for people: ``"1024.00 KiB"``, ``"2.00 MiB"``; bytes up to 1024."""
    if size <= 1 << 10:
        return f"{size} bytes"
    if size <= 1 << 20:
        return f"{size / (1 << 10):.2f} KiB"
    if size <= 1 << 30:
        return f"{size / (1 << 20):.2f} MiB"
    return f"{size / (1 << 30):.2f} GiB"


# --- the exception ------------------------------------------------------------------------------


class Observer(Protocol):
    """Called before an out-of-memory error is raised."""

    def __call__(self, device: int, requested: int, total: int, free: int, /) -> object:
        """Be told the segment size asked for, the limit or the capacity, and what is free."""


_observers: list[Observer] = []


def attach_observer(observer: Observer) -> None:
    """Have a function called before each out-of-memory error is raised.

    What it raises is raised in place of the error, which becomes its cause.
    """
    if not callable(observer):
        raise TypeError(f"an observer is a callable, got {type(observer).__name__}")
    _observers.append(observer)


def detach_observer(observer: Observer) -> None:
    """Undo one `attach_observer`; ValueError if it is not attached."""
    _observers.remove(observer)


def error(figures: Figures) -> Exception:
    """The exception for a failed allocation; the figures are its attributes too."""
    result = OutOfMemoryError(_message(figures))
    for name in (*(f.name for f in fields(Figures)), "largest_free_block", "fragmentation"):
        setattr(result, name, getattr(figures, name))
    if figures.refused_by == "rejection":
        return result
    shown = figures.total if figures.limit is None else figures.limit
    for observer in tuple(_observers):
        try:
            observer(figures.device, figures.segment_size, shown, figures.free)
        except Exception as raised:  # noqa: BLE001 - the observer's own error is the one to raise
            raised.__cause__ = raised.__cause__ or result
            return raised
    return result


def beyond_exabyte(device: int, requested: int) -> OutOfMemoryError:
    """The exception for a request that no device could ever serve."""
    result = OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate more than 1EB memory. ({requested} bytes on GPU "
        f"{device}: look for an overflow in the tensor's shape.)"
    )
    result.device = device  # type: ignore[attr-defined]
    result.requested = requested  # type: ignore[attr-defined]
    return result


def async_error(
    device: int,
    requested: int,
    *,
    allocated: int,
    reserved: int,
    total: int,
    free: int,
    limit: int | None,
) -> OutOfMemoryError:
    """The exception of the backend cudaMallocAsync, which has its own figures."""
    allowed = "none" if limit is None else format_size(limit)
    result = OutOfMemoryError(
        f"CUDA out of memory. Allocation on device {device} would exceed allowed memory.\n"
        f"Currently allocated     : {format_size(allocated)}\n"
        f"Requested               : {format_size(requested)}\n"
        f"Device limit            : {format_size(total)}\n"
        f"Free (according to CUDA): {format_size(free)}\n"
        f"PyTorch limit (set_per_process_memory_fraction): {allowed}\n"
        f"The driver's pool keeps {format_size(reserved - allocated)} that are free, and was "
        "trimmed before this. What to do: free tensors that are no longer needed, use smaller "
        "ones, or see with backend:native where the memory is."
    )
    values = {
        "device": device,
        "requested": requested,
        "allocated": allocated,
        "reserved": reserved,
        "total": total,
        "free": free,
        "limit": limit,
    }
    for name, value in values.items():
        setattr(result, name, value)
    return result


def pinned_error(requested: int) -> OutOfMemoryError:
    """The exception for a request of pinned host memory that the driver refused."""
    from flambeau.runtime import _memory_stats

    stats = _memory_stats.host_memory_stats_raw()
    used, owned = stats["active_bytes"]["current"], stats["allocated_bytes"]["current"]
    result = OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {format_size(requested)} of pinned host memory, "
        f"and the driver refused. This process has {used} bytes of pinned memory in use, and "
        f"{owned - used} cached after all that could be given back was. What to do: pin less at a "
        "time, or see the limit of locked memory (ulimit -l) and what the machine has free."
    )
    result.requested = requested  # type: ignore[attr-defined]
    return result


def _message(figures: Figures) -> str:
    allocated = figures.allocated + figures.pool_bytes
    asked = f"CUDA out of memory. Tried to allocate {format_size(figures.segment_size)}"
    if figures.requested != figures.segment_size:
        asked += f" (for a request of {format_size(figures.requested)})"
    if figures.refused_by == "rejection":
        asked += " and was preemptively rejected (throw_on_cudamalloc_oom)"
    pools = ""
    if figures.pool_bytes:
        pools = f", with {format_size(figures.pool_bytes)} allocated in private pools"
    processes = _processes(figures.device)
    summary = [
        f"{asked}.",
        f"GPU {figures.device} has a total capacity of {format_size(figures.total)} of which "
        f"{format_size(figures.free)} is free.",
        *_process_sentences(processes),
        *([] if figures.limit is None else [f"{format_size(figures.limit)} allowed;"]),
        f"Of the allocated memory {format_size(allocated)} is allocated by PyTorch{pools}, and "
        f"{format_size(figures.reserved - allocated)} is reserved by PyTorch but unallocated.",
    ]
    lines = [
        " ".join(summary),
        *_balance(figures, processes),
        f"Stopped by: {_refusal(figures)}",
        *_largest(figures),
        *_top_sites(figures.device),
        f"What to do: {_advice(figures, processes)}",
    ]
    return "\n".join(lines)


# --- the parts of the explanation ---------------------------------------------------------------


def explain(figures: Figures) -> str:
    """Where the memory of a device is, in lines."""
    lines = [
        f"Memory of GPU {figures.device}",
        *_balance(figures, _processes(figures.device)),
        *(
            []
            if figures.limit is None
            else [f"Limit: {format_size(figures.limit)} may be reserved"]
        ),
        *_largest(figures),
        *_pinned(),
        *_top_sites(figures.device),
    ]
    return "\n".join(lines)


def _pinned() -> list[str]:
    from flambeau.runtime import _memory_stats

    stats = _memory_stats.host_memory_stats_raw()
    owned = stats["allocated_bytes"]["current"] if stats else 0
    if not owned:
        return []
    used = stats["active_bytes"]["current"]
    return [f"Pinned host memory: {format_size(used)} in use, {format_size(owned - used)} cached"]


def _balance(figures: Figures, processes: list[ProcessInfo]) -> list[str]:
    others = min(_used_by_others(processes), figures.elsewhere)
    rows = [
        ("free", figures.free),
        ("other processes", others),
        ("context, modules and other allocations", figures.elsewhere - others),
        ("reserved by this allocator", figures.reserved),
    ]
    parts = [
        ("held by tensors", figures.allocated),
        ("freed, waiting for other streams", figures.pending),
        ("idle segments, kept for reuse", figures.idle_segments),
        ("free parts of segments in use", figures.split_remainders),
        ("free in private pools", figures.pool_bytes),
    ]
    return [
        f"Balance of {figures.total} bytes:",
        *(f"  {amount:>15d}  {name}" for name, amount in rows if amount or name == "free"),
        *([f"Of the {figures.reserved} reserved:"] if figures.reserved else []),
        *(f"  {amount:>15d}  {name}" for name, amount in parts if amount),
    ]


def _refusal(figures: Figures) -> str:
    if figures.refused_by == "limit":
        limit = figures.limit or 0
        return (
            f"the limit of this process, {limit} bytes: {figures.reserved} are reserved already "
            "(set_per_process_memory_fraction or per_process_memory_fraction)."
        )
    if figures.refused_by == "rejection":
        return (
            f"per_process_memory_fraction, {figures.limit} bytes on this device: with "
            "throw_on_cudamalloc_oom no retry is made."
        )
    if figures.refused_by == "reserve":
        return (
            "the addresses of an expandable segment, which are fewer than the request: see "
            "expandable_segments_reserve."
        )
    if figures.refused_by == "source":
        return "the custom allocator, which returned a null pointer."
    if figures.refused_by == "overlap":
        return "the custom allocator, which returned memory that is reserved here already."
    return f"the driver, which has {figures.free} bytes free."


def _largest(figures: Figures) -> list[str]:
    largest = figures.largest
    if not largest.largest:
        return []
    size = f"The largest free block that is kept has {format_size(largest.largest)}"
    spread = f"; {figures.fragmentation:.0%} of what is free lies elsewhere."
    if not figures.requested:
        return [size + spread]
    reason = "which is too small"
    if largest.largest >= figures.rounded:
        if largest is figures.other_stream:
            reason = f"but it belongs to stream {largest.stream:#x}"
        elif largest is figures.other_pool:
            reason = f"but it belongs to pool {largest.pool}"
        elif largest is figures.other_kind:
            kind = "above" if figures.rounded <= 1 << 20 else "up to"
            reason = f"but it is kept for requests {kind} 1 MiB"
        else:
            reason = "but max_split_size_mb forbids to split it"
    return [f"{size}, {reason}{spread}"]


def _advice(figures: Figures, processes: list[ProcessInfo]) -> str:
    """One thing that helps in this very case."""
    needed = figures.segment_size
    others = _used_by_others(processes)
    if needed > figures.total:
        return "use a smaller tensor: this one is larger than the whole device."
    if figures.refused_by in {"source", "overlap"}:
        return "see what the custom allocator does: its own limits apply."
    if figures.refused_by == "reserve":
        return (
            "raise expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF, or leave it out: the "
            "whole device then fits into one segment."
        )
    if figures.other_stream.largest >= figures.rounded:
        return (
            "allocate on the stream whose free memory this is, or free the rest of its segment: "
            "memory does not move between streams while a part of its segment is in use."
        )
    if figures.other_pool.largest >= figures.rounded:
        return (
            f"drop pool {figures.other_pool.pool} or create it with use_on_oom=True: its free "
            "memory would serve."
        )
    if figures.own.largest >= figures.rounded:
        return "raise max_non_split_rounding_mb or max_split_size_mb, so that the block may serve."
    if figures.own.bytes >= figures.rounded:
        remedy = (
            "free tensors that lie between: memory is mapped and unmapped in whole pages"
            if _expandable()
            else "allocate large tensors first, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True so that segments grow in place"
        )
        return f"the {format_size(figures.own.bytes)} that are free are fragmented: {remedy}."
    if figures.refused_by in {"limit", "rejection"} and figures.free >= needed:
        return (
            "raise the limit with torch.cuda.set_per_process_memory_fraction, or free tensors: "
            "the device itself has room."
        )
    if figures.free + others >= needed > figures.free:
        return f"end other processes: they hold {format_size(others)} of this device."
    return "free tensors that are no longer needed, or use smaller ones."


def _expandable() -> bool:
    from flambeau.runtime import _allocator_settings

    return _allocator_settings.current().expandable_segments


def _top_sites(device: int, count: int = 3) -> list[str]:
    """Who holds most, if a memory history keeps stacks."""
    from flambeau.runtime import _allocator_history, _memory_stats

    if _allocator_history.recording is None or _allocator_history.recording[0] == 0:
        return []
    held: dict[tuple[str, int], int] = {}
    for segment in _memory_stats.memory_snapshot_raw():
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["frames"]:
                frame = block["frames"][0]
                site = frame["filename"], frame["line"]
                held[site] = held.get(site, 0) + block["size"]
    largest = sorted(held.items(), key=lambda item: -item[1])[:count]
    return [
        *(["Most is held by what these lines allocated:"] if largest else []),
        *(f"  {size:>15d}  {name}:{line}" for (name, line), size in largest),
    ]


# --- processes ----------------------------------------------------------------------------------


def _process_sentences(processes: list[ProcessInfo]) -> list[str]:
    sentences = []
    for process in processes:
        used = format_size(process.used_bytes)
        if process.pid == os.getpid():
            sentences.append(
                f"Including non-PyTorch memory, this process has {used} memory in use."
            )
        else:
            sentences.append(f"Process {process.pid} has {used} memory in use.")
    return sorted(sentences)  # ours first: "I" sorts before "P"


def _used_by_others(processes: list[ProcessInfo]) -> int:
    return sum(process.used_bytes for process in processes if process.pid != os.getpid())


def _processes(device: int) -> list[ProcessInfo]:
    """Who holds memory on the device, as far as the management library tells."""
    from flambeau.runtime import _state

    current = driver.peek()
    if current is None:
        return []
    management = current.management
    try:
        uuid = _state.device_uuid(device)
        for index in range(management.device_count()):
            if management.uuid(index) == uuid:
                return management.processes(index)
        return []
    except (ImportError, NotImplementedError, RuntimeError):
        return []  # the figures of the allocator must reach the user in any case
