# SPDX-License-Identifier: Apache-2.0
"""Copies and sums between two GPUs: ``python -m benchmarks.collectives``.

flambeau and torch take turns in processes of their own, each with both GPUs. NCCL's multicast over
NVLink is off (``NCCL_NVLS_ENABLE=0``) unless the environment says otherwise. Times are the host's,
until the work of device 0 is done. Those of virtual GPUs say nothing about real ones.
"""

from __future__ import annotations

import os

from benchmarks.compare import Row, print_table
from flambeau.cli.run import has_gpu

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LIBRARIES = ("flambeau", "torch")

MODULES = """
from importlib import import_module
comm = import_module(xp.__name__ + '.cuda.comm')
nccl = import_module(xp.__name__ + '.cuda.nccl')
"""
LAYERS = (
    MODULES
    + """
sizes = [(1024, 1024), (1024,), (4096, 1024), (4096,)] * 40
layers = [[xp.ones(*size, device=f'cuda:{i}') for size in sizes] for i in range(2)]
"""
)
SMALL_LAYERS = LAYERS.replace("1024", "64").replace("4096", "256")


def pair(size: int) -> str:
    """Names for two tensors of so many bytes, and for room for both."""
    return MODULES + (
        f"a, b = (xp.ones({size // 4}, device=f'cuda:{{i}}') for i in range(2))\n"
        f"both = [xp.empty({size // 2}, device=f'cuda:{{i}}') for i in range(2)]\n"
        f"half = [xp.empty({size // 8}, device=f'cuda:{{i}}') for i in range(2)]\n"
    )


def size_name(size: int) -> str:
    """As people say it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def lists(setup: str, calls: int) -> list[Row]:
    """Rows about the 160 tensors of a network."""
    return [
        Row("broadcast_coalesced, 160 tensors", "comm.broadcast_coalesced(layers[0], [0, 1])",
            setup, None, calls),
        Row("reduce_add_coalesced, 160 tensors", "comm.reduce_add_coalesced(layers, 0)",
            setup, None, calls),
    ]  # fmt: skip


def copies(size: int, calls: int) -> list[Row]:
    """Rows of ``torch.cuda.comm`` at a size."""
    setup, name = pair(size), size_name(size)
    return [
        Row(f"broadcast, {name}", "comm.broadcast(a, [0, 1])", setup, None, calls, size),
        Row(f"reduce_add, {name}", "comm.reduce_add([a, b], 0)", setup, None, calls, size),
        Row(f"scatter, {name}", "comm.scatter(a, [0, 1])", setup, None, calls, size // 2),
        Row(f"gather, {name}", "comm.gather([a, b], 0, 0)", setup, None, calls, size),
    ]


def collectives(size: int, calls: int) -> list[Row]:
    """Rows of ``torch.cuda.nccl`` at a size; the bytes are those over a link."""
    setup, name = pair(size), size_name(size)
    return [
        Row(f"all_reduce, {name}", "nccl.all_reduce([a, b], op=2)", setup, None, calls, size),
        Row(f"all_gather, {name}", "nccl.all_gather([a, b], both)", setup, None, calls, size),
        Row(f"reduce_scatter, {name}", "nccl.reduce_scatter([a, b], half)", setup, None, calls,
            size // 2),
        Row(f"broadcast, {name}", "nccl.broadcast([a, b])", setup, None, calls, size),
    ]  # fmt: skip


def speed(row: Row, seconds: float) -> str:
    """Microseconds, and GB/s where they mean something."""
    if row.bytes < MIB:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e6:.0f} µs, {row.bytes / seconds / 1e9:.0f} GB/s"


def main() -> None:
    """Measure what two GPUs can do; on virtual ones only that it runs."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    real = not os.environ.get("FLAMBEAU_VIRTUAL") and has_gpu()
    if not real:
        os.environ.setdefault("FLAMBEAU_VIRTUAL", "h200:2")
    sizes = {KIB: 200, 64 * KIB: 200, MIB: 100, 16 * MIB: 30, 256 * MIB: 5, GIB: 3}
    if not real:
        sizes = {KIB: 5, 64 * KIB: 3}
    rows = lists(LAYERS if real else SMALL_LAYERS, 10 if real else 1)
    for size in (KIB, 16 * MIB, 256 * MIB) if real else (KIB,):
        rows += copies(size, sizes[size])
    print_table("Copies and sums between two GPUs", rows, "wall", speed, LIBRARIES)
    rows = [row for size, calls in sizes.items() for row in collectives(size, calls)]
    print_table("NCCL on two GPUs", rows, "wall", speed, LIBRARIES)


if __name__ == "__main__":
    main()
