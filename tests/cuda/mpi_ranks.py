# SPDX-License-Identifier: Apache-2.0
"""One rank of several that MPI started: ``mpiexec -n 4 python tests/cuda/mpi_ranks.py [MODE]``.

Without a mode every collective is compared with what NumPy makes of all ranks' values. Otherwise
the last rank is ``absent`` (it makes no communicator), ``idle`` (it makes no call) or ``dies``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import flambeau as torch

nccl = torch.cuda.nccl
OPS = (np.add, np.multiply, np.maximum, np.minimum)
AVERAGE = 4
COUNT = 120  # divides by 1 to 6, 8 and 10 ranks
DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def values(rank: int, dtype: str) -> np.ndarray[Any, Any]:
    """What a rank begins with: small whole numbers, which no order of adding rounds."""
    return ((np.arange(COUNT) + rank) % 3 + 1).astype(dtype)


def check(what: str, found: Any, expected: Any) -> None:
    """End all ranks if a result is not what it should be."""
    if not np.array_equal(found.cpu().numpy(), expected):
        print(f"{what}: {found.cpu().numpy()} is not {expected}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


def collectives(comm: Any, rank: int, ranks: int, dtype: str) -> None:
    """Each collective of a dtype, with each of its operations and roots."""
    of_all = [values(r, dtype) for r in range(ranks)]
    mine = torch.from_numpy(of_all[rank]).cuda()
    part = COUNT // ranks
    for op, combine in enumerate(OPS):
        total = combine.reduce(of_all).astype(dtype)
        found = torch.empty_like(mine)
        nccl.all_reduce([mine], [found], op=op, comms=[comm])
        check(f"all_reduce {op} {dtype}", found, total)
        piece = torch.empty(part, dtype=mine.dtype, device="cuda")
        nccl.reduce_scatter([mine], [piece], op=op, comms=[comm])
        check(f"reduce_scatter {op} {dtype}", piece, total[rank * part :][:part])
        root = op % ranks
        found = mine.clone()
        nccl.reduce([found], root=root, op=op, comms=[comm])
        if rank == root:
            check(f"reduce {op} {dtype}", found, total)
    if dtype.startswith("float"):
        found = mine.clone()
        nccl.all_reduce([found], op=AVERAGE, comms=[comm])
        expected = (np.add.reduce(of_all) / ranks).astype(dtype)
        if not np.allclose(found.cpu().numpy(), expected, rtol=1e-3):
            check(f"average {dtype}", found, expected)
    joined = torch.empty(ranks * COUNT, dtype=mine.dtype, device="cuda")
    nccl.all_gather([mine], [joined], comms=[comm])
    check(f"all_gather {dtype}", joined, np.concatenate(of_all))
    for root in range(ranks):
        told = mine.clone()
        nccl.broadcast([told], root=root, comms=[comm])
        check(f"broadcast from {root} {dtype}", told, of_all[root])


def main(mode: str) -> None:
    """Join the others through MPI, then do what the mode says."""
    world = MPI.COMM_WORLD
    rank, ranks = world.rank, world.size
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    torch.cuda.set_device(local.rank)
    torch.ones(1, device="cuda")  # what starts the device does not count as coming late
    identity = world.bcast(nccl.unique_id() if rank == 0 else None)
    odd = rank == ranks - 1
    comm = None
    world.Barrier()
    try:
        if not (odd and mode == "absent"):
            comm = nccl.init_rank(ranks, identity, rank)
        if odd and mode == "dies":
            os._exit(3)
        if comm is not None and not (odd and mode == "idle"):
            for dtype in DTYPES if mode == "all" else ("float32",):
                collectives(comm, rank, ranks, dtype)
        torch.cuda.synchronize()
    except RuntimeError as error:
        line = f"rank {rank} failed: {' '.join(str(error).split())}"
    else:
        line = f"rank {rank} of {ranks}: fine, contexts {torch.cuda._primary_context_devices()}"
    os.write(1, f"{line}\n".encode())  # in one piece, so that lines do not mix
    if comm is not None and mode == "all":
        comm.destroy()
    world.Barrier()  # a rank that ends early ends the others


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
