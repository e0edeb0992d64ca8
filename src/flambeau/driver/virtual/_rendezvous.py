# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a communicator find each other and lay out what others take.

Ranks of several processes meet in a small file that the unique id names; it is gone again when all
have come. Data lies in memory without a name, one piece a rank, that the others open through
``/proc``: ranks are processes of one user on one machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import secrets
import struct
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flambeau.driver.errors import CollectiveError
from flambeau.driver.virtual import _machine
from flambeau.driver.virtual._collective_steps import (
    DATA_TYPES,
    KINDS,
    OPERATIONS,
    Call,
    Fault,
    device_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["MAXIMUM_RANKS", "Rendezvous", "Table", "join", "join_locally", "new_unique_id"]

MAXIMUM_RANKS = 1024
UNIQUE_ID_BYTES = 128
_MARK = b"flambeau virtual NCCL\0"
_SLOT = 512  # as meeting.hpp has it
_ABSENT, _PRESENT, _LEFT, _BROKEN = range(4)
_DIED, _GAVE_UP, _TIME_OUT, _GONE = range(1, 5)
_ABOUT = struct.Struct("iiiiQQQdiiiiQ")
_ABOUT_AT, _READY_AT, _REASON_AT = 64, 160, 176
_REASON_BYTES = _SLOT - _REASON_AT - 1


class _Slot(ctypes.Structure):
    _fields_ = (
        ("arrived", ctypes.c_uint64),
        ("departed", ctypes.c_uint64),
        ("process", ctypes.c_int32),
        ("state", ctypes.c_int32),
    )


class Description(NamedTuple):
    """What a rank has told of itself and of its newest call."""

    kind: int
    dtype: int
    op: int
    root: int
    elements: int
    send_bytes: int
    start: int
    bandwidth: float
    file: int
    device: int
    ranks: int
    pad: int
    inode: int


_NOTHING = Description(0, 0, 0, 0, 0, 0, 0, 0.0, -1, 0, 0, 0, 0)


class Table:
    """The slots of all ranks, in shared memory.

    Parameters
    ----------
    address
        Of the first slot.
    ranks
        How many there are.
    """

    def __init__(self, address: int, ranks: int) -> None:
        self.address = address
        self.ranks = ranks
        weakref.finalize(self, _machine.close_meeting, address).atexit = False

    def slot(self, rank: int) -> _Slot:
        """The part of a slot that the machine shares."""
        return _Slot.from_address(self.address + _SLOT * rank)

    def _bytes(self, rank: int, at: int, size: int) -> memoryview:
        start = self.address + _SLOT * rank + at
        return memoryview((ctypes.c_char * size).from_address(start)).cast("B")

    def description(self, rank: int) -> Description:
        """What a rank has told."""
        return Description(*_ABOUT.unpack(self._bytes(rank, _ABOUT_AT, _ABOUT.size)))

    def describe(self, rank: int, about: Description) -> None:
        """Tell the others."""
        _ABOUT.pack_into(self._bytes(rank, _ABOUT_AT, _ABOUT.size), 0, *about)

    def is_ready(self, rank: int) -> bool:
        """Whether a rank has opened what it needs of the others."""
        return self._bytes(rank, _READY_AT, 1)[0] == 1

    def set_ready(self, rank: int) -> None:
        """Say so."""
        self._bytes(rank, _READY_AT, 1)[0] = 1

    def reason(self, rank: int) -> str:
        """Why a rank gave up."""
        raw = bytes(self._bytes(rank, _REASON_AT, _REASON_BYTES))
        return raw.split(b"\0")[0].decode(errors="replace") or "its device was lost"

    def break_off(self, rank: int, reason: str) -> None:
        """Give up, for a reason; the first one stays."""
        slot = self.slot(rank)
        if slot.state != _BROKEN:
            text = reason.encode()[: _REASON_BYTES - 1]
            self._bytes(rank, _REASON_AT, _REASON_BYTES)[: len(text) + 1] = text + b"\0"
            slot.state = _BROKEN

    def leave(self, rank: int) -> None:
        """Say that a rank has left, unless it gave up."""
        if self.slot(rank).state == _PRESENT:
            self.slot(rank).state = _LEFT

    def failure(self) -> str | None:
        """The first rank that gave up, and why."""
        for rank in range(self.ranks):
            if self.slot(rank).state == _BROKEN:
                return f"rank {rank} gave up: {self.reason(rank)}"
        return None

    def explain(self, trouble: tuple[int, int], kind: str, step: int, timeout: float) -> str:
        """What is wrong with the rank that is waited for."""
        what, rank = trouble
        slot = self.slot(rank)
        if what == _DIED:
            return f"{kind} waits for rank {rank}, whose process {slot.process} has ended"
        if what == _GAVE_UP:
            return f"{kind} waits for rank {rank}, which gave up: {self.reason(rank)}"
        if what == _GONE:
            return f"{kind} waits for rank {rank}, which has destroyed its communicator"
        arrived = [self.slot(i).arrived for i in range(self.ranks)]
        turn = max(arrived)
        absent = [i for i in range(self.ranks) if arrived[i] < turn] if step else [rank]
        names = f"rank{'s' if len(absent) > 1 else ''} {_listed(absent)}"
        return (
            f"{kind} timed out: {names} of {self.ranks} did not come to collective {turn} of this "
            f"communicator within {timeout:g} s. Every rank must make the same calls in the same "
            "order; FLAMBEAU_NCCL_TIMEOUT sets the seconds"
        )

    def check_agreement(self, rank: int, call: Call, others: Sequence[Description]) -> None:
        """Refuse a collective that not all ranks mean alike.

        Raises
        ------
        Fault
            Another rank made another call; the text has both.
        """
        mine = _told(others[rank])
        for other, about in enumerate(others):
            if _told(about) != mine:
                raise Fault(
                    f"the ranks disagree: rank {rank} called {_spoken(others[rank])}, but rank "
                    f"{other} called {_spoken(about)}"
                )


def _told(about: Description) -> tuple[int, ...]:
    return about.kind, about.dtype, about.op, about.root, about.elements


def _spoken(about: Description) -> str:
    text = f"{KINDS[about.kind]} of {about.elements} elements of {DATA_TYPES[about.dtype]}"
    if KINDS[about.kind] in {"AllReduce", "Reduce", "ReduceScatter"}:
        text += f" ({OPERATIONS[about.op]})"
    if KINDS[about.kind] in {"Reduce", "Broadcast"}:
        text += f" with root {about.root}"
    return text


def _listed(numbers: Sequence[int]) -> str:
    texts = [str(number) for number in numbers]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


class Rendezvous:
    """A communicator's shared memory, as seen by one process.

    Parameters
    ----------
    table
        The slots.
    files
        Descriptors of the memory that each rank lays its input out in.
    members
        How many ranks of this process use it.
    """

    def __init__(self, table: Table, files: Sequence[int], members: int) -> None:
        self.table = table
        self._files = list(files)
        self._members = members

    def lay_out(self, rank: int, call: Call, start: int, bandwidth: float) -> None:
        """Copy a rank's input out and tell the others what was called."""
        own = self.table.description(rank)
        file, size = self._files[rank], call.send_bytes
        os.ftruncate(file, size)
        if size:
            with mmap.mmap(file, size) as shared:
                shared[:] = device_memory(call.send, size, np.dtype(np.uint8)).data
        self.table.describe(
            rank,
            own._replace(
                kind=call.kind,
                dtype=call.dtype,
                op=call.op,
                root=call.root,
                elements=call.elements,
                send_bytes=size,
                start=start,
                bandwidth=bandwidth,
            ),
        )

    def staged(self, call: Call, others: Sequence[Description]) -> list[NDArray[Any]]:
        """The ranks' inputs as bytes."""
        return [
            _mapped(file, about.send_bytes) for file, about in zip(self._files, others, strict=True)
        ]

    def leave(self, rank: int) -> None:
        """Forget; the memory goes with the last user."""
        self._members -= 1
        if self._members == 0:
            for file in self._files:
                os.close(file)
            self._files.clear()


def _mapped(file: int, size: int) -> NDArray[Any]:
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file, size, access=mmap.ACCESS_READ), np.uint8)


# -- coming together -------------------------------------------------------------------------------


def new_unique_id() -> bytes:
    """128 fresh bytes."""
    return (_MARK + secrets.token_bytes(16)).ljust(UNIQUE_ID_BYTES, b"\0")


def join_locally(devices: Sequence[int]) -> Rendezvous:
    """All ranks are of this process."""
    ranks = len(devices)
    table = Table(_machine.open_meeting(-1, _SLOT * ranks), ranks)
    files = []
    for rank, device in enumerate(devices):
        files.append(_new_memory())
        _announce(table, rank, device, files[-1])
    return Rendezvous(table, files, ranks)


def join(ranks: int, unique_id: bytes, rank: int, device: int, timeout: float) -> Rendezvous:
    """Become a rank among those that have the same unique id, and wait for all.

    Raises
    ------
    CollectiveError
        The id is none of ours, the rank is taken, or others did not come in time.
    """
    if not unique_id.startswith(_MARK):
        raise CollectiveError("the unique id was not made by unique_id() of virtual GPUs")
    if ranks > MAXIMUM_RANKS:
        raise CollectiveError(f"virtual GPUs offer {MAXIMUM_RANKS} ranks, not {ranks}")
    deadline = time.monotonic() + timeout
    path = _meeting_place(unique_id)
    own = _new_memory()
    with _locked(path) as file:
        os.ftruncate(file, _SLOT * MAXIMUM_RANKS)
        table = Table(_machine.open_meeting(file, _SLOT * MAXIMUM_RANKS), ranks)
        if table.slot(rank).state != _ABSENT:
            raise CollectiveError(
                f"rank {rank} of this communicator is taken by process {table.slot(rank).process}"
            )
        _announce(table, rank, device, own)
    try:
        _wait_for_all(table, rank, deadline, timeout)
        files = [own if i == rank else _open_memory(table, i) for i in range(ranks)]
        table.set_ready(rank)
        _wait_for_all(table, rank, deadline, timeout, ready=True)
    except CollectiveError as error:
        table.break_off(rank, str(error))
        raise
    finally:
        path.unlink(missing_ok=True)
    return Rendezvous(table, files, 1)


def _meeting_place(unique_id: bytes) -> Path:
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return where / f"flambeau-nccl-{os.getuid()}-{unique_id[len(_MARK) :][:16].hex()}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, made if needed, while nobody else has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: it may be mapped
        os.close(file)


def _new_memory() -> int:
    return os.memfd_create("flambeau-nccl", os.MFD_CLOEXEC)


def _announce(table: Table, rank: int, device: int, file: int) -> None:
    inode = os.fstat(file).st_ino
    table.describe(
        rank, _NOTHING._replace(file=file, device=device, ranks=table.ranks, inode=inode)
    )
    slot = table.slot(rank)
    slot.process = os.getpid()
    slot.state = _PRESENT  # last: now the others look


def _wait_for_all(
    table: Table, rank: int, deadline: float, timeout: float, ready: bool = False
) -> None:
    pause = 0.0005
    while True:
        failed = table.failure()
        if failed is not None:
            raise CollectiveError(f"rank {rank} waits for the others, but {failed}")
        missing = [
            i
            for i in range(table.ranks)
            if table.slot(i).state == _ABSENT or (ready and not table.is_ready(i))
        ]
        if not missing:
            break
        _check_alive(table, missing)
        if time.monotonic() > deadline:
            raise CollectiveError(
                f"timed out: rank{'s' if len(missing) > 1 else ''} {_listed(missing)} of "
                f"{table.ranks} did not call init_rank within {timeout:g} s of rank {rank}. "
                "FLAMBEAU_NCCL_TIMEOUT sets the seconds"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    _check_descriptions(table, rank)


def _check_descriptions(table: Table, rank: int) -> None:
    """Refuse ranks that were told of other numbers, or share a GPU, as NCCL does."""
    seen: dict[int, int] = {}
    for i in range(table.ranks):
        about = table.description(i)
        if about.ranks != table.ranks:
            raise CollectiveError(
                f"rank {rank} was told of {table.ranks} ranks, rank {i} of {about.ranks}"
            )
        if about.device in seen:
            raise CollectiveError(
                f"Duplicate GPU detected: ranks {seen[about.device]} and {i} are both on GPU "
                f"{about.device}; give each rank its own, with torch.cuda.set_device"
            )
        seen[about.device] = i


def _check_alive(table: Table, missing: Sequence[int]) -> None:
    """Fail for one that came and has ended."""
    for rank in missing:
        process = table.slot(rank).process
        if table.slot(rank).state == _PRESENT and process != os.getpid() and _ended(process):
            raise CollectiveError(f"rank {rank} came, but its process {process} has ended")


def _ended(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


def _open_memory(table: Table, rank: int) -> int:
    """Another rank's memory, of this process or another."""
    about, process = table.description(rank), table.slot(rank).process
    try:
        file = os.open(f"/proc/{process}/fd/{about.file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CollectiveError(
            f"the memory of rank {rank} cannot be opened ({error.strerror}): ranks are processes "
            "of one user that see each other's process ids"
        ) from error
    if os.fstat(file).st_ino != about.inode:
        os.close(file)
        raise CollectiveError(f"rank {rank} came, but its process {process} has ended")
    return file
