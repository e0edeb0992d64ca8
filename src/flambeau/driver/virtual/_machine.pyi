# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau.driver.virtual.models import DeviceModel

def configure(models: Iterable[DeviceModel], workers: int) -> None:
    """Say which devices the next machine has and how many host threads share a kernel's blocks.

    Raises
    ------
    RuntimeError
        A machine is running.
    """

def set_schedule(order: str, seed: int) -> None:
    """Choose ``"fifo"``, ``"random"`` or ``"adversarial"``, for this machine and the next ones."""

def set_progress(on: bool) -> None:
    """Whether ready work starts by itself when nobody has called for 20 ms of wall time."""

def is_running() -> bool:
    """Whether ``cuInit`` has been called in this process and the machine has not been stopped."""

def table() -> int:
    """The address of the filled ``DriverTable``."""

def shutdown(code: object) -> None:
    """Stop the machine; all calls answer 4 from now on.

    A kernel that never ends goes on until the process has ended; `code`, what holds the loaded
    modules, is then kept alive for it.
    """

def reset(code: object) -> None:
    """Drop the machine. No other thread may be in a driver call; all handles become invalid.

    `code` as for `shutdown`.
    """

def explain(status: int) -> str | None:
    """What is known of a failure: of this thread's last call, else of the last work that failed so."""

def submit_library_call(
    name: str,
    function: Callable[[], object],
    ranges: Iterable[tuple[int, int, bool]],
    bytes: float,
    operations: float,
    stream: int,
) -> None:
    """Queue a library's call on a stream of the current context, or capture it.

    Parameters
    ----------
    name
        What graphs, traces and reports call it.
    function
        Computes it, on the executor thread; once for each replay of a graph.
    ranges
        Address, bytes and whether it writes there, of all that it touches.
    bytes, operations
        What its modelled time comes from.
    stream
        The ``CUstream``.
    """

def clock() -> int:
    """The host's modelled time in nanoseconds since the machine started; 0 before."""

def device_uuid(name: str, index: int) -> str:
    """``GPU-`` and 36 characters, for a model's name and a physical index."""

def visible_devices(variable: str | None, uuids: Sequence[str]) -> list[int]:
    """Which devices a value of ``CUDA_VISIBLE_DEVICES`` shows, in its order; None: unset."""

def set_tracing(on: bool) -> None:
    """Begin to note what devices do and what the host calls, or stop."""

def take_trace() -> tuple[
    list[
        tuple[
            int, str, int, int, int, int, int, int, int, int, int, str,
            tuple[int, int, int], tuple[int, int, int], int, int, int, int,
        ]
    ],
    list[tuple[str, int, int, int, int]],
]:  # fmt: skip
    """Work done and calls made since the last time.

    Of work: type of node, name, device, stream, correlation, graph, node, time of submission, start,
    end, bytes, path, grid, block, dynamic and static shared memory, registers, function. Of a call: name,
    correlation, thread, start, end. Times are nanoseconds of `clock`.
    """

def stream_number(handle: int) -> int:
    """A stream's number in traces: 7 for a default stream, 0 if there is no such stream."""

def open_meeting(file: int, size: int) -> int:
    """Map memory that ranks share, of a file or (-1) of this process; its address.

    Raises
    ------
    MemoryError
        The system refuses.
    """

def close_meeting(address: int) -> None:
    """Unmap it once no work uses it any more."""

def join_meeting(
    stream: int,
    name: str,
    communicator: int,
    meeting: int,
    ranks: int,
    rank: int,
    patience: float,
    kind: int,
    dtype: int,
    operation: int,
    root: int,
    send: int,
    receive: int,
    count: int,
    send_bytes: int,
    receive_bytes: int,
) -> None:
    """Submit one rank's part of a collective; `patience` is in seconds of wall time."""

def partition_stream(ordinal: int, first: int, count: int, priority: int) -> int:
    """A non-blocking stream whose kernels run on `count` multiprocessors from `first` on."""

def transfer_file(file: int, writes: bool, address: int, size: int, offset: int) -> tuple[int, int]:
    """Move bytes between a file and device memory; how many, and ``errno`` if it failed."""

def used_bytes(physical: int) -> int:
    """Bytes in use on a device, by index before ``CUDA_VISIBLE_DEVICES``."""

def lose_device(ordinal: int, status: int) -> None:
    """Make every later call on a device answer `status`.

    Raises
    ------
    AcceleratorError
        The machine is not running (3) or has no such device (101).
    """

def allocate_global(ordinal: int, size: int, initial: bytes) -> int:
    """Device memory for a module's variable; its address."""

def drain() -> None:
    """Run what is pending, as far as that comes without the host; for the end of a process."""

def finish() -> None:
    """Let all work of all devices run; errors stay where they are."""

def checks() -> int:
    """Which checks are on: 1 memory, 2 init, 4 race, added up."""

def set_checks(checks: int) -> None:
    """Have exactly these checks on; no work may be pending."""

def take_findings() -> list[dict[str, Any]]:
    """What checks found since the last time."""

def register_function(ordinal: int, code: int) -> int:
    """The ``CUfunction`` of a compiled kernel."""

def life_of_context(ordinal: int) -> int:
    """A number that changes when a device's context is destroyed."""

def unregister(ordinal: int, life: int, functions: Sequence[int], variables: Sequence[int]) -> int:
    """Wait for the device's work, then forget functions and free variables; the wait's status.

    Only the wait if the context has been destroyed since its `life` was asked for.
    """
