# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class KernelSummary:
    """What `kernel_info` says of a kernel; sizes in bytes, costs per thread."""

    name: str
    static_shared: int
    local_bytes: int
    max_threads: int
    registers: int
    parameters: tuple[tuple[int, int], ...]
    global_bytes_per_thread: float
    operations_per_thread: float
    yields: bool

@dataclass(frozen=True, slots=True)
class GridOutcome:
    """How a grid ended; `status` is a CUDA status, 0 for a good end."""

    status: int
    address: int
    access_bytes: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    access: str
    source: str
    message: str
    clock_cycles: int
    global_bytes: float
    operations: float

def context_layout() -> dict[str, int]:
    """Offsets in bytes of the fields that compiled code reads and writes, by ``Struct.field``."""

def helper_symbols() -> dict[str, int]:
    """Addresses of the functions that compiled code calls."""

def create_kernel(
    *,
    name: str,
    run_address: int,
    step_address: int,
    parameters: Sequence[tuple[int, int]],
    sites: Iterable[tuple[int, int, int, int, int]],
    files: Iterable[str],
    globals: Iterable[int],
    static_shared: int,
    local_bytes: int,
    max_threads: int,
    registers: int,
    frame_bytes: int,
    in_order: bool,
    uses_clock: bool,
    global_bytes: float,
    operations: float,
    watched: bool = False,
) -> int:
    """Make the executor's record of a compiled kernel; its address.

    One of `run_address` (kernels without yields) and `step_address` is 0. `parameters` are offsets
    and sizes; `sites` are access kind, bytes, PTX line, file index and source line.
    """

def destroy_kernel(address: int) -> None:
    """Free what `create_kernel` made. No grid of it may be running."""

def kernel_info(address: int) -> KernelSummary:
    """What is known of a kernel."""

def run_grid(
    kernel_address: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    params: bytes,
    ranges: Iterable[tuple[int, int]],
    workers: int = 1,
    *,
    multiprocessors: int = 1,
    clock_start: int = 0,
    cooperative: bool = False,
) -> GridOutcome:
    """Run a grid on host memory, without a machine around it.

    Parameters
    ----------
    kernel_address
        What `create_kernel` returned.
    grid, block
        One to three dimensions.
    shared
        Bytes of dynamic shared memory.
    params
        The parameters, packed by the kernel's offsets.
    ranges
        Address ranges ``(begin, end)`` that the kernel may touch.
    workers
        Host threads to share the blocks.
    multiprocessors, clock_start
        What ``%nsmid`` says and clock registers start from.
    cooperative
        Whether blocks may wait for all others of the grid.
    """
