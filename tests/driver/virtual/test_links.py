# SPDX-License-Identifier: Apache-2.0
"""Copies between devices and beside kernels, on the modelled clock; eight devices at work."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from driver.virtual.scripts import run
from flambeau.driver.virtual.models import MODELS

if TYPE_CHECKING:
    from support import Finished

SETUP = """
import flambeau as torch
torch.cuda.synchronize()
size = 16 << 20

def took(*works):
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    before = virtual.clock()
    for stream, work in works:
        with torch.cuda.stream(stream):
            work()
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    return virtual.clock() - before

def bytes_on(device):
    with torch.cuda.device(device):
        return torch.zeros(size, dtype=torch.uint8, device="cuda")
"""


def measure(source: str, machine: str) -> Finished:
    """Run a script with `SETUP` before it."""
    return run(SETUP + textwrap.dedent(source), machine=machine)


@pytest.mark.parametrize("model", ["h200", "a100", "l4"])
def test_a_copy_between_devices_takes_the_link_of_the_model(model: str) -> None:
    done = measure(
        """
        here, there = bytes_on(0), bytes_on(1)
        print(took((torch.cuda.current_stream(0), lambda: there.copy_(here, non_blocking=True))))
        """,
        machine=f"{model}:2",
    )
    ideal = (16 << 20) / MODELS[model].peer_bandwidth * 1e9
    assert ideal < float(done.stdout) < ideal + 50_000
    assert MODELS[model].nvlink == (MODELS[model].peer_bandwidth > 64e9)  # what PCIe 5.0 gives


def test_copies_and_kernels_overlap_and_one_link_is_shared() -> None:
    """Up, down, to a peer and a kernel go side by side; two of one kind take turns."""
    measure(
        """
        host = [torch.zeros(size, dtype=torch.uint8).pin_memory() for _ in range(2)]
        a, b, c, d = (bytes_on(0) for _ in range(4))
        far = [bytes_on(1) for _ in range(2)]
        x, y = torch.ones(4096, device="cuda"), torch.empty(4096, device="cuda")
        jobs = {
            "up": lambda: a.copy_(host[0], non_blocking=True),
            "down": lambda: host[1].copy_(b, non_blocking=True),
            "peer": lambda: far[0].copy_(c, non_blocking=True),
            "kernels": lambda: [torch.add(x, 1, out=y) for _ in range(100)],
        }
        for work in jobs.values():  # compiled and warm
            took((torch.cuda.current_stream(), work))
        streams = [torch.cuda.Stream() for _ in jobs]
        alone = {name: took((streams[0], work)) for name, work in jobs.items()}
        together = took(*zip(streams, jobs.values()))
        assert together < 1.05 * max(alone.values()) + 20_000, (alone, together)
        assert together < 0.5 * sum(alone.values())
        again = lambda: far[1].copy_(d, non_blocking=True)
        one, two = alone["peer"], took((streams[0], jobs["peer"]), (streams[1], again))
        assert 1.8 * one - 20_000 < two, (one, two)
        """,
        machine="h200:2",
    )


def test_eight_devices_send_to_the_next_one_at_once() -> None:
    """A ring of eight: each device has a link of its own, so that it takes as long as one copy."""
    measure(
        """
        count = torch.cuda.device_count()
        numbers = torch.arange(count, dtype=torch.int32)
        parts = [numbers[i].to(f"cuda:{i}").repeat(size // 16) for i in range(count)]
        got = [torch.empty_like(part) for part in parts]
        def send(i):
            def work():
                got[(i + 1) % count].copy_(parts[i], non_blocking=True)
            return torch.cuda.Stream(i), work  # default streams would wait for their neighbours
        one = took(send(0))
        ring = took(*(send(i) for i in range(count)))
        assert [g[-1].item() for g in got] == [(i - 1) % count for i in range(count)]
        assert ring < 1.5 * one + 100_000, (one, ring)
        total = sum(g.sum(dtype=torch.int64).item() for g in got)
        assert total == sum(range(count)) * (size // 16)
        """,
        machine="h200:8",
    )


def test_work_of_one_device_waits_for_another_by_events_only() -> None:
    """Through eight devices and back, each waiting for the one before; then the host."""
    run(
        """
        import flambeau as torch
        virtual.set_schedule("adversarial")
        x = torch.zeros(1000, device="cuda:0")
        for device in [*range(1, torch.cuda.device_count()), 0]:
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(x.device))
            with torch.cuda.device(device):
                torch.cuda.current_stream().wait_event(ready)
                x = x.to(f"cuda:{device}", non_blocking=True) + 1
        assert x.tolist() == [8.0] * 1000
        """,
        machine="h200:8",
    )


def test_one_of_eight_devices_is_lost_and_the_others_go_on() -> None:
    run(
        """
        import flambeau as torch
        parts = [torch.full((100,), i, device=f"cuda:{i}", dtype=torch.float32) for i in range(8)]
        for i in range(8):
            torch.cuda.synchronize(i)
        virtual.lose_device(3)
        for i, part in enumerate(parts):
            if i != 3:
                assert (part + 1).sum().item() == 100 * (i + 1)
        try:
            (parts[3] + 1).sum().item()
        except torch.AcceleratorError as error:
            print(error.error_code)
        for call in (
            lambda: parts[3].to("cuda:2"),
            lambda: torch.cuda.synchronize(3),
            lambda: torch.empty(1 << 24, device="cuda:3"),
        ):
            try:
                call()
            except torch.AcceleratorError:
                continue
            raise AssertionError("a lost device answered")
        assert (parts[2] + parts[2]).sum().item() == 400
        """,
        machine="h200:8",
    )
