# SPDX-License-Identifier: Apache-2.0
"""Pi by random points, on several GPUs: one process for each, their counts added up by NCCL.

    flambeau run --virtual h200:4 examples/ranks_pi.py

The first process makes the unique id and starts the others. On several machines a launcher starts
all ranks, and hands them the id: see docs/scaling.md.
"""

import os
import subprocess
import sys

import torch

POINTS = 100_000


def say(line: str) -> None:
    """Write a line at once, so that those of several processes do not mix."""
    os.write(1, f"{line}\n".encode())


def work(rank: int, ranks: int, identity: bytes) -> None:
    """Draw this rank's points and add up everybody's."""
    torch.cuda.set_device(rank)
    communicator = torch.cuda.nccl.init_rank(ranks, identity, rank)
    torch.cuda.manual_seed(1000 + rank)
    x, y = torch.rand(2, POINTS, device="cuda")
    inside = (x * x + y * y <= 1).sum().reshape(1)
    mine = inside.item()
    torch.cuda.nccl.all_reduce([inside], comms=[communicator])
    say(f"rank {rank} of {ranks}: {mine} of {POINTS} inside")
    if rank == 0:
        say(f"pi is about {4 * inside.item() / (ranks * POINTS):.3f}")
    communicator.destroy()


def main() -> None:
    """Be a rank, or the first one, which starts the others."""
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), int(os.environ["RANKS"]), bytes.fromhex(os.environ["ID"]))
        return
    ranks = torch.cuda.device_count()
    identity = torch.cuda.nccl.unique_id()
    shared = {**os.environ, "RANKS": str(ranks), "ID": identity.hex()}
    others = [
        subprocess.Popen([sys.executable, __file__], env={**shared, "RANK": str(rank)})
        for rank in range(1, ranks)
    ]
    work(0, ranks, identity)
    failed = [process.wait() for process in others]
    if any(failed):
        sys.exit(f"ranks ended with {failed}")


if __name__ == "__main__":
    main()
