# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host: ``python -m benchmarks.host_cost``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from benchmarks.compare import LIBRARIES, TURNS, Row, print_table

VECTORS = "a = xp.ones(1024, device='cuda'); b = xp.ones(1024, device='cuda')"
CUPY_VECTORS = "a = xp.ones(1024, 'f'); b = xp.ones(1024, 'f')"
MATRICES = "a = xp.ones(64, 64, device='cuda'); b = xp.ones(64, 64, device='cuda')"
CUPY_MATRICES = "a = xp.ones((64, 64), 'f'); b = xp.ones((64, 64), 'f')"
CAPTURE = "g = xp.cuda.CUDAGraph()\nwith xp.cuda.graph(g): c = a + b"
AS_GRAPHS = "getattr(xp.cuda, 'set_graph_launch', bool)(True)"

ROWS = [
    Row("a + b, 1,024 floats", "a + b", VECTORS, ("a + b", CUPY_VECTORS)),
    Row("a.relu()", "a.relu()", VECTORS, ("xp.maximum(a, 0)", CUPY_VECTORS)),
    Row("a.sum()", "a.sum()", VECTORS, ("a.sum()", CUPY_VECTORS)),
    Row("a.add_(b)", "a.add_(b)", VECTORS, ("xp.add(a, b, a)", CUPY_VECTORS)),
    Row("a[1:513]", "a[1:513]", VECTORS, ("a[1:513]", CUPY_VECTORS)),
    Row("64 x 64 matmul", "a @ b", MATRICES, ("a @ b", CUPY_MATRICES)),
    Row("a.copy_(b)", "a.copy_(b)", VECTORS, ("a[...] = b", CUPY_VECTORS)),
    Row("empty(1024)", "xp.empty(1024, device='cuda')", "", ("xp.empty(1024, 'f')", "")),
    Row(
        "view + t", "a.view(32, 32).t()", VECTORS, ("a.reshape(32, 32).T", CUPY_VECTORS), calls=1000
    ),
    Row(
        "with stream(s)",
        "with xp.cuda.stream(s): pass",
        "s = xp.cuda.Stream()",
        ("with s: pass", "s = xp.cuda.Stream()"),
    ),
    Row(
        "with device(0)",
        "with xp.cuda.device(0): pass",
        "",
        ("with d: pass", "d = xp.cuda.Device(0)"),
    ),
    Row(
        "event.record()",
        "e.record()",
        "e = xp.cuda.Event()",
        ("e.record()", "e = xp.cuda.Event()"),
    ),
    Row("current_stream()", "xp.cuda.current_stream()", "", ("xp.cuda.get_current_stream()", "")),
    Row(
        "memory_allocated()",
        "xp.cuda.memory_allocated()",
        VECTORS,
        ("pool.used_bytes()", "pool = xp.get_default_memory_pool()"),
    ),
    Row("a[0].item()", "a[0].item()", VECTORS, ("a[0].item()", CUPY_VECTORS)),
    Row("rand(1024)", "xp.rand(1024, device='cuda')", ""),
    Row("a + b beside a busy thread", "a + b", VECTORS, ("a + b", CUPY_VECTORS), 20, clock="busy"),
    Row("a + b, 5,000 queued", "a + b", VECTORS, calls=5000, clock="queued"),
    Row("replay of one node", "g.replay()", f"{VECTORS}; {CAPTURE}"),
    # The last rows: from here on flambeau launches kernels as graphs of one node.
    Row("a + b, as a graph", "a + b", f"{VECTORS}; {AS_GRAPHS}"),
    Row("a.add_(b), as a graph", "a.add_(b)", f"{VECTORS}; {AS_GRAPHS}"),
]


def import_seconds(library: str) -> float | None:
    """Wall time of a process that only imports; None where the library is missing."""
    python = os.environ.get(f"BENCH_{library.upper()}_PYTHON", sys.executable)
    start = time.perf_counter()
    done = subprocess.run([python, "-c", f"import {library}"], capture_output=True, check=False)
    return time.perf_counter() - start if done.returncode == 0 else None


def print_imports() -> None:
    """A table of import times."""
    print("### Import\n\nWall time of a process that imports and ends.\n")
    print("| library | seconds |\n|---|---|")
    for library in LIBRARIES:
        times = [t for t in (import_seconds(library) for _ in range(TURNS)) if t is not None]
        print(f"| {library} | {statistics.median(times):.3f} |" if times else f"| {library} | |")
    print()


if __name__ == "__main__":
    print_imports()
    print_table(
        "Host cost, µs a call",
        ROWS,
        "host",
        lambda _, seconds: f"{seconds * 1e6:.2f}",
        turns=15,
    )
