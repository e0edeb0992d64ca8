# SPDX-License-Identifier: Apache-2.0
"""Activities of NVIDIA GPUs, from CUPTI through the package ``cupti-python``."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
import time
from typing import Any

from flambeau.driver.activity import Activities, DeviceWork, HostCall
from flambeau.driver.nvidia import _nvidia

__all__ = ["NvidiaActivity"]

_BUFFER_BYTES = 8 << 20
_KINDS = (
    "CONCURRENT_KERNEL",
    "MEMCPY",
    "MEMCPY2",  # between devices
    "MEMSET",
    "DRIVER",
    "RUNTIME",
)
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA"}
_COPY_KINDS |= {8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORY_KINDS = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
_MEMORY_KINDS |= {6: "Device Static", 7: "Managed Static"}

# Questions, of which libraries ask hundreds: they would hide the calls that do something.
_QUESTIONS = re.compile(
    r"cu(da)?(Get|Driver|Init|Peek|Device(Get|Total)|Ctx(Get|Set|Push|Pop)|Func(Get|tion)"
    r"|Module(Get|Enumerate)|Library(Get|Enumerate)|Occupancy|Thread|Kernel(Get|Set)|Pointer)"
)
_VERSION = re.compile(r"(_v\d+)?(_pt(sz|ds))?$")  # ends of names that tell symbols apart


class NvidiaActivity:
    """CUPTI's activity records between `start` and `stop`."""

    def __init__(self) -> None:
        self._cupti: Any = None
        self._trouble: str | None = None
        self._found = Activities()
        self._lock = threading.Lock()
        self._names: dict[tuple[bool, int], str] = {}

    def unavailable(self) -> str:
        """Why CUPTI cannot be used; empty if it can."""
        if self._trouble is None:
            self._trouble = self._load()
        return self._trouble

    def _load(self) -> str:
        try:
            from cupti import cupti
        except (ImportError, RuntimeError, OSError) as error:
            return (
                "GPU activity needs CUPTI. Install it with: pip install 'flambeau[profile]' "
                f"({error})"
            )
        self._cupti = cupti
        # Too old, or another tool has chosen: see `_use_system_ids`.
        with contextlib.suppress(AttributeError, cupti.cuptiError):
            cupti.set_thread_id_type(int(cupti.ActivityThreadIdType.SYSTEM))
        return ""

    def start(self) -> None:
        """Register buffers and enable the kinds of records.

        Raises
        ------
        RuntimeError
            CUPTI cannot be used, another profiler has it, or this user may not profile.
        """
        trouble = self.unavailable()
        if trouble:
            raise RuntimeError(trouble)
        with self._lock:
            self._found = Activities()
        cupti = self._cupti
        try:
            cupti.activity_register_callbacks(self._buffer, self._take)
            for kind in _KINDS:
                cupti.activity_enable(int(getattr(cupti.ActivityKind, kind)))
        except cupti.cuptiError as error:
            raise RuntimeError(
                f"CUPTI refused to collect activities: {error}. Another profiler may be attached, "
                "or this user may not read performance counters (ERR_NVGPUCTRPERM)."
            ) from error

    def stop(self) -> Activities:
        """Disable the records, flush the buffers and hand over what came."""
        cupti = self._cupti
        for kind in _KINDS:
            cupti.activity_disable(int(getattr(cupti.ActivityKind, kind)))
        cupti.activity_flush_all(0)
        with self._lock:
            found, self._found = self._found, Activities()
        _use_system_ids(found.calls)
        found.work.sort(key=lambda w: w.start)
        found.calls.sort(key=lambda c: c.start)
        return found

    def driver_version(self) -> int:
        """The installed driver's version."""
        return _nvidia.driver_version()

    def now(self) -> int:
        """CUPTI's time stamp; the system's time where there is no CUPTI."""
        if self._cupti is None:
            return time.time_ns()
        return int(self._cupti.get_timestamp())

    def epoch(self) -> int:
        """What the stamps count from."""
        return time.time_ns() - self.now()

    def stream_number(self, stream: int, device: int) -> int:
        """Not asked of CUPTI: it wants the context too."""
        return 7 if stream <= 1 else 0

    @staticmethod
    def _buffer() -> tuple[int, int]:
        return _BUFFER_BYTES, 0

    def _take(self, records: list[Any]) -> None:
        """Convert records while their buffer is there; CUPTI calls this on any thread."""
        kinds = self._cupti.ActivityKind
        work: list[DeviceWork] = []
        calls: list[HostCall] = []
        for record in records:
            kind = int(record.kind)
            if kind == kinds.CONCURRENT_KERNEL:
                work.append(_kernel(record))
            elif kind in (kinds.MEMCPY, kinds.MEMCPY2):
                work.append(_copy(record))
            elif kind == kinds.MEMSET:
                work.append(_fill(record))
            elif kind in (kinds.DRIVER, kinds.RUNTIME):
                call = self._call(record, kind == kinds.DRIVER)
                if not _QUESTIONS.match(call.name):
                    calls.append(call)
        with self._lock:
            self._found.work += work
            self._found.calls += calls

    def _call(self, record: Any, of_driver: bool) -> HostCall:
        number = int(record.cbid)
        name = self._names.get((of_driver, number))
        if name is None:
            domains = self._cupti.CallbackDomain
            domain = domains.DRIVER_API if of_driver else domains.RUNTIME_API
            name = _VERSION.sub("", str(self._cupti.get_callback_name(int(domain), number)))
            self._names[of_driver, number] = name
        return HostCall(
            name,
            "driver" if of_driver else "runtime",
            number,
            int(record.correlation_id),
            int(record.thread_id),
            int(record.start),
            int(record.end),
        )


def _use_system_ids(calls: list[HostCall]) -> None:
    """Some versions of CUPTI know threads by the lower half of what ``pthread_self`` says."""
    ids = {(t.ident or 0) & 0xFFFFFFFF: t.native_id or 0 for t in threading.enumerate()}
    for call in calls:
        call.thread = ids.get(call.thread & 0xFFFFFFFF, call.thread)


@functools.cache
def _demangler() -> Any:
    """``__cxa_demangle`` of the C++ library that the compiled modules use too; None without it."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
    return demangle, library.free


@functools.cache
def _plain(name: str) -> str:
    """A kernel's name as its source has it."""
    if not name.startswith("_Z") or _demangler() is None:
        return name
    demangle, free = _demangler()
    status = ctypes.c_int()
    found = demangle(name.encode(), None, None, ctypes.addressof(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode()
    finally:
        free(found)


def _kernel(r: Any) -> DeviceWork:
    graph = int(r.graph_id)
    return DeviceWork(
        kind="kernel",
        name=_plain(str(r.name)),
        device=int(r.device_id),
        context=int(r.context_id),
        stream=int(r.stream_id),
        correlation=int(r.correlation_id),
        start=int(r.start),
        end=int(r.end),
        queued=int(r.queued),
        graph=graph,
        node=int(r.graph_node_id) & 0xFFFFFFFF if graph else 0,
        grid=(int(r.grid_x), int(r.grid_y), int(r.grid_z)),
        block=(int(r.block_x), int(r.block_y), int(r.block_z)),
        dynamic_shared=int(r.dynamic_shared_memory),
        static_shared=int(r.static_shared_memory),
        registers=int(r.registers_per_thread),
    )


def _copy(r: Any) -> DeviceWork:
    kind = _COPY_KINDS.get(int(r.copy_kind), "copy")
    path = " -> ".join(_MEMORY_KINDS.get(int(k), "Unknown") for k in (r.src_kind, r.dst_kind))
    return _transfer(r, "memcpy", f"{kind} ({path})")


def _fill(r: Any) -> DeviceWork:
    return _transfer(r, "memset", "")


def _transfer(r: Any, kind: Any, name: str) -> DeviceWork:
    graph = int(r.graph_id)
    return DeviceWork(
        kind=kind,
        name=name,
        device=int(r.device_id),
        context=int(r.context_id),
        stream=int(r.stream_id),
        correlation=int(r.correlation_id),
        start=int(r.start),
        end=int(r.end),
        graph=graph,
        node=int(r.graph_node_id) & 0xFFFFFFFF if graph else 0,
        size=int(r.bytes),
    )
