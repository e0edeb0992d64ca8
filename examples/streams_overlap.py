# SPDX-License-Identifier: Apache-2.0
"""Hide the copies of the next batch behind the computation of this one.

Run it with ``flambeau run examples/streams_overlap.py``. The same work is done twice: all on one
stream, then with the copies on a stream of their own. Events say what must wait for what.
"""

import torch

BATCHES = 6
SIZE = 1024
STEPS = 3


def compute(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Some work for a batch."""
    for _ in range(STEPS):
        x = x @ weight
    return x.sum()


def on_one_stream(batches: list[torch.Tensor], weight: torch.Tensor) -> tuple[float, list[float]]:
    """Copy and compute in turn; milliseconds and the results."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    sums = []
    start.record()
    for batch in batches:
        x = batch.to("cuda", non_blocking=True)
        sums.append(compute(x, weight))
    end.record()
    end.synchronize()
    return start.elapsed_time(end), [s.item() for s in sums]


def on_two_streams(batches: list[torch.Tensor], weight: torch.Tensor) -> tuple[float, list[float]]:
    """Copy on one stream while the other computes; milliseconds and the results."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    main, copies = torch.cuda.current_stream(), torch.cuda.Stream()
    sums = []
    start.record(main)
    copies.wait_event(start)
    for batch in batches:
        with torch.cuda.stream(copies):
            x = batch.to("cuda", non_blocking=True)
        main.wait_stream(copies)  # the copy must be there before it is read
        sums.append(compute(x, weight))
        x.record_stream(main)  # and its memory must stay until it has been
    end.record(main)
    end.synchronize()
    return start.elapsed_time(end), [s.item() for s in sums]


def main() -> None:
    """Run both ways and compare."""
    batches = [torch.full((SIZE, SIZE), float(i)).pin_memory() for i in range(BATCHES)]
    weight = torch.full((SIZE, SIZE), 1 / SIZE, device="cuda")  # each product leaves a batch as is
    expected = [float(SIZE * SIZE * i) for i in range(BATCHES)]
    print(f"{BATCHES} batches of {SIZE} x {SIZE} floats on {torch.cuda.get_device_name()}")
    for name, run in (("one stream", on_one_stream), ("two streams", on_two_streams)):
        for _ in range(3):  # the first run compiles kernels and asks the driver for memory
            milliseconds, sums = run(batches, weight)
        verdict = "right" if sums == expected else f"WRONG: {sums}"
        print(f"{name:<12} {milliseconds:8.3f} ms   the sums are {verdict}")


if __name__ == "__main__":
    main()
