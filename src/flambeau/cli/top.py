# SPDX-License-Identifier: Apache-2.0
"""``flambeau top``: what the GPUs of this machine are doing now."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Group

    from flambeau.driver.contract import Management

__all__ = ["Figures", "figures", "run"]

_PIPE_COLUMNS = 140
_COLUMNS = (
    ("GPU", 3),
    ("name", 8),
    ("busy", 12),
    ("memory", 16),
    ("GiB", 13),
    ("°C", 3),
    ("watts", 5),
    ("MHz", 4),
)


@dataclass
class Figures:
    """The figures of one GPU; None where the GPU does not tell.

    Parameters
    ----------
    index
        NVML's index: that of the machine, whatever ``CUDA_VISIBLE_DEVICES`` says.
    uuid, name
        What it is.
    utilization, memory_utilization
        Percent of the last sample period.
    memory_used, memory_total
        Bytes.
    temperature
        Degrees Celsius.
    power
        Watts.
    clock
        MHz of the multiprocessors.
    processes
        Process id, bytes and command of each process on it.
    """

    index: int
    uuid: str
    name: str
    utilization: int | None
    memory_utilization: int | None
    memory_used: int | None
    memory_total: int | None
    temperature: int | None
    power: float | None
    clock: int | None
    processes: list[dict[str, Any]] = field(default_factory=list)


def figures() -> list[Figures]:
    """A reading of every GPU of the machine. No context is made.

    Raises
    ------
    DriverNotFoundError
        There is no driver, or no management library.
    """
    from flambeau import driver

    management = driver.current().management
    names = _visible_by_uuid()
    return [_figures(management, index, names) for index in range(management.device_count())]


def _figures(management: Management, index: int, names: dict[str, tuple[str, int]]) -> Figures:
    def read(getter: Callable[[int], int]) -> int | None:
        try:
            return getter(index)
        except RuntimeError:  # this GPU does not offer it, or not to this user
            return None

    uuid = management.uuid(index)
    name, total = names.get(uuid, ("", None))
    power = read(management.power_draw)
    try:
        found = management.processes(index)
    except RuntimeError:
        found = []
    processes = [
        {"pid": p.pid, "memory_used": p.used_bytes, "command": _command(p.pid)} for p in found
    ]
    return Figures(
        index=index,
        uuid=uuid,
        name=name,
        utilization=read(management.utilization),
        memory_utilization=read(management.memory_utilization),
        memory_used=read(management.used_bytes),
        memory_total=total,
        temperature=read(management.temperature),
        power=None if power is None else power / 1000,
        clock=read(management.clock_rate),
        processes=processes,
    )


def _visible_by_uuid() -> dict[str, tuple[str, int]]:
    """Names and sizes of the GPUs that this process sees; asking them makes no context."""
    from flambeau import cuda

    found = {}
    for index in range(cuda.device_count()):
        of = cuda.get_device_properties(index)
        found[f"GPU-{str(of.uuid).removeprefix('GPU-')}"] = (of.name, of.total_memory)
    return found


def _command(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def run(*, once: bool, as_json: bool, interval: float) -> None:
    """Show the figures: once, as JSON, or again and again until interrupted.

    Raises
    ------
    SystemExit
        There is no GPU to ask; the message says so.
    """
    from flambeau.driver.errors import DriverNotFoundError, MissingExtraError

    try:
        figures()
    except (DriverNotFoundError, MissingExtraError) as error:
        text = str(error).splitlines()[0]
        raise SystemExit(f"flambeau top: {text}\n`flambeau doctor` says what helps") from error
    if as_json:
        print(json.dumps([asdict(f) for f in figures()], indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    if once or not console.is_terminal:
        console.print(_screen(figures()))
        return
    from rich.live import Live

    with Live(_screen(figures()), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(_screen(figures()), refresh=True)
        except KeyboardInterrupt:
            return


def _screen(found: list[Figures]) -> Group:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    gpus = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head, least in _COLUMNS:  # a narrow terminal costs the name first
        left = head in {"name", "memory"}
        gpus.add_column(
            head, justify="left" if left else "right", no_wrap=head != "name", min_width=least
        )
    for of in found:
        gpus.add_row(
            str(of.index),
            of.name or of.uuid,
            _bar(of.utilization, 100, 6),
            _bar(of.memory_used, of.memory_total, 10),
            _memory(of),
            "-" if of.temperature is None else str(of.temperature),
            "-" if of.power is None else f"{of.power:.0f}",
            "-" if of.clock is None else str(of.clock),
        )
    processes = Table(box=box.SIMPLE_HEAD)
    for head in ("GPU", "process", "memory", "command"):
        processes.add_column(head, justify="left" if head == "command" else "right", no_wrap=True)
    for of in found:
        for p in of.processes:
            size = f"{p['memory_used'] / 2**20:,.0f} MiB"
            processes.add_row(str(of.index), str(p["pid"]), size, p["command"])
    return Group(gpus, processes if processes.row_count else "no processes on these GPUs")


def _bar(value: float | None, whole: float | None, width: int) -> str:
    if value is None:
        return "-"
    if not whole:
        return ""
    share = min(value / whole, 1.0)
    full = round(share * width)
    return f"[green]{'━' * full}[/][dim]{'━' * (width - full)}[/] {100 * share:3.0f} %"


def _memory(of: Figures) -> str:
    if of.memory_used is None:
        return "-"
    used = f"{of.memory_used / 2**30:.1f}"
    return f"{used} / {of.memory_total / 2**30:.1f}" if of.memory_total else used
