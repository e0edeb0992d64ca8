# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

def install(address: int) -> None:
    """Make the ``DriverTable`` at this address the active one.

    Entries that the driver left null answer ``CUDA_ERROR_NOT_SUPPORTED``.
    """

def set_capture_reporter(report: Callable[[int, str | None], Exception]) -> None:
    """Make the errors 900 to 908 of stream captures with this, from status and the driver's detail."""

def set_explainer(explain: Callable[[int], str | None] | None) -> None:
    """Set who can say more about a status than its name, such as which thread faulted where."""

def check_status(status: int) -> None:
    """Raise the exception that belongs to a driver status; nothing for 0."""

def entries() -> tuple[str, ...]:
    """The names of all entries of the table, in its order, such as ``"cuLaunchKernel"``."""

def inject(entry: str, *, status: int, nth: int = 1, times: int = 1) -> None:
    """Make calls number `nth` to ``nth + times - 1`` of an entry fail with `status`.

    The failing calls do not reach the driver. Calls count from 1 at the time of this call.

    Raises
    ------
    ValueError
        No entry has this name, or a count is below 1.
    """

def clear_faults() -> None:
    """Forget every planned failure."""

def start_trace() -> None:
    """Record each driver call from now on."""

def stop_trace() -> list[tuple[str, int]]:
    """Stop recording; the calls since `start_trace`, as (entry, status) in the order they ended."""
