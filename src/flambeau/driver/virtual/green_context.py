# SPDX-License-Identifier: Apache-2.0
"""Green contexts of virtual GPUs.

A partition is a run of multiprocessors. Kernels on a stream of a green context wait for those of
its partition only, and take as much longer as the partition is smaller than the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from flambeau.driver.contract import MultiprocessorSet
from flambeau.driver.virtual import _calls, _machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.driver.contract import SplitRequest

__all__ = ["VirtualGreenContexts"]

ALIGNMENT = 8
"""Groups are multiples of this, as on GPUs of compute capability 9 and newer."""
WORKQUEUE_LIMIT = 128

_Range: TypeAlias = tuple[int, int]  # first multiprocessor, count


class _Context:
    """A green context: its place and its streams."""

    def __init__(self, device: int, place: _Range) -> None:
        self.device = device
        self.place = place
        self.streams: list[int] = []


class VirtualGreenContexts:
    """Green contexts of one virtual machine.

    Parameters
    ----------
    multiprocessors
        Of each device, by ordinal.
    """

    def __init__(self, multiprocessors: Sequence[int]) -> None:
        self._counts = tuple(multiprocessors)

    def supports(self, what: Literal["split", "workqueues"]) -> bool:
        """Whether a feature is there: all are."""
        return True

    def multiprocessors(self, device: int) -> MultiprocessorSet:
        """All of a device."""
        return _set(device, (0, self._counts[device]))

    def split(
        self, whole: MultiprocessorSet, groups: Sequence[SplitRequest]
    ) -> tuple[list[MultiprocessorSet], MultiprocessorSet | None]:
        """Cut groups off, from the first multiprocessor on, each rounded up to `ALIGNMENT`."""
        first, left = whole.handle
        made = []
        for position, group in enumerate(groups):
            count = _granted(group, left)
            if count == 0 or count > left:
                raise RuntimeError(
                    f"group {position} of the split asks for {group.count or 'all left'} "
                    f"multiprocessors in multiples of {group.coscheduled or ALIGNMENT}, but "
                    f"{left} of {whole.count} are left"
                )
            made.append(_set(whole.device, (first, count)))
            first, left = first + count, left - count
        return made, _set(whole.device, (first, left)) if left else None

    def workqueue_limit(self, device: int) -> int:
        """The most streams' work that a context's queues keep apart."""
        return WORKQUEUE_LIMIT

    def create(
        self,
        device: int,
        partition: MultiprocessorSet | None,
        workqueues: tuple[str, int | None] | None,
    ) -> tuple[_Context, MultiprocessorSet]:
        """A green context. Work queues change nothing here: every stream has its own."""
        granted = partition or self.multiprocessors(device)
        return _Context(device, granted.handle), granted

    def stream(self, context: _Context, priority: int) -> int:
        """A new stream of a green context."""
        first, count = context.place
        context.streams.append(_machine.partition_stream(context.device, first, count, priority))
        return context.streams[-1]

    def destroy(self, context: _Context) -> None:
        """Destroy the context's streams; what they have left to do is still done."""
        for stream in context.streams:
            _calls.stream_destroy(stream)
        context.streams.clear()


def _set(device: int, place: _Range) -> MultiprocessorSet:
    return MultiprocessorSet(device, place[1], ALIGNMENT, ALIGNMENT, place)


def _granted(group: SplitRequest, left: int) -> int:
    """How many a group gets; more than are left if it cannot have them."""
    unit = group.coscheduled or ALIGNMENT
    if group.backfill:
        return group.count or left
    return -(-group.count // unit) * unit or left // unit * unit
