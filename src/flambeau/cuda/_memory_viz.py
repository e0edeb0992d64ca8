# SPDX-License-Identifier: Apache-2.0
"""Pictures of memory snapshots, as functions and as ``python -m flambeau.cuda._memory_viz``.

Snapshots are what ``torch.cuda.memory._snapshot`` returns and ``_dump_snapshot`` writes; a bare
list of segments will do where no trace is needed. Files are read by a restricted parser that makes
plain containers only.
"""

from __future__ import annotations

import io
import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from flambeau.cuda import _memory_file, _memory_flamegraph, _memory_pages
from flambeau.runtime.out_of_memory import format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    Snapshot: TypeAlias = dict[str, Any] | list[dict[str, Any]]

__all__ = [
    "compare",
    "format_flamegraph",
    "load",
    "memory",
    "profile_plot",
    "segment_plot",
    "segments",
    "segsum",
    "trace",
    "trace_plot",
]

CELL = 20 << 20  # bytes that a character of segsum() stands for


def load(file: BinaryIO) -> Any:
    """Read a snapshot file without running anything in it.

    Raises
    ------
    pickle.UnpicklingError
        The file has more than plain containers.
    """
    return _memory_file.load_pickle(file)


def _segments_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    if isinstance(snapshot, list):
        return snapshot
    found: list[dict[str, Any]] = snapshot["segments"]
    return found


# --- flame graphs -------------------------------------------------------------------------------


def format_flamegraph(flamegraph_lines: str, flamegraph_script: str | None = None) -> str:
    """Draw folded lines as an SVG image.

    Parameters
    ----------
    flamegraph_lines
        Lines ``outer;inner BYTES``.
    flamegraph_script
        A program that draws them instead, such as ``flamegraph.pl``: it gets the lines as input.
    """
    if flamegraph_script is None:
        return _memory_flamegraph.draw(flamegraph_lines)
    import subprocess

    done = subprocess.run(
        [flamegraph_script, "--countname", "bytes"],
        input=flamegraph_lines,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _frame(frame: dict[str, Any]) -> str:
    return f"{frame['filename']}:{frame['line']}:{frame['name']}".replace(";", ":")


def _block_lines(prefix: str, block: dict[str, Any]) -> Iterator[str]:
    frames = block.get("frames") or []
    stack = ";".join(map(_frame, reversed(frames))) if frames else "<non-python>"
    state = block["state"]
    if state == "inactive":
        yield f"{prefix};{state} {block['size']}"
        return
    used = block.get("requested_size", block["size"])
    yield f"{prefix};{state};{stack} {used}"
    if block["size"] > used:
        yield f"{prefix};{state};<gaps>;{stack} {block['size'] - used}"


def _folded(found: Iterable[dict[str, Any]], by_segment: bool, before: str = "") -> str:
    lines: list[str] = []
    for segment in found:
        prefix = f"{before}stream_{segment['stream']}"
        if by_segment:
            prefix += f";seg_{segment['address']}"
        for block in segment["blocks"]:
            lines += _block_lines(prefix, block)
    return "\n".join(lines)


def segments(
    snapshot: Snapshot, format_flamegraph: Callable[[str], str] = format_flamegraph
) -> str:
    """A flame graph of what is reserved: streams, segments, states, stacks.

    Parameters
    ----------
    snapshot
        The snapshot.
    format_flamegraph
        Who draws folded lines.
    """
    return format_flamegraph(_folded(_segments_of(snapshot), by_segment=True))


def memory(snapshot: Snapshot, format_flamegraph: Callable[[str], str] = format_flamegraph) -> str:
    """A flame graph of what is reserved, without the segments: streams, states, stacks.

    Parameters
    ----------
    snapshot
        The snapshot.
    format_flamegraph
        Who draws folded lines.
    """
    return format_flamegraph(_folded(_segments_of(snapshot), by_segment=False))


def compare(
    before: Snapshot,
    after: Snapshot,
    format_flamegraph: Callable[[str], str] = format_flamegraph,
) -> str:
    """A flame graph of the segments that only one of two snapshots has.

    Parameters
    ----------
    before, after
        The snapshots. Segments are the same if they have the same address and size.
    format_flamegraph
        Who draws folded lines.
    """
    of_before = {(s["address"], s["total_size"]): s for s in _segments_of(before)}
    of_after = {(s["address"], s["total_size"]): s for s in _segments_of(after)}
    lost = [of_before[key] for key in sorted(of_before.keys() - of_after.keys())]
    gained = [of_after[key] for key in sorted(of_after.keys() - of_before.keys())]
    parts = [_folded(lost, True, "only_before;"), _folded(gained, True, "only_after;")]
    return format_flamegraph("\n".join(part for part in parts if part))


# --- text ---------------------------------------------------------------------------------------


def segsum(data: Snapshot) -> str:
    """How full the segments are, as text.

    Parameters
    ----------
    data
        The snapshot.

    Returns
    -------
    str
        Totals, then a row for each segment of at least 20 MiB, largest first.
    """
    found = _segments_of(data)
    blocks = [block for segment in found for block in segment["blocks"]]
    held = [block for block in blocks if block["state"] != "inactive"]
    rounding = sum(b["size"] - b.get("requested_size", b["size"]) for b in held)
    free = sum(b["size"] for b in blocks) - sum(b["size"] for b in held) + rounding
    internal = 100 * rounding / free if free else 0
    large = sorted(found, key=lambda s: (-s["total_size"], s["address"]))
    large = [segment for segment in large if segment["total_size"] >= CELL]
    lines = [
        f"segments: {len(found)}",
        f"reserved: {format_size(sum(s['total_size'] for s in found))}",
        f"in use: {format_size(sum(b['size'] for b in held) - rounding)}",
        f"free: {format_size(free)} ({internal:.1f}% internal)",
        *(_cells(segment) for segment in large),
    ]
    return "\n".join([*lines, _LEGEND])


_LEGEND = """
Each [...] is a segment, each character 20 MiB of it:
  a-z    one block fills it (neighbours with one letter are the same block)
  0-9    blocks fill so many tenths of it
  *      several blocks fill it
  blank  it is free
"internal" is the share of the free memory that is free because sizes are rounded up.
"""


def _cells(segment: dict[str, Any]) -> str:
    cells = []
    for start in range(0, segment["total_size"], CELL):
        end = min(start + CELL, segment["total_size"])
        cells.append(_cell(segment, start, end))
    return f"[{''.join(cells)}]"


def _cell(segment: dict[str, Any], start: int, end: int) -> str:
    used, inside = 0, []
    position = 0
    for number, block in enumerate(segment["blocks"]):
        overlap = min(position + block["size"], end) - max(position, start)
        if overlap > 0 and block["state"] != "inactive":
            used += overlap
            inside.append(number)
        position += block["size"]
    if not used:
        return " "
    if used == end - start:
        return chr(ord("a") + inside[0] % 26) if len(inside) == 1 else "*"
    return str(min(9, 10 * used // (end - start)))


def trace(data: Snapshot) -> str:
    """The history as text that reads like a program, device by device.

    Parameters
    ----------
    data
        A snapshot with traces; KeyError without.
    """
    if isinstance(data, list):
        raise KeyError("device_traces")
    lines = []
    for device, entries in enumerate(data["device_traces"]):
        if entries:
            lines.append(f"Device {device}: {len(entries)} entries")
            lines += _trace_lines(entries)
    return "\n".join([*lines, ""])


def _trace_lines(entries: list[dict[str, Any]]) -> Iterator[str]:
    names: dict[tuple[bool, int], str] = {}
    count = {True: 0, False: 0}
    for entry in entries:
        action, size = entry["action"], format_size(entry["size"])
        if action == "oom":
            yield f"raise OutOfMemoryError  # {size} requested, {entry['device_free']} bytes free"
            continue
        if action == "snapshot":
            yield f"snapshot()  # {size} active"
            continue
        of_segment = action.startswith("segment")
        key = of_segment, entry["addr"]
        if action in {"alloc", "segment_alloc", "segment_map"}:
            names[key] = f"{'segment' if of_segment else 'block'}_{count[of_segment]}"
            count[of_segment] += 1
            yield f"{names[key]} = {action}({size})  # {entry['addr']:#x}, stream {entry['stream']}"
        else:
            name = names.get(key, f"{entry['addr']:#x}")
            yield f"{action}({name})  # {size}"


# --- pages --------------------------------------------------------------------------------------


def _device_of(data: dict[str, Any], device: int | None) -> int:
    traces = data["device_traces"]
    used = [index for index, entries in enumerate(traces) if entries]
    if device is None:
        return used[0] if used else 0
    if not 0 <= device < max(len(traces), 1):
        raise ValueError(f"the snapshot has {len(traces)} devices, there is no device {device}")
    return device


def trace_plot(
    data: dict[str, Any],
    device: int | None = None,
    plot_segments: bool = False,
    filter_freed: bool = False,
) -> str:
    """A page that shows who holds how much memory over the history.

    Parameters
    ----------
    data
        A snapshot with traces.
    device
        Which; None is the first that has a trace.
    plot_segments
        Whether to show segments instead of the blocks in them.
    filter_freed
        Whether to leave out what was freed again.

    Returns
    -------
    str
        HTML that needs no network.
    """
    device = _device_of(data, device)
    return _memory_pages.page(
        data,
        f"{'Segments' if plot_segments else 'Memory'} of device {device}",
        devices=[device],
        of_segments=plot_segments,
        living_only=filter_freed,
    )


def segment_plot(data: dict[str, Any], device: int | None = None) -> str:
    """A page that shows the segments and the blocks in them, at any time of the history.

    Parameters
    ----------
    data
        A snapshot with traces.
    device
        Which; None is the first that has a trace.

    Returns
    -------
    str
        HTML that needs no network.
    """
    device = _device_of(data, device)
    title = f"Segments of device {device}"
    return _memory_pages.page(data, title, devices=[device], start="segments")


def profile_plot(profile: Any, device: str | None = None) -> str:
    """A page that shows who held how much memory during a profiler's recording.

    Parameters
    ----------
    profile
        A `flambeau.profiler.profile` with ``profile_memory=True`` that has recorded.
    device
        ``"cpu"`` or ``"cuda:0"``; None is the first GPU that memory was taken on.

    Returns
    -------
    str
        HTML that needs no network.

    Raises
    ------
    ValueError
        Memory was not profiled.
    """
    if not profile.profile_memory:
        raise ValueError("profile_plot needs a profile(profile_memory=True)")
    from flambeau.profiler import _stacks

    return _stacks.memory_page(profile._recorded(), device)


# --- the command --------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m flambeau.cuda._memory_viz", description="Pictures of memory snapshots."
    )
    verbs = parser.add_subparsers(dest="verb")

    def verb(name: str, text: str, output: str | None, inputs: Sequence[str] = ("input",)) -> Any:
        made = verbs.add_parser(name, help=text, description=text)
        for one in inputs:
            made.add_argument(one, help="a snapshot file; - for standard input")
        if output is not None:
            made.add_argument("-o", "--output", default=output, help=f"default: {output}")
        return made

    verb("stats", "print how full the segments are", None)
    verb("trace", "print the history", None)
    verb("segments", "draw a flame graph of the segments", "output.svg")
    verb("memory", "draw a flame graph of the memory", "output.svg")
    verb("compare", "draw what two snapshots do not share", "output.svg", ("before", "after"))
    for name, text in (
        ("trace_plot", "draw memory over time"),
        ("segment_plot", "draw segments over time"),
    ):
        made = verb(name, text, "output.html")
        made.add_argument("-d", "--device", type=int, help="which device; deprecated")
        if name == "trace_plot":
            made.add_argument("-s", "--segments", action="store_true", help="segments, not blocks")
            made.add_argument("-f", "--filter_freed", action="store_true", help="only what lives")
    return parser


def _read(name: str) -> Any:
    if name == "-":
        return load(io.BytesIO(sys.stdin.buffer.read()))
    return _memory_file.read(name)


def _picture(arguments: argparse.Namespace) -> str:
    if arguments.verb == "compare":
        return compare(_read(arguments.before), _read(arguments.after))
    data = _read(arguments.input)
    if arguments.verb == "segments":
        return segments(data)
    if arguments.verb == "memory":
        return memory(data)
    if arguments.device is not None:
        warnings.warn("-d is deprecated", DeprecationWarning, stacklevel=2)
    if arguments.verb == "trace_plot":
        return trace_plot(data, arguments.device, arguments.segments, arguments.filter_freed)
    return segment_plot(data, arguments.device)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments, by default the process's own."""
    options = _parser().parse_args(arguments)
    if options.verb is None:
        return
    if options.verb in {"stats", "trace"}:
        data = _read(options.input)
        sys.stdout.write(segsum(data) if options.verb == "stats" else trace(data))
        return
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(_picture(options))


if __name__ == "__main__":
    main()
