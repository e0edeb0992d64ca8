# SPDX-License-Identifier: Apache-2.0
"""Snapshot files: JSON lines, and the pickle that other tools write and read.

A pickle is a program. `read` does not run it: its own reader knows the dozen instructions that make
containers, strings and numbers, and refuses every other.

The JSON lines format, version 1. The first line says what the file is; every other line is one
object, known by its first key:

``{"format": "flambeau-memory", "version": 1, "devices": 2, "allocator_settings": {...}, ...}``
    The header.
``{"stack": 0, "frames": [["train.py", 12, "step"], ...]}``
    A stack, innermost frame first. Others refer to it by its number; -1 is no stack.
``{"segment": {"device": 0, "address": ..., ...}, "at": 0, "blocks": [[address, size, requested
size, state, stack], ...]}``
    A segment of the end; ``at`` is the stack that made it. ``"host_segment"``: of pinned memory.
``{"entry": "alloc", "device": 0, "addr": ..., "size": ..., "stream": 0, "time_us": ...}``
    An entry of a device's trace, in order; device -1 is pinned memory.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ["LIMIT", "load_pickle", "read", "write_lines"]

FORMAT, VERSION = "flambeau-memory", 1
LIMIT = 4 << 30
"""The most bytes of a file that `read` takes, unpacked."""

_BLOCK = ("address", "size", "requested_size", "state")


def read(path: str | os.PathLike[str], limit: int = LIMIT) -> Any:
    """Read a snapshot: JSON lines or a pickle, packed with gzip or not.

    Parameters
    ----------
    path
        The file.
    limit
        The most bytes to take, after unpacking.

    Returns
    -------
    dict or list
        As ``torch.cuda.memory._snapshot`` gives it, or a bare list of segments.

    Raises
    ------
    pickle.UnpicklingError
        A pickle has more than plain containers, or is damaged.
    ValueError
        The file is too large, or neither format.
    """
    with open(path, "rb") as file:
        raw = file.read(limit + 1)
    if raw[:2] == b"\x1f\x8b":
        with gzip.open(path, "rb") as packed:
            raw = packed.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(
            f"{os.fspath(path)} has more than {limit} bytes; raise the limit to read it"
        )
    if raw[:1] == b"\x80":
        return load_pickle(io.BytesIO(raw))
    if raw[:1] == b"{":
        return _from_lines(raw.decode("utf-8").splitlines(), os.fspath(path))
    raise ValueError(f"{os.fspath(path)} is neither a pickled snapshot nor JSON lines")


# --- JSON lines ---------------------------------------------------------------------------------


def write_lines(snapshot: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a snapshot as JSON lines, packed if the name ends in ``.gz``.

    Parameters
    ----------
    snapshot
        As ``torch.cuda.memory._snapshot`` gives it.
    path
        The file.
    """
    name = os.fspath(path)
    opened: Callable[..., Any] = gzip.open if name.endswith(".gz") else open
    with opened(name, "wt", encoding="utf-8") as file:
        for record in _records(snapshot):
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def _records(snapshot: dict[str, Any]) -> Iterator[dict[str, Any]]:
    stacks: dict[tuple[Any, ...], int] = {}
    fresh: list[dict[str, Any]] = []

    def number(frames: list[dict[str, Any]] | None) -> int:
        if not frames:
            return -1
        key = tuple((f["filename"], f["line"], f["name"]) for f in frames)
        if key not in stacks:
            stacks[key] = len(stacks)
            fresh.append({"stack": stacks[key], "frames": [list(frame) for frame in key]})
        return stacks[key]

    known = {"segments", "device_traces", "host_segments", "host_traces"}
    yield {
        "format": FORMAT,
        "version": VERSION,
        "devices": len(snapshot["device_traces"]),
        **{key: value for key, value in snapshot.items() if key not in known},
    }
    for key, kind in (("segments", "segment"), ("host_segments", "host_segment")):
        for segment in snapshot.get(key, ()):
            rest = {k: v for k, v in segment.items() if k not in {"frames", "blocks"}}
            blocks = [
                [*(b.get(k) for k in _BLOCK), number(b.get("frames"))] for b in segment["blocks"]
            ]
            record = {kind: rest, "at": number(segment.get("frames")), "blocks": blocks}
            yield from fresh
            fresh.clear()
            yield record
    traces = list(enumerate(snapshot["device_traces"]))
    traces += [(-1, snapshot.get("host_traces", []))]
    for device, entries in traces:
        for entry in entries:
            rest = {k: v for k, v in entry.items() if k not in {"frames", "action"}}
            record = {
                "entry": entry["action"],
                **rest,
                "device": device,
                "at": number(entry.get("frames")),
            }
            yield from fresh
            fresh.clear()
            yield record


def _from_lines(lines: list[str], name: str) -> dict[str, Any]:
    header = _parsed(lines[0], name, 1)
    if header.pop("format", None) != FORMAT:
        raise ValueError(f"{name} is not of the format {FORMAT}")
    version = header.pop("version", None)
    if version != VERSION:
        raise ValueError(f"{name} is of version {version}; this reads version {VERSION}")
    devices = header.pop("devices", 0)
    snapshot: dict[str, Any] = {
        "segments": [],
        "device_traces": [[] for _ in range(min(int(devices), 4096))],
        "host_segments": [],
        "host_traces": [],
        **header,
    }
    stacks: dict[int, list[dict[str, Any]]] = {}
    for place, line in enumerate(lines[1:], 2):
        record = _parsed(line, name, place)
        try:
            _take(record, snapshot, stacks)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{name}, line {place}: not understood ({error})") from error
    return snapshot


def _parsed(line: str, name: str, place: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{name}, line {place}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"{name}, line {place}: not an object")
    return record


def _take(
    record: dict[str, Any], snapshot: dict[str, Any], stacks: dict[int, list[dict[str, Any]]]
) -> None:
    if "stack" in record:
        stacks[record["stack"]] = [
            {"filename": str(f), "line": int(line), "name": str(n)}
            for f, line, n in record["frames"]
        ]
        return
    frames = stacks.get(record.pop("at", -1), [])
    for kind in ("segment", "host_segment"):
        if kind in record:
            blocks = [
                {**dict(zip(_BLOCK, values, strict=False)), "frames": stacks.get(values[4], [])}
                for values in record["blocks"]
            ]
            fields = _with_tuples(record[kind])
            snapshot[f"{kind}s"].append({**fields, "frames": frames, "blocks": blocks})
            return
    action = record.pop("entry")
    device = record.pop("device")
    traces = snapshot["host_traces"] if device < 0 else snapshot["device_traces"][device]
    traces.append({"action": str(action), **_with_tuples(record), "frames": frames})


def _with_tuples(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; ids of pools are some."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}


# --- the pickle ---------------------------------------------------------------------------------

_MARK = object()
_NUMBERS = {
    b"J": struct.Struct("<i"),
    b"K": struct.Struct("<B"),
    b"M": struct.Struct("<H"),
    b"G": struct.Struct(">d"),
}
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
_EMPTY: dict[bytes, Callable[[], Any]] = {b"]": list, b"}": dict, b")": tuple}
_TEXTS = {b"X": struct.Struct("<I"), b"\x8c": struct.Struct("<B"), b"\x8d": struct.Struct("<Q")}
_PUT = {b"q": struct.Struct("<B"), b"r": struct.Struct("<I")}
_GET = {b"h": struct.Struct("<B"), b"j": struct.Struct("<I")}
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}
_FILLING = frozenset({b"u", b"s", b"e", b"a"})
_SKIPPED = {b"\x80": 1, b"\x95": 8}  # the protocol, a frame's length
_REFUSED = {b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST"}
_REFUSED |= {
    b"o": "OBJ",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"P": "PERSID",
    b"Q": "BINPERSID",
}


def load_pickle(file: BinaryIO) -> Any:
    """Read a pickle of dicts, lists, tuples, strings and numbers; nothing in it is run.

    Parameters
    ----------
    file
        The pickle, of protocol 2 to 5.

    Raises
    ------
    pickle.UnpicklingError
        It asks for more, or is damaged.
    """
    try:
        return _Reader(file.read()).run()
    except (IndexError, KeyError, struct.error, TypeError, AttributeError) as error:
        raise UnpicklingError(
            f"the snapshot is damaged ({type(error).__name__}: {error})"
        ) from error


class _Reader:
    """Executes the few instructions that plain data needs."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise UnpicklingError("the snapshot is damaged: it ends too early")
        found = self.data[self.at : end]
        self.at = end
        return found

    def marked(self) -> list[Any]:
        """What is above the newest mark, taken from the stack with the mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise UnpicklingError("the snapshot is damaged: a mark is missing")
        above = self.stack[place + 1 :]
        del self.stack[place:]
        return above

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        while True:
            code = data[self.at : self.at + 1]
            self.at += 1
            if code in _GET:
                stack.append(memo[self.number(_GET[code])])
            elif code in _NUMBERS:
                stack.append(self.number(_NUMBERS[code]))
            elif code == b"\x94":
                memo[len(memo)] = stack[-1]
            elif code in _TEXTS:
                stack.append(str(self.take(self.number(_TEXTS[code])), "utf-8", "surrogatepass"))
            elif code in _EMPTY:
                stack.append(_EMPTY[code]())
            elif code == b"(":
                stack.append(_MARK)
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == b".":
                return stack[-1]
            else:
                self.rare(code)

    def rare(self, code: bytes) -> None:
        """Instructions that there are fewer of."""
        stack = self.stack
        if code in _FILLING:
            self.fill(code)
        elif code in _TUPLES:
            length = _TUPLES[code]
            if len(stack) < length:
                raise UnpicklingError("the snapshot is damaged: elements are missing")
            stack[-length:] = [tuple(stack[-length:])]
        elif code == b"t":
            items = self.marked()
            stack.append(tuple(items))
        elif code in _PUT:
            self.memo[self.number(_PUT[code])] = stack[-1]
        elif code == b"\x8a":
            stack.append(int.from_bytes(self.take(self.take(1)[0]), "little", signed=True))
        elif code in _SKIPPED:
            self.at += _SKIPPED[code]
        else:
            name = _REFUSED.get(code, repr(code))
            raise UnpicklingError(
                f"a snapshot has plain containers only, this file asks for {name}"
            )

    def fill(self, code: bytes) -> None:
        """Put items into a dict or elements into a list."""
        stack = self.stack
        if code == b"u":
            items = self.marked()
            _dict(stack[-1]).update(zip(items[::2], items[1::2], strict=True))
        elif code == b"s":
            value, key = stack.pop(), stack.pop()
            _dict(stack[-1])[key] = value
        elif code == b"e":
            items = self.marked()
            _list(stack[-1]).extend(items)
        else:
            value = stack.pop()
            _list(stack[-1]).append(value)


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise UnpicklingError("the snapshot is damaged: items for what is no dict")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise UnpicklingError("the snapshot is damaged: elements for what is no list")
    return value
