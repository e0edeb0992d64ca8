# SPDX-License-Identifier: Apache-2.0
"""The words of an out-of-memory error: what was asked for, where the memory is, what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau import driver
from flambeau.driver.errors import OutOfMemoryError

if TYPE_CHECKING:
    from flambeau.driver.contract import ProcessInfo

__all__ = ["Figures", "beyond_exabyte", "error", "format_size"]


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of a device's memory when an allocation failed; amounts in bytes.

    Parameters
    ----------
    device
        The device's index.
    requested, segment_size
        What was asked of the allocator, and what it asked of the driver for that.
    total, free
        The device's capacity, and what the driver has left.
    limit
        What the allocator may reserve, or None.
    allocated, reserved
        What tensors hold, and what the allocator got from the driver.
    pool_bytes
        Free bytes in private pools.
    largest_free_block
        The largest free block that the allocator keeps.
    """

    device: int
    requested: int
    segment_size: int
    total: int
    free: int
    limit: int | None
    allocated: int
    reserved: int
    pool_bytes: int
    largest_free_block: int


def format_size(size: int) -> str:
    """An amount for people: ``"1024.00 KiB"``, ``"2.00 MiB"``; bytes up to 1024."""
    if size <= 1 << 10:
        return f"{size} bytes"
    if size <= 1 << 20:
        return f"{size / (1 << 10):.2f} KiB"
    if size <= 1 << 30:
        return f"{size / (1 << 20):.2f} MiB"
    return f"{size / (1 << 30):.2f} GiB"


def error(figures: Figures) -> OutOfMemoryError:
    """The exception for a failed allocation; the figures are its attributes too."""
    result = OutOfMemoryError(" ".join(_sentences(figures)))
    for name in Figures.__slots__:
        setattr(result, name, getattr(figures, name))
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


def _sentences(figures: Figures) -> list[str]:
    allocated = figures.allocated + figures.pool_bytes
    cached = figures.reserved - allocated
    asked = f"CUDA out of memory. Tried to allocate {format_size(figures.segment_size)}"
    if figures.requested != figures.segment_size:
        asked += f" (for a request of {format_size(figures.requested)})"
    pools = ""
    if figures.pool_bytes:
        pools = f", with {format_size(figures.pool_bytes)} allocated in private pools"
    return [
        f"{asked}.",
        f"GPU {figures.device} has a total capacity of {format_size(figures.total)} of which "
        f"{format_size(figures.free)} is free.",
        *_process_sentences(figures.device),
        *([] if figures.limit is None else [f"{format_size(figures.limit)} allowed;"]),
        f"Of the allocated memory {format_size(allocated)} is allocated by PyTorch{pools}, and "
        f"{format_size(cached)} is reserved by PyTorch but unallocated.",
        _advice(figures, cached),
    ]


def _advice(figures: Figures, cached: int) -> str:
    if cached and figures.largest_free_block < figures.requested:
        return (
            f"The largest free block that is kept has {format_size(figures.largest_free_block)}. "
            "If reserved but unallocated memory is large, it is fragmented: "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may avoid that."
        )
    return "Free tensors that are no longer needed, or use smaller ones."


def _process_sentences(device: int) -> list[str]:
    """Who holds memory on the device, as far as the management library tells."""
    sentences = []
    for process in _processes(device):
        used = format_size(process.used_bytes)
        if process.pid == os.getpid():
            sentences.append(
                f"Including non-PyTorch memory, this process has {used} memory in use."
            )
        else:
            sentences.append(f"Process {process.pid} has {used} memory in use.")
    return sorted(sentences)  # ours first: "I" sorts before "P"


def _processes(device: int) -> list[ProcessInfo]:
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
