# SPDX-License-Identifier: Apache-2.0
"""What the stream sanitizer finds, and how it says so."""

from __future__ import annotations

import enum
import os
import sys
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from flambeau.runtime.observers import Finding

if TYPE_CHECKING:
    from flambeau.runtime.happens_before import Queue
    from flambeau.runtime.sanitizer_footprint import Footprint

__all__ = [
    "HOST",
    "Access",
    "AccessType",
    "CUDASanitizerErrors",
    "Setting",
    "SynchronizationError",
    "UnsynchronizedAccessError",
    "stack_here",
]

HOST: Queue = (-1, -1)
"""Stands for the host in place of a stream."""
_OWN_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_FRAMES = 60


class AccessType(enum.Enum):
    """What is done to memory."""

    READ = enum.auto()
    WRITE = enum.auto()

    def __str__(self) -> str:
        return "reading from" if self is AccessType.READ else "writing to"


@dataclass
class Access:
    """One use of a piece of memory.

    Parameters
    ----------
    type
        Reading or writing; what does both writes.
    seq_num
        The number of the operation.
    stream
        The stream's handle; -1 for the host.
    operator
        The operation and its tensors.
    aliases
        The operation's arguments that are this memory.
    is_output
        Whether it is the operation's output too.
    stack_trace
        Where the program asked for it.
    device
        The stream's device; -1 for the host.
    footprint
        The bytes.
    tenant
        Which allocation of the memory the access belonged to.
    """

    type: AccessType
    seq_num: int
    stream: int
    operator: str
    aliases: list[str]
    is_output: bool
    stack_trace: traceback.StackSummary
    device: int = 0
    footprint: Footprint | None = field(default=None, repr=False)
    tenant: int = 0

    @property
    def queue(self) -> Queue:
        """The stream with its device."""
        return self.device, self.stream


class SynchronizationError(Exception):
    """The base of what the sanitizer finds."""


@dataclass(frozen=True)
class Setting:
    """What an error says beside the two accesses.

    Parameters
    ----------
    kind
        ``"stream"``: two streams; ``"reuse"``: memory that was freed and given out again between
        the two; ``"host"``: the host and a copy in flight.
    free_stack
        Where the earlier tensor was freed.
    owner
        The stream that the memory was given out on.
    """

    kind: Literal["stream", "reuse", "host"] = "stream"
    free_stack: traceback.StackSummary | None = None
    owner: Queue | None = None


_TWO_STREAMS = Setting()


class UnsynchronizedAccessError(SynchronizationError):
    """Two uses of the same bytes, one of them a write, that nothing orders.

    Parameters
    ----------
    data_ptr
        The first byte that both touch.
    allocation_stack_trace
        Where the memory was allocated, if that was seen.
    current_access, previous_access
        The two uses.
    setting
        What is known of the circumstances.
    """

    def __init__(
        self,
        data_ptr: int,
        allocation_stack_trace: traceback.StackSummary | None,
        current_access: Access,
        previous_access: Access,
        setting: Setting = _TWO_STREAMS,
    ) -> None:
        super().__init__(data_ptr, current_access.seq_num, previous_access.seq_num)
        self.data_ptr = data_ptr
        self.allocation_stack_trace = allocation_stack_trace
        self.current_access = current_access
        self.previous_access = previous_access
        self.setting = setting

    @property
    def advice(self) -> str:
        """The order that is missing, and the line that makes it."""
        return _advice(self.current_access, self.previous_access, self.setting)

    def __str__(self) -> str:
        current, previous = self.current_access, self.previous_access
        parts = [
            "=" * 28 + "\n",
            "CSAN detected a possible data race on tensor with data pointer "
            f"{self.data_ptr}\n{_bytes_text(current, previous)}",
            f"Access by {_who(current)}:\n{_access_text(current)}",
            f"Previous access by {_who(previous)}:\n{_access_text(previous)}",
        ]
        if self.setting.free_stack is not None:
            stack = _stack_text(self.setting.free_stack)
            parts.append(f"In between the memory was freed with stack trace:\n{stack}\n")
        parts.append(f"Missing order: {self.advice}\n")
        if self.allocation_stack_trace is None:
            parts.append("Trace for tensor allocation not found.\n")
        else:
            stack = _stack_text(self.allocation_stack_trace)
            parts.append(f"Tensor was allocated with stack trace:\n{stack}")
        return "".join(parts)


class CUDASanitizerErrors(Finding):
    """Raised after an operation, with what the sanitizer found.

    Attributes
    ----------
    errors
        One for each earlier access that the operation races with.
    """

    def __init__(self, errors: list[SynchronizationError]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        count = len(self.errors)
        return f"detected {count} error{'' if count == 1 else 's'}"


# -- texts ---------------------------------------------------------------------------------------


def _who(access: Access) -> str:
    if access.queue == HOST:
        return "the host during"
    return f"stream {access.stream} during kernel"


def _name(queue: Queue) -> str:
    device, handle = queue
    if queue == HOST:
        return "the host"
    return f"stream {handle} of cuda:{device}" if handle else f"the default stream of cuda:{device}"


def _access_text(access: Access) -> str:
    targets = []
    if access.aliases:
        targets.append(f"argument(s) {', '.join(access.aliases)}")
    if access.is_output:
        targets.append("the output" if not targets else "to the output")
    what = ", and ".join(targets) or "its memory"
    return (
        f"{access.operator}\n{access.type} {what}\nWith stack trace:\n"
        f"{_stack_text(access.stack_trace)}\n"
    )


def _stack_text(stack: traceback.StackSummary) -> str:
    return "".join(stack.format())


def _bytes_text(current: Access, previous: Access) -> str:
    a, b = current.footprint, previous.footprint
    if a is None or b is None:
        return ""
    low, high = max(a.begin, b.begin), min(a.end, b.end)
    return f"Bytes that both touch: {high - low} from {low:#x} on, gaps between rows included\n"


def _advice(current: Access, previous: Access, setting: Setting) -> str:
    later, earlier = _name(current.queue), _name(previous.queue)
    if setting.kind == "host":
        return (
            f"the host does not wait for {earlier}. Before the host uses the buffer, synchronize "
            "that stream, or an event recorded on it after the copy."
        )
    if setting.kind == "reuse":
        if previous.queue == setting.owner:
            return (
                f"the memory was given out for use on {earlier}, where work of its former tensor "
                f"may still run. After allocating, have {later} wait for {earlier} (wait_stream)."
            )
        return (
            f"the memory was freed while {earlier} may still use it, and was given out again. "
            f"Before the former tensor is freed, call its record_stream() for {earlier}, or have "
            "the stream that it was allocated on wait for it."
        )
    return (
        f"nothing has {later} wait for {earlier}. Between the two accesses call wait_stream() of "
        f"the later stream, or record an event on {earlier} and have {later} wait for it."
    )


def stack_here() -> traceback.StackSummary:
    """The program's stack, outermost first, without flambeau's own frames."""
    frame = sys._getframe(1)
    rows: list[traceback.FrameSummary] = []
    while frame is not None and len(rows) < _MAX_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FILES):
            rows.append(
                traceback.FrameSummary(
                    code.co_filename, frame.f_lineno, code.co_name, lookup_line=False
                )
            )
        frame = frame.f_back  # type: ignore[assignment]
    rows.reverse()
    return traceback.StackSummary.from_list(rows)
