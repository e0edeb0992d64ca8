# SPDX-License-Identifier: Apache-2.0
"""The stream sanitizer: follows what streams do to memory and finds what nothing orders."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from flambeau.runtime import _stream_state, observers
from flambeau.runtime.happens_before import Order
from flambeau.runtime.sanitizer_footprint import Footprint, footprint_of
from flambeau.runtime.sanitizer_memory import Memory
from flambeau.runtime.sanitizer_report import HOST, Access, AccessType, stack_here

if TYPE_CHECKING:
    import traceback
    from collections.abc import Callable, Sequence

    from flambeau.runtime._tensor import Tensor
    from flambeau.runtime.happens_before import Queue
    from flambeau.runtime.sanitizer_report import UnsynchronizedAccessError

    Report = Callable[[list[UnsynchronizedAccessError]], None]

__all__ = ["Watcher"]

SWEEP_EVERY = 2048
"""Operations between two sweeps of memory that nothing uses any more."""


class Use(NamedTuple):
    """An access, and the block that it is to, should that not be known."""

    access: Access
    block: tuple[int, int]


class Watcher:
    """Listens to the runtime from `start` to `stop`.

    Parameters
    ----------
    report
        Called with the races of an operation, if it has any; what it raises reaches the program.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._order = Order()
        self._memory = Memory(self._order)
        self._lock = threading.RLock()
        # Freed blocks and events; the collector may free them in the middle of anything.
        self._freed: deque[Callable[[], None]] = deque()
        self._operations = 0
        self._captured: dict[int, dict[object, Use]] = {}
        order = self._order
        self._callbacks: dict[observers.Kind, Callable[..., None]] = {
            "event_record": self._locked(lambda e, s, d: order.record(e, (d, s))),
            "event_wait": self._locked(lambda e, s, d: order.wait((d, s), e)),
            "event_deletion": self._event_deletion,
            "event_synchronization": self._locked(order.finish_event),
            "event_completion": self._locked(order.finish_event),
            "stream_synchronization": self._locked(lambda s, d: order.finish_queue((d, s))),
            "stream_completion": self._locked(lambda s, d: order.finish_queue((d, s))),
            "stream_wait": self._locked(
                lambda s, d, other, there: order.wait_queue((d, s), (there, other))
            ),
            "device_synchronization": self._locked(order.finish_device),
            "memory_return": self._locked(order.finish_device),
            "memory_allocation": self._locked(self._memory_allocation),
            "memory_deallocation": self._memory_deallocation,
            "memory_use": self._locked(lambda a, s, d: self._memory.lend(a, (d, s))),
            "pinned_allocation": self._locked(
                lambda a, size: self._memory.forget_accesses(a, a + size)
            ),
            "operation": self._locked(self._operation),
            "host_access": self._locked(self._host_access),
            "graph_launch": self._locked(self._graph_launch),
            "graph_release": self._graph_release,
        }

    def start(self) -> None:
        """Listen from now on; what ran before counts as done."""
        for kind, callback in self._callbacks.items():
            observers.register(kind, callback)

    def stop(self) -> None:
        """Listen no more."""
        for kind, callback in self._callbacks.items():
            observers.unregister(kind, callback)

    def _locked(self, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            with self._lock:
                while self._freed:
                    self._freed.popleft()()
                function(*arguments)

        return call

    # -- memory ------------------------------------------------------------------------------------

    def _memory_allocation(self, address: int, size: int, device: int, stream: int) -> None:
        self._memory.allocate(address, address + size, (device, stream), stack_here())

    def _memory_deallocation(self, address: int) -> None:
        stack = stack_here()
        self._freed.append(lambda: self._memory.free(address, stack))

    def _event_deletion(self, event: int) -> None:
        self._freed.append(lambda: self._order.forget_event(event))

    # -- work --------------------------------------------------------------------------------------

    def _operation(
        self, name: str, read: Sequence[Tensor], written: Sequence[Tensor], stream: int
    ) -> None:
        device = _device_of(read, written)
        if device < 0:
            return
        queue = device, stream
        capture = _stream_state.capture_of(stream, device)
        if capture is None:
            self._use(_accesses(name, read, written, queue, self._start(queue)))
            return
        # Captured work runs at each replay; what it does to a piece of memory counts once there.
        uses = self._captured.setdefault(capture, {})
        for use in _accesses(name, read, written, queue, 0):
            footprint = use.access.footprint
            assert footprint is not None
            key = footprint.begin, footprint.run, footprint.dims, use.access.type
            uses.setdefault(key, use)

    def _start(self, queue: Queue) -> int:
        self._operations += 1
        if self._operations % SWEEP_EVERY == 0:
            self._memory.sweep()
        return self._order.start(queue)

    def _graph_launch(self, capture: int, stream: int, device: int) -> None:
        uses = self._captured.get(capture)
        if not uses:
            return
        queue, last = (device, stream), -1 - capture  # no event's handle
        self._order.wait(queue, last)  # a graph never overlaps itself
        number, stack = self._start(queue), stack_here()
        self._order.record(last, queue)
        self._use(
            [
                Use(
                    replace(
                        use.access,
                        seq_num=number,
                        stream=stream,
                        device=device,
                        operator=f"{use.access.operator} in a replayed graph",
                        stack_trace=stack,
                    ),
                    use.block,
                )
                for use in uses.values()
            ]
        )

    def _graph_release(self, capture: int) -> None:
        self._freed.append(lambda: self._forget_capture(capture))

    def _forget_capture(self, capture: int) -> None:
        self._captured.pop(capture, None)
        self._order.forget_event(-1 - capture)

    def _host_access(self, name: str, read: Sequence[Tensor], written: Sequence[Tensor]) -> None:
        memory = self._memory
        read, written = (
            [t for t in tensors if t.numel() and memory.known(t.data_ptr()) is not None]
            for tensors in (read, written)
        )
        if read or written:
            self._use(_accesses(name, read, written, HOST, 0))

    def _use(self, uses: list[Use]) -> None:
        errors: list[UnsynchronizedAccessError] = []
        for access, block in uses:
            errors += self._memory.check(self._memory.cell_of(access, block), access)
        for access, block in uses:
            if access.queue != HOST:
                self._memory.add(self._memory.cell_of(access, block), access)
        if errors:
            self._report(errors)


def _device_of(read: Sequence[Tensor], written: Sequence[Tensor]) -> int:
    """The device of the stream of an operation: a copy between two runs where it reads."""
    for tensor in (*read, *written):
        if tensor.is_cuda:
            return tensor.get_device()
    return -1


def _block_of(tensor: Tensor, footprint: Footprint) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    begin: int = storage.data_ptr()
    return min(begin, footprint.begin), max(begin + storage.nbytes(), footprint.end)


def _accesses(
    name: str, read: Sequence[Tensor], written: Sequence[Tensor], queue: Queue, number: int
) -> list[Use]:
    """The accesses of an operation, one for each piece of memory."""
    stack: traceback.StackSummary = stack_here()
    names = _argument_names(len(read))
    text = _signature(name, read, written, names)
    found: dict[tuple[object, ...], Use] = {}
    uses = [(t, n, AccessType.READ) for t, n in zip(read, names, strict=True)]
    for tensor, argument, kind in [*uses, *((t, "", AccessType.WRITE) for t in written)]:
        footprint = footprint_of(tensor)
        if footprint is None:
            continue
        key = footprint.begin, footprint.run, footprint.dims
        if key not in found:
            access = Access(kind, number, queue[1], text, [], False, stack, queue[0], footprint)
            found[key] = Use(access, _block_of(tensor, footprint))
        access = found[key].access
        if argument and argument not in access.aliases:
            access.aliases.append(argument)
        if kind is AccessType.WRITE:
            access.type = kind
            access.is_output = True
    return list(found.values())


def _argument_names(count: int) -> list[str]:
    return [*("self", "other")[:count], *(f"input {i}" for i in range(2, count))]


def _signature(
    name: str, read: Sequence[Tensor], written: Sequence[Tensor], names: Sequence[str]
) -> str:
    inputs = ", ".join(f"{n}: {_type(t)}" for n, t in zip(names, read, strict=True))
    outputs = ", ".join(_type(t) for t in written) or "nothing"
    return f"{name}({inputs}) -> {outputs}"


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"
