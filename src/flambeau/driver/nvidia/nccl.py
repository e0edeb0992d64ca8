# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's communication library, by nccl4py's bindings.

Communicators that several processes share do not block the host, so that a rank that is missing
or has failed is noticed: a thread looks after their work and aborts what takes too long.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import CollectiveError, MissingExtraError
from flambeau.driver.nvidia._nccl_watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NvidiaCollectives", "NvidiaCommunicator"]

_SUCCESS, _IN_PROGRESS = 0, 7


@functools.cache
def _bindings() -> Any:
    try:
        from nccl.bindings import nccl
    except ImportError as error:
        raise MissingExtraError(
            "NCCL's package for Python, nccl4py, is not installed. Install it with: "
            "pip install 'flambeau[nccl]'"
        ) from error
    try:
        nccl.get_version()
    except RuntimeError as error:  # what the search for a library raises
        first = str(error).partition("\n")[0]
        raise MissingExtraError(
            f"The library of NCCL was not found ({first}). Install it with: "
            "pip install 'flambeau[nccl]'"
        ) from error
    return nccl


@contextlib.contextmanager
def _translated(what: str) -> Iterator[Any]:
    """The bindings; what they raise becomes an error of ours."""
    nccl = _bindings()
    try:
        yield nccl
    except nccl.NCCLError as error:
        raise CollectiveError(f"NCCL Error: {what} failed: {error}") from error


class NvidiaCollectives:
    """NCCL in this process."""

    def version(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        number = int(_bindings().get_version())
        return number // 10000, number // 100 % 100, number % 100

    def unique_id(self) -> bytes:
        """128 fresh bytes that name a communicator."""
        with _translated("ncclGetUniqueId") as nccl:
            made = nccl.get_unique_id()
            return made if isinstance(made, bytes) else bytes(made)

    def join(
        self, ranks: int, unique_id: bytes, rank: int, device: int, timeout: float
    ) -> NvidiaCommunicator:
        """Become a rank; returns when all have come."""
        with _translated(f"ncclCommInitRank of rank {rank} of {ranks}") as nccl:
            config = nccl.Config()
            config.blocking = 0
            identity = nccl.UniqueId.from_buffer(bytearray(unique_id))
            handle = nccl.comm_init_rank_config(ranks, identity.ptr, rank, config.ptr)
        made = NvidiaCommunicator(handle, rank, ranks, device, timeout, watched=ranks > 1)
        made.settle("init_rank")
        return made

    def join_all(self, devices: Sequence[int], timeout: float) -> list[NvidiaCommunicator]:
        """All ranks at once, of this process."""
        with _translated(f"ncclCommInitAll on devices {list(devices)}") as nccl:
            handles = nccl.comm_init_all(len(devices), list(devices))
        return [
            NvidiaCommunicator(handle, i, len(devices), device, timeout, watched=False)
            for i, (handle, device) in enumerate(zip(handles, devices, strict=True))
        ]

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Collectives inside begin together."""
        nccl = _bindings()
        nccl.group_start()
        _open_group.called = []
        try:
            yield
        finally:
            called, _open_group.called = _open_group.called, None
            with _translated("a group of collectives"):
                nccl.group_end()
        for communicator, name, stream in called:
            communicator.settle(name)
            communicator.note(name, stream)


class _OpenGroup(threading.local):
    """What this thread has called since its group began."""

    called: list[tuple[NvidiaCommunicator, str, int]] | None = None


_open_group = _OpenGroup()


class NvidiaCommunicator:
    """One rank.

    Parameters
    ----------
    handle
        What nccl4py has for an ``ncclComm_t``.
    rank, ranks, device
        Its number, how many there are, its GPU.
    timeout
        Seconds that work may take to begin and end.
    watched
        Whether other processes take part, so that it may have to be given up.
    """

    def __init__(
        self, handle: Any, rank: int, ranks: int, device: int, timeout: float, *, watched: bool
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        self.device = device
        self._handle: Any = handle  # None once it is gone
        self._timeout = timeout
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._watch = Watch(weakref.ref(self), device, timeout) if watched else None

    def all_reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclAllReduce``."""
        self._call("all_reduce", send, receive, count, dtype, op, stream=stream)

    def reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, root: int, stream: int
    ) -> None:
        """``ncclReduce``."""
        self._call("reduce", send, receive, count, dtype, op, root, stream=stream)

    def broadcast(
        self, send: int, receive: int, count: int, dtype: int, root: int, stream: int
    ) -> None:
        """``ncclBroadcast``."""
        self._call("broadcast", send, receive, count, dtype, root, stream=stream)

    def all_gather(self, send: int, receive: int, count: int, dtype: int, stream: int) -> None:
        """``ncclAllGather``."""
        self._call("all_gather", send, receive, count, dtype, stream=stream)

    def reduce_scatter(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclReduceScatter``."""
        self._call("reduce_scatter", send, receive, count, dtype, op, stream=stream)

    def _call(self, name: str, *arguments: int, stream: int) -> None:
        if self._failure is not None or self._handle is None:
            raise CollectiveError(
                f"this communicator cannot be used any more: {self._failure or 'it was destroyed'}"
            )
        with _translated(f"{name} of rank {self.rank} of {self.ranks}") as nccl:
            getattr(nccl, name)(*arguments, self._handle, stream)
        if _open_group.called is not None:
            _open_group.called.append((self, name, stream))
        else:
            self.settle(name)
            self.note(name, stream)

    def settle(self, name: str) -> None:
        """Wait until the host's part of a call is over, but not for ever."""
        if self._watch is None and self.ranks > 1:
            return  # a blocking communicator
        nccl, deadline, pause = _bindings(), time.monotonic() + self._timeout, 0.0
        while True:
            state = int(nccl.comm_get_async_error(self._handle))
            if state == _SUCCESS:
                return
            if state != _IN_PROGRESS:
                self.give_up(f"{name} failed: {self._said(state)}")
                break
            if time.monotonic() > deadline:
                self.give_up(
                    f"{name} of rank {self.rank} of {self.ranks} timed out: not all other ranks "
                    f"came within {self._timeout:g} s. FLAMBEAU_NCCL_TIMEOUT sets the seconds"
                )
                break
            time.sleep(pause)
            pause = min(0.01, pause + 1e-5)
        raise CollectiveError(self._failure or name)

    def note(self, name: str, stream: int) -> None:
        """Have work that was given to a stream looked after."""
        if self._watch is not None:
            self._watch.note(name, stream)

    def check(self) -> None:
        """Give up if NCCL has noticed a failure."""
        with self._lock:
            if self._handle is None or self._failure is not None:
                return
            state = int(_bindings().comm_get_async_error(self._handle))
        if state not in {_SUCCESS, _IN_PROGRESS}:
            self.give_up(f"NCCL reported: {self._said(state)}")

    def _said(self, state: int) -> str:
        nccl = _bindings()
        text = nccl.get_error_string(state)
        more = "" if self._handle is None else nccl.get_last_error(self._handle)
        return f"{text} ({more.strip()})" if more and more.strip() else str(text)

    # -- the life of a communicator

    def failure(self) -> str | None:
        """What went wrong, or None."""
        if self._watch is not None:
            self.check()
        return self._failure

    def give_up(self, reason: str) -> None:
        """Abort, for a reason that later calls will tell."""
        with self._lock:
            if self._failure is None:
                self._failure = reason
            handle, self._handle = self._handle, None
        if handle is not None:
            print(f"flambeau: NCCL communicator aborted: {reason}", file=sys.stderr)
            _bindings().comm_abort(handle)

    def abort(self) -> None:
        """Give up."""
        self.give_up("it was aborted")

    def destroy(self) -> None:
        """Free it."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            with _translated("ncclCommDestroy") as nccl:
                nccl.comm_destroy(handle)
