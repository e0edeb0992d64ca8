# SPDX-License-Identifier: Apache-2.0
"""What the host does while a profiler records: operations, annotations, memory, waits.

The recorder is an observer of the runtime. It notes what it hears with the time and the thread, and
leaves the rest to `flambeau.profiler._timeline`. While nobody records, nothing is registered.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau.cuda import _memory_stats as _memory
from flambeau.runtime import observers

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._tensor import Tensor
    from flambeau.runtime.observers import Kind

__all__ = ["MemoryNote", "Note", "Recorder", "Span", "recorders"]

_LIBRARY = str(Path(__file__).parents[1]) + "/"
_DEPTH = 48

recorders: list[Recorder] = []
"""Those that record now, for `record_function`; almost always empty."""


@dataclass(slots=True)
class Note:
    """Something that the host had done at a time: an operation, or a wait (kind ``"sync"``)."""

    kind: str
    name: str
    thread: int
    time: int
    shapes: list[list[int]] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    stream: int = -1
    device: int = -1
    places: tuple[int, ...] = ()  # addresses that it wrote to


@dataclass(slots=True)
class Span:
    """A named stretch of a thread's time; `end` is -1 while it is open."""

    name: str
    thread: int
    start: int
    end: int = -1
    domain: str | None = None
    arguments: str | None = None
    crosses: bool = False  # it need not lie inside what it began in, nor end on its thread


@dataclass(slots=True)
class MemoryNote:
    """Memory taken (`size` above 0) or given back."""

    thread: int
    time: int
    address: int
    size: int
    device: int
    allocated: int = 0
    reserved: int = 0
    after: int = 0  # how many notes there were


@dataclass(slots=True)
class Mark:
    """An instant with a name."""

    name: str
    thread: int
    time: int


class Recorder:
    """Notes what observers hear.

    Parameters
    ----------
    now
        The clock, in nanoseconds.
    stream_number
        From a stream's handle and device to the number that traces show.
    shapes, memory, stacks
        Whether to note shapes of operands, allocations, and where in the program operations are.
    """

    def __init__(
        self,
        now: Callable[[], int],
        stream_number: Callable[[int, int], int],
        *,
        shapes: bool = False,
        memory: bool = False,
        stacks: bool = False,
    ) -> None:
        self.now = now
        self.notes: list[Note] = []
        self.spans: list[Span] = []
        self.memory: list[MemoryNote] = []
        self.marks: list[Mark] = []
        self.quiet = False
        self._stream_number = stream_number
        self._shapes, self._stacks = shapes, stacks
        self._sizes: dict[int, tuple[int, int]] = {}
        self._open: dict[tuple[int, str | None], list[Span]] = {}
        self._numbered: dict[int, Span] = {}
        self._listeners: list[tuple[Kind, Callable[..., object]]] = [
            ("operation", self._operation),
            ("host_access", self._host_access),
            ("graph_launch", self._graph_launch),
            ("event_synchronization", self._event_wait),
            ("stream_synchronization", self._stream_wait),
            ("device_synchronization", self._device_wait),
            ("event_wait", self._stream_event_wait),
            ("mark", self._mark),
            ("range_push", self._push),
            ("range_pop", self._pop),
            ("range_start", self._start),
            ("range_end", self._end),
        ]
        if memory:
            self._listeners += [
                ("memory_allocation", self._allocation),
                ("memory_deallocation", self._deallocation),
            ]

    def start(self, *, quiet: bool = False) -> None:
        """Begin to note; only annotations while `quiet`."""
        self.quiet = quiet
        for kind, listener in self._listeners:
            observers.register(kind, listener)
        recorders.append(self)

    def stop(self) -> None:
        """Note no more; spans that are open end here."""
        self.abandon()
        now = self.now()
        for span in self.spans:
            if span.end < 0:
                span.end = now

    def abandon(self) -> None:
        """Note no more. It calls no driver, so a finalizer may do it."""
        if self not in recorders:
            return
        recorders.remove(self)
        for kind, listener in self._listeners:
            observers.unregister(kind, listener)

    # --- spans

    def open_span(self, name: str, domain: str | None = None, arguments: str | None = None) -> Span:
        """Begin a stretch on this thread."""
        span = Span(name, threading.get_native_id(), self.now(), -1, domain, arguments)
        self.spans.append(span)
        return span

    def close_span(self, span: Span) -> None:
        """End a stretch; nothing happens if `stop` ended it."""
        if span.end < 0:
            span.end = self.now()

    def _mark(self, message: str, domain: str | None) -> None:
        self.marks.append(Mark(message, threading.get_native_id(), self.now()))

    def _push(self, message: str, domain: str | None) -> None:
        span = self.open_span(message, domain)
        self._open.setdefault((span.thread, domain), []).append(span)

    def _pop(self, domain: str | None) -> None:
        opened = self._open.get((threading.get_native_id(), domain))
        if opened:  # else it was pushed before the recording
            self.close_span(opened.pop())

    def _start(self, number: int, message: str, domain: str | None) -> None:
        span = self._numbered[number] = self.open_span(message, domain)
        span.crosses = True

    def _end(self, number: int) -> None:
        span = self._numbered.pop(number, None)
        if span is not None:
            self.close_span(span)

    # --- work and waits

    def _note(self, kind: str, name: str, stream: int = -1, device: int = -1) -> Note:
        note = Note(kind, name, threading.get_native_id(), self.now(), stream=stream, device=device)
        self.notes.append(note)
        return note

    def _operation(
        self, name: str, read: tuple[Tensor, ...], written: tuple[Tensor, ...], stream: int
    ) -> None:
        if self.quiet:
            return
        note = self._note("op", public_name(name))
        note.places = tuple(t.data_ptr() for t in written)
        self._describe(note, read)

    def _host_access(
        self, name: str, read: tuple[Tensor, ...], written: tuple[Tensor, ...]
    ) -> None:
        self._operation(name, read, written, 0)

    def _describe(self, note: Note, read: tuple[Tensor, ...]) -> None:
        if self._shapes:
            note.shapes = [list(t.shape) for t in read]
            note.types = [str(t.dtype).rpartition(".")[2] for t in read]
        if self._stacks:
            note.stack = program_stack()

    def _graph_launch(self, capture: int, stream: int, device: int) -> None:
        if self.quiet:
            return
        note = self._note("op", "cuda::graph_replay")
        if self._stacks:
            note.stack = program_stack()

    def _event_wait(self, event: int) -> None:
        self._note("sync", "Event Sync")

    def _stream_wait(self, stream: int, device: int) -> None:
        self._note("sync", "Stream Sync", self._stream_number(stream, device), device)

    def _device_wait(self, device: int) -> None:
        self._note("sync", "Context Sync", -1, device)

    def _stream_event_wait(self, event: int, stream: int, device: int) -> None:
        number = self._stream_number(stream, device)
        self._note("sync", "Stream Wait Event", number, device)

    # --- memory

    def _allocation(self, address: int, size: int, device: int, stream: int) -> None:
        self._sizes[address] = (size, device)
        self._memory_note(address, size, device)

    def _deallocation(self, address: int) -> None:
        size, device = self._sizes.pop(address, (0, -1))
        if size:  # what was taken before the recording has no size here
            self._memory_note(address, -size, device)

    def _memory_note(self, address: int, size: int, device: int) -> None:
        if self.quiet:
            return
        thread = threading.get_native_id()
        note = MemoryNote(thread, self.now(), address, size, device, after=len(self.notes))
        if device >= 0:
            held = _memory.memory_allocated(device)
            # A release is heard of before it is counted; blocks are multiples of 512 bytes.
            note.allocated = held if size > 0 else max(held - (-size + 511) // 512 * 512, 0)
            note.reserved = _memory.memory_reserved(device)
        self.memory.append(note)


def public_name(name: str) -> str:
    """An operation's name as profiles show it, ``aten::add``."""
    return f"aten::{name.lstrip('_').removesuffix('_scaled')}"


def program_stack() -> list[str]:
    """Where the program is, ``file(line): function``, innermost first, without the library."""
    found: list[str] = []
    frame: Any = sys._getframe(1)
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARY):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
