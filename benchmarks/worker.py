# SPDX-License-Identifier: Apache-2.0
"""One library's process: reads what to measure as JSON lines and answers with figures.

This file is run by path and by other environments' interpreters; it imports only the library.
"""

import gc
import json
import sys
import threading
import time

QUEUE_CYCLES = 100_000_000


class Row:
    """One statement, ready to run.

    Parameters
    ----------
    setup
        Code that makes the statement's names, with the library as ``xp``.
    statement
        What is measured.
    """

    def __init__(self, library, setup: str, statement: str) -> None:
        self.names = {"xp": library}
        exec(setup, self.names)
        source = f"def calls(n):\n    for _ in range(n):\n        {statement}\n"
        exec(source, self.names)
        self.calls = self.names["calls"]


class Library:
    """A library for GPUs behind the three calls that a measurement needs."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "cupy":
            import cupy as xp

            self.synchronize = xp.cuda.Device().synchronize
            self.version = xp.__version__
            self.device = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
        else:
            if name == "flambeau":
                import flambeau as xp
            else:
                import torch as xp
            if not xp.cuda.is_available():
                raise ImportError(f"{name} finds no device")
            self.synchronize = xp.cuda.synchronize
            self.version = str(xp.__version__)
            self.device = xp.cuda.get_device_name(0)
        self.xp = xp

    def host_seconds(self, row: Row, calls: int) -> float:
        """Seconds of the calling thread for each call; the GPU's work is not waited for."""
        self.synchronize()
        start = time.perf_counter()
        row.calls(calls)
        seconds = time.perf_counter() - start
        self.synchronize()
        return seconds / calls

    def busy_seconds(self, row: Row, calls: int) -> float:
        """The same while another Python thread computes."""
        stop = threading.Event()

        def compute() -> None:
            while not stop.is_set():
                pass

        other = threading.Thread(target=compute)
        other.start()
        try:
            return self.host_seconds(row, calls)
        finally:
            stop.set()
            other.join()

    def queued_seconds(self, row: Row, calls: int) -> float:
        """The same while the GPU is busy, so that calls queue up; the longer ones wait for room."""
        self.synchronize()
        self.xp.cuda._sleep(QUEUE_CYCLES)
        start = time.perf_counter()
        row.calls(calls)
        seconds = time.perf_counter() - start
        self.synchronize()
        return seconds / calls

    def wall_seconds(self, row: Row, calls: int) -> float:
        """Seconds for each call until its work is done."""
        self.synchronize()
        start = time.perf_counter()
        row.calls(calls)
        self.synchronize()
        return (time.perf_counter() - start) / calls

    def gpu_seconds(self, row: Row, calls: int) -> float:
        """Seconds of the GPU for each call, by its events."""
        if self.name == "cupy":
            start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        else:
            start, end = (self.xp.cuda.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        start.record()
        row.calls(calls)
        end.record()
        end.synchronize()
        if self.name == "cupy":
            return self.xp.cuda.get_elapsed_time(start, end) / calls / 1e3
        return start.elapsed_time(end) / calls / 1e3


def serve(name: str) -> None:
    """Answer requests until the input ends."""
    try:
        library = Library(name)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps({"version": library.version, "device": library.device}), flush=True)
    rows: dict = {}
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        key = request["setup"], request["statement"]
        try:
            if key not in rows:
                rows.clear()  # the arrays of the row before
                rows[key] = Row(library.xp, *key)
                rows[key].calls(min(200, request["calls"]))
                library.synchronize()
            measure = getattr(library, request["clock"] + "_seconds")
            answer = {"seconds": measure(rows[key], request["calls"])}
        except Exception as error:  # noqa: BLE001 - the reader prints it in the row's place
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
