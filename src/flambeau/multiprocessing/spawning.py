# SPDX-License-Identifier: Apache-2.0
"""Several processes that run one function, and the first failure of any of them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):  # noqa: N818 - torch's name
    """A process failed.

    Parameters
    ----------
    msg
        What is known.
    error_index
        The number that the function was given in that process.
    error_pid
        The process.
    """

    __slots__ = ("error_index", "error_pid", "msg")

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised; the text ends with its traceback."""


class ProcessExitedException(ProcessException):
    """A process ended with a status other than 0, or by a signal.

    Parameters
    ----------
    msg, error_index, error_pid
        As for every failure.
    exit_code
        The status; negative numbers are signals.
    signal_name
        Which, if it was one.
    """

    __slots__ = ("exit_code", "signal_name")

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.msg,
            self.error_index,
            self.error_pid,
            self.exit_code,
            self.signal_name,
        )


def _run(fn: Callable[..., object], index: int, args: tuple[Any, ...], report: str) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent is interrupted too, and ends us
    except Exception:  # noqa: BLE001 - whatever it is, the parent is to raise it
        with open(report, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Parameters
    ----------
    processes
        The processes.
    error_files
        Where each leaves the text of its exception.
    """

    def __init__(self, processes: list[BaseProcess], error_files: list[str]) -> None:
        self.processes = processes
        self.error_files = error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """The process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for the processes; the first that fails ends the others.

        Parameters
        ----------
        timeout
            Seconds to wait at most; None for no limit.
        grace_period
            Seconds that the others have to end by themselves after a failure.

        Returns
        -------
        bool
            Whether all have ended well.

        Raises
        ------
        ProcessRaisedException
            The function raised in one of them.
        ProcessExitedException
            One ended otherwise.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(self.sentinels.keys(), timeout=timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            self._tidy()
            return not self.sentinels
        self._end_all(grace_period)
        raise self._failure(failed)

    def _end_all(self, grace_period: float | None) -> None:
        deadline = time.monotonic() + (grace_period or 0)
        for process in self.processes:
            if grace_period:
                process.join(max(0, deadline - time.monotonic()))
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, index: int) -> ProcessException:
        process, report = self.processes[index], self.error_files[index]
        text = ""
        if os.path.getsize(report):
            with open(report, "rb") as file:
                text = pickle.load(file)
        self.sentinels.clear()
        self._tidy()
        pid, code = process.pid or 0, process.exitcode or 0
        if text:
            message = f"\n\n-- Process {index} terminated with the following error:\n{text}"
            return ProcessRaisedException(message, index, pid)
        if code < 0:
            name = signal.Signals(-code).name
            message = f"process {index} terminated with signal {name}"
            return ProcessExitedException(message, index, pid, code, name)
        message = f"process {index} terminated with exit code {code}"
        return ProcessExitedException(message, index, pid, code)

    def _tidy(self) -> None:
        if self.sentinels:
            return
        for report in self.error_files:
            if os.path.exists(report):
                os.unlink(report)


class SpawnContext(ProcessContext):
    """Processes that `spawn` started."""


def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run a function in several processes; see `spawn`.

    Parameters
    ----------
    fn, args, nprocs, join, daemon
        As for `spawn`.
    start_method
        ``"spawn"``, ``"forkserver"`` or ``"fork"``; a forked child cannot use CUDA if its parent
        did.

    Returns
    -------
    ProcessContext or None
        None with `join`.
    """
    context = multiprocessing.get_context(start_method)
    processes: list[BaseProcess] = []
    reports: list[str] = []
    for index in range(nprocs):
        descriptor, report = tempfile.mkstemp(prefix="flambeau-error-", suffix=".pickle")
        os.close(descriptor)
        process = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(fn, index, args, report), daemon=daemon
        )
        process.start()
        processes.append(process)
        reports.append(report)
    started = SpawnContext(processes, reports)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run a function in `nprocs` new processes, as ``fn(index, *args)``.

    Parameters
    ----------
    fn
        A function of a module, so that the children can import it.
    args
        What it is given after the index.
    nprocs
        How many processes.
    join
        Whether to wait for all of them.
    daemon
        Whether they end with this process.
    start_method
        Always ``"spawn"``; `start_processes` has others.

    Returns
    -------
    ProcessContext or None
        None with `join`; else its ``join()`` waits.

    Raises
    ------
    ProcessRaisedException
        The function raised in one of them; the others were ended.
    ProcessExitedException
        One ended with another status than 0, or by a signal.

    Examples
    --------
    >>> import flambeau.multiprocessing as mp
    >>> mp.spawn(print, nprocs=0)
    """
    if start_method != "spawn":
        import warnings

        warnings.warn(
            f"spawn ignores start_method={start_method!r}; start_processes takes it",
            UserWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
