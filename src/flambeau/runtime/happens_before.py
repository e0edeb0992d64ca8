# SPDX-License-Identifier: Apache-2.0
"""Which work on streams is ordered before which, by vector clocks.

Each piece of work gets a number; the clock of a stream says, for every stream, up to which of
that stream's numbers its next work is ordered after. The host has a clock too: what it has waited
for is before all work that is queued later. One clock stands for all threads of the host, so an
order between threads is never missed; a missing one is not seen either.
"""

from __future__ import annotations

from flambeau.runtime import _stream_state

__all__ = ["Clock", "Order", "Queue"]

Queue = tuple[int, int]
"""A stream: its device and its handle."""
Clock = dict[Queue, int]


def _advance(clock: Clock, other: Clock) -> None:
    """Make a clock know all that another knows."""
    for queue, number in other.items():
        if number > clock.get(queue, 0):
            clock[queue] = number


class Order:
    """The order that streams, events and waits have made so far."""

    def __init__(self) -> None:
        self._clocks: dict[Queue, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}
        self._number = 0
        self._waits_for_default: dict[Queue, bool] = {}

    def clock(self, queue: Queue) -> Clock:
        """What the next work of a stream is ordered after; live."""
        found = self._clocks.get(queue)
        if found is None:
            found = self._clocks[queue] = {}
        return found

    def start(self, queue: Queue) -> int:
        """Note a piece of work on a stream; its number."""
        self._number += 1
        self._join_default(queue)
        self.clock(queue)[queue] = self._number
        return self._number

    def precedes(self, queue: Queue, number: int, later: Queue) -> bool:
        """Whether a stream's work is ordered before the next, or present, work of another."""
        return self.clock(later).get(queue, 0) >= number or self.is_finished(queue, number)

    def is_finished(self, queue: Queue, number: int) -> bool:
        """Whether the host has waited for a stream's work."""
        return self._host.get(queue, 0) >= number

    # -- what orders -------------------------------------------------------------------------------

    def record(self, event: int, queue: Queue) -> None:
        """An event marks the present end of a stream's work."""
        self._join_default(queue)
        self._events[event] = dict(self.clock(queue))

    def wait(self, queue: Queue, event: int) -> None:
        """A stream's later work waits for an event."""
        _advance(self.clock(queue), self._events.get(event, {}))

    def wait_queue(self, queue: Queue, other: Queue) -> None:
        """A stream's later work waits for what another has now."""
        _advance(self.clock(queue), self.clock(other))

    def forget_event(self, event: int) -> None:
        """An event is gone."""
        self._events.pop(event, None)

    def finish_event(self, event: int) -> None:
        """The host has waited for an event."""
        _advance(self._host, self._events.get(event, {}))

    def finish_queue(self, queue: Queue) -> None:
        """The host has waited for a stream."""
        self._join_default(queue)
        _advance(self._host, self.clock(queue))

    def finish_device(self, device: int) -> None:
        """The host has waited for all streams of a device."""
        for queue in list(self._clocks):
            if queue[0] == device:
                _advance(self._host, self._clocks[queue])

    # -- the default stream ------------------------------------------------------------------------

    def _join_default(self, queue: Queue) -> None:
        """The default stream and streams that are not non-blocking wait for each other."""
        device, handle = queue
        if handle:
            if self._is_ordered_with_default(queue):
                self.wait_queue(queue, (device, 0))
            return
        for other in list(self._clocks):
            if other[0] == device and other[1] and self._is_ordered_with_default(other):
                self.wait_queue(queue, other)

    def _is_ordered_with_default(self, queue: Queue) -> bool:
        found = self._waits_for_default.get(queue)
        if found is None:
            device, handle = queue
            found = _stream_state.waits_for_default(handle, device)
            self._waits_for_default[queue] = found
        return found
