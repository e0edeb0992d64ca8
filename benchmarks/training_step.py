# SPDX-License-Identifier: Apache-2.0
"""One library's training steps of the small GPT, timed: a line of JSON for each turn.

Written for torch; ``flambeau run`` gives it flambeau. `benchmarks.training` starts it.
"""

import json
import runpy
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812

GPT = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "gpt.py"))["GPT"]


def step_of(dtype, width: int):
    """What one step is, and its loss."""
    torch.manual_seed(0)
    tokens, context, batch = 96, 64, 32
    model = GPT(tokens, context, width, 4, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    data = torch.randint(tokens, (batch, context + 1), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
            scores = model(data[:, :-1])
            loss = F.cross_entropy(scores.reshape(-1, tokens), data[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def captured(step):
    """The step as a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay():
        graph.replay()

    replay.memory = step  # what the graph reads and writes must stay
    return replay


def milliseconds(call, count: int) -> float:
    """Wall time of one of several calls in a row."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e3


def main() -> None:
    """Answer each line of input with the figures of a turn."""
    width, count = int(sys.argv[1]), int(sys.argv[2])
    rows = {}
    for name, dtype in (("float32", None), ("bfloat16", torch.bfloat16)):
        eager = step_of(dtype, width)
        for _ in range(3):
            eager()
        rows[f"eager, {name}"] = eager
        rows[f"as a graph, {name}"] = captured(step_of(dtype, width))
    for _ in sys.stdin:
        print(json.dumps({name: milliseconds(call, count) for name, call in rows.items()}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
