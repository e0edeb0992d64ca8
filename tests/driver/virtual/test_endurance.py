# SPDX-License-Identifier: Apache-2.0
"""Long runs leak nothing; many devices, forks and ends of processes are clean."""

from __future__ import annotations

import pytest

from driver.virtual.scripts import run

MEASURE = """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
def threads():
    return len(os.listdir("/proc/self/task"))
def files():
    return len(os.listdir("/proc/self/fd"))
import flambeau as torch
"""


@pytest.mark.unchecked("the race check keeps what work did, which is memory")
def test_ten_thousand_launches_leak_nothing() -> None:
    done = run(
        MEASURE
        + """
parts = [torch.zeros(1000, device="cuda") for _ in range(3)]
streams = [torch.cuda.Stream() for _ in range(3)]
torch.cuda.synchronize()

def launch(times):
    for i in range(times):
        with torch.cuda.stream(streams[i % 3]):
            parts[i % 3].add_(1)
        if i % 97 == 0:
            event = torch.cuda.Event()
            event.record(streams[0])
            torch.cuda.synchronize()
    torch.cuda.synchronize()

launch(3000)
before = resident(), threads(), files()
launch(10000)
after = resident(), threads(), files()
print(after[0] - before[0], after[1] - before[1], after[2] - before[2])
"""
    )
    memory, threads, files = map(int, done.stdout.split())
    assert memory < 1 << 20
    assert (threads, files) == (0, 0)


def test_waiting_kernels_leave_no_threads_behind() -> None:
    done = run(
        MEASURE
        + """
source = '''
extern "C" __global__ void await(volatile int* flag) { while (*flag == 0) {} }
extern "C" __global__ void put(volatile int* flag, int value) { *flag = value; }'''
wait, put = (torch.cuda._compile_kernel(source, n) for n in ("await", "put"))
flag = torch.zeros(1, dtype=torch.int32, device="cuda")
a, b, c = (torch.cuda.Stream() for _ in range(3))
counts = []
for turn in range(30):
    flag.zero_()
    torch.cuda.synchronize()
    wait(args=[flag], stream=a)
    wait(args=[flag], stream=b)
    put(args=[flag, 1], stream=c)
    torch.cuda.synchronize()
    counts.append(threads())
print(counts[4], counts[-1])
"""
    )
    early, late = map(int, done.stdout.split())
    assert late <= early + 1


def test_eight_devices_work_at_once() -> None:
    done = run(
        """
        import flambeau as torch
        parts = []
        for device in range(torch.cuda.device_count()):
            with torch.cuda.device(device):
                parts.append(torch.full((1000,), device + 1.0, device="cuda") * 2)
        total = sum(part.sum().item() for part in parts)
        print(torch.cuda.device_count(), total, [p.device.index for p in parts])
        """,
        machine="h200:8",
    )
    assert done.stdout.strip() == f"8 {2000.0 * 36} {list(range(8))}"


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), 15)"])
def test_children_of_a_fork_end_cleanly(end: str) -> None:
    done = run(
        f"""
        import flambeau as torch
        x = torch.ones(1000, device="cuda")
        y = x + x
        child = os.fork()
        if child == 0:
            {end}
        _, status = os.waitpid(child, 0)
        print(status, y.sum().item())
        """
    )
    status, total = done.stdout.split()
    assert (int(status) in {0, 15}, float(total)) == (True, 2000.0)
    assert done.stderr == ""
