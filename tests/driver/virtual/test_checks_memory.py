# SPDX-License-Identifier: Apache-2.0
"""The memory check: what is outside of tensors, and what was freed."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import time

import pytest

import flambeau as torch
from driver.virtual.checked import Launcher, only, scale
from support import run_script

pytestmark = pytest.mark.unchecked("turns on the checks that it is about")


CHECKED = {"FLAMBEAU_CHECK": "memory", "FLAMBEAU_VIRTUAL": "h200:1"}


def memory(mode: str = "collect"):
    return torch.virtual.checks("memory", mode=mode)


def test_good_programs_are_left_alone():
    kernel = scale()
    with memory("raise") as found:
        x = torch.ones(1000, device="cuda")
        y = torch.empty_like(x)
        kernel(4, 256, y, x, 1000)
        z = (x + y).reshape(10, 100).t().contiguous() @ torch.ones(10, 3, device="cuda")
        assert z.sum().item() == 9000
    assert found.reports == []


def test_write_past_the_end():
    kernel = scale()
    source = torch.ones(64, device="cuda")
    with memory() as found:
        target = torch.zeros(10, device="cuda")
        address = target.data_ptr()
        kernel(1, 32, target, source, 12)
    report = only(found.reports)
    assert (report.check, report.space, report.size) == ("memory", "global", 4)
    assert report.address == address + 40
    assert report.problem == "past the end of a block"
    assert report.count == 2
    assert report.block.address == address
    assert report.block.size == 40
    assert report.block.distance == 4
    assert report.block.allocated[0].filename == __file__
    assert report.block.freed == ()
    access = report.access
    assert access.work == "kernel scale"
    assert access.kind == "write"
    assert access.thread == (10, 0, 0)
    assert access.block == (0, 0, 0)
    assert access.source.endswith(":4")
    assert access.stream == "the default stream of device 0"
    assert [f.function for f in access.submitted[:2]] == ["__call__", "test_write_past_the_end"]
    text = str(report)
    for part in ("scale wrote 4 bytes", "4 bytes past the end", "block of 40 bytes", __file__):
        assert part in text


def test_read_past_the_end_in_a_block_of_two_dimensions():
    kernel = Launcher(
        'extern "C" __global__ void take(float *out, const float *in) {\n'
        "  out[threadIdx.y] = in[threadIdx.y * 2 + blockIdx.x];\n"
        "}",
        "take",
        "PP",
    )
    with memory() as found:
        out, source = torch.zeros(4, device="cuda"), torch.zeros(7, device="cuda")
        kernel._kernel(0, (2,), (1, 4), 0, out, source)
    report = only(found.reports)
    assert report.access.kind == "read"
    assert report.access.thread == (0, 3, 0)
    assert report.access.block == (1, 0, 0)
    assert report.access.source.endswith(":2")
    assert report.block.distance == 4


def test_before_the_first_byte():
    kernel = scale()
    source = torch.ones(64, device="cuda")
    with memory() as found:
        below = torch.zeros(10, device="cuda")
        target = torch.zeros(10, device="cuda")
        address = target.data_ptr()
        assert address == below.data_ptr() + 512
        kernel(1, 1, address - 4, source, 1)
    assert only(found.reports).problem == "past the end of a block"


def test_a_neighbour_is_not_what_the_kernel_was_given():
    """Tensors whose size is a multiple of 512 bytes lie side by side, and GPUs notice nothing."""
    kernel = scale()
    with memory() as found:
        x, y, z = (torch.zeros(128, device="cuda") for _ in range(3))
        assert y.data_ptr() == x.data_ptr() + 512
        assert z.data_ptr() == y.data_ptr() + 512
        kernel(1, 128, x, z, 128)
        assert found.collect() == []
        kernel(2, 128, x, z[1:], 129)
        kernel(1, 1, z.data_ptr() - 4 * 128, y, 1)  # the host's own arithmetic is taken at its word
    by_kind = {report.access.kind: report for report in found.reports}
    report = by_kind["write"]
    assert report.problem == "of another block than it was given"
    assert report.access.block == (1, 0, 0)
    assert report.block.address == x.data_ptr()
    assert report.block.distance == 4
    assert by_kind["read"].problem in {"outside of every block", "past the end of a block"}


def test_pointers_may_come_from_memory():
    source = """
    struct Both { float *first, *second; };
    __device__ float *kept;
    extern "C" __global__ void keep(float *x) { kept = x; }
    extern "C" __global__ void follow(float **table, Both both, float *out) {
      __shared__ float *near[2];
      if (threadIdx.x == 0) near[0] = table[0], near[1] = table[1];
      __syncthreads();
      out[0] = near[0][threadIdx.x] + near[1][threadIdx.x] + both.second[threadIdx.x] + kept[0];
    }
    """
    keep = Launcher(source, "keep", "P")
    follow = Launcher(source, "follow", "PBP")
    with memory("raise"):
        x, y, z, w, out = (torch.ones(128, device="cuda") for _ in range(5))
        table = torch.tensor([x.data_ptr(), y.data_ptr()], device="cuda")
        keep(1, 1, w)
        both = struct.pack("<QQ", x.data_ptr(), z.data_ptr())
        follow(1, 1, table, both, out)
        assert out[0].item() == 4


def test_memory_of_no_block_names_the_nearest():
    kernel = scale()
    source = torch.ones(64, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with memory() as found:
        target = torch.zeros(3 << 20, dtype=torch.uint8, device="cuda")
        address = target.data_ptr()
        kernel(1, 1, address + (4 << 20), source, 1)
    report = only(found.reports)
    assert report.problem == "outside of every block"
    assert report.block.address == address
    assert report.block.distance == (1 << 20) + 4


def test_use_after_free_tells_where_it_was_freed():
    kernel = scale()
    source = torch.ones(64, device="cuda")
    with memory() as found:
        target = torch.zeros(64, device="cuda")
        address = target.data_ptr()
        del target
        kernel(2, 32, address, source, 64)
    report = only(found.reports)
    assert report.problem == "after the memory was freed"
    assert report.count == 64
    assert report.block.size == 256
    assert report.block.freed[0].function == "test_use_after_free_tells_where_it_was_freed"
    assert report.block.freed[0].line > report.block.allocated[0].line
    assert "freed at" in str(report)


@pytest.mark.parametrize("policy", ["fifo", "random:1", "adversarial"])
def test_freeing_after_the_launch_is_right(policy: str):
    """Work runs when somebody waits, long after the host has reused the memory."""
    kernel = scale()
    with torch.virtual.schedule(policy), memory("raise"):
        total = torch.zeros(100, device="cuda")
        for size in (100, 60, 100, 20, 100):
            x = torch.ones(size, device="cuda")
            y = torch.empty(size, device="cuda")
            kernel(1, 128, y, x, size)
            total[:size] += y
            del x, y
        gc.collect()
        assert total.sum().item() == 2 * (100 + 60 + 100 + 20 + 100)


def test_copies_and_fills():
    host = torch.zeros(64).pin_memory()
    from flambeau.driver.virtual import _calls

    with memory() as found:
        x = torch.zeros(10, device="cuda")
        y = torch.zeros(10, device="cuda")
        _calls.memcpy_dtod_async(y.data_ptr(), x.data_ptr(), 48, 0)
        _calls.memset_d8_async(x.data_ptr(), 1, 41, 0)
        _calls.memcpy_htod_async(x.data_ptr() + 32, host.data_ptr(), 16, 0)
        _calls.memcpy_dtoh_async(host.data_ptr(), x.data_ptr(), 42, 0)
        freed = y.data_ptr()
        del y
        _calls.memset_d32_async(freed, 1, 4, 0)
    seen = [(r.access.work, r.access.kind, r.block.distance, r.problem) for r in found.reports]
    assert seen == [
        ("a copy", "read", 8, "past the end of a block"),
        ("a copy", "write", 8, "past the end of a block"),
        ("a fill", "write", 1, "past the end of a block"),
        ("a copy", "write", 8, "past the end of a block"),
        ("a copy", "read", 2, "past the end of a block"),
        ("a fill", "write", 0, "after the memory was freed"),
    ]


def test_tensors_from_before_are_known():
    kernel = scale()
    x, y = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda")
    gone = torch.zeros(10, device="cuda").data_ptr()
    with memory() as found:
        kernel(1, 32, y, x, 10)
        kernel(1, 32, y, x, 11)
        kernel(1, 32, gone, x, 10)
    kinds = [(r.access.kind, r.problem) for r in found.reports]
    assert sorted(kinds) == [
        ("read", "past the end of a block"),
        ("write", "outside of every block"),
        ("write", "past the end of a block"),
    ]
    assert all(r.block.allocated == () for r in found.reports)


def test_modes():
    kernel = scale()
    x = torch.ones(10, device="cuda")
    with pytest.raises(torch.virtual.CheckError, match="past the end") as caught, memory("raise"):
        kernel(1, 32, x, x, 11)
    assert len(caught.value.reports) == 2
    with pytest.warns(torch.virtual.CheckWarning, match="past the end"), memory("warn"):
        kernel(1, 32, x, x, 11)
    kept = memory("raise")
    with pytest.raises(KeyError), kept:  # the body's own error counts
        raise KeyError(kernel(1, 32, x, x, 11))
    assert len(kept.reports) == 2
    kernel(1, 32, x, x, 11)  # nobody looks
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="no check 'speed'"):
        torch.virtual.checks("speed")
    with pytest.raises(ValueError, match="mode is"):
        torch.virtual.checks("memory", mode="loud")


def test_collect_before_the_end():
    kernel = scale()
    x = torch.ones(10, device="cuda")
    with memory("collect") as found:
        assert found.collect() == []
        kernel(1, 32, x, x, 11)
        assert len(found.collect()) == 2
    assert len(found.reports) == 2


def test_results_are_the_same():
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    x /= 1000

    def work():
        return torch.stack([(x.sin() * x.exp()).sum(), x.reshape(10, 100).t().contiguous().max()])

    plain = work()
    with torch.virtual.checks("memory", mode="raise"):
        checked = work()
    assert torch.equal(plain, checked)


def test_allocator_figures_do_not_change():
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with memory("raise"):
        x = torch.zeros(1000, device="cuda")
        assert torch.cuda.memory_allocated() == before + 4096
    del x
    assert torch.cuda.memory_allocated() == before


SCRIPT = """
from flambeau.kernels.compile import get_function
from flambeau.runtime._launch import Kernel
x = torch.ones(10, device="cuda")
source = 'extern "C" __global__ void put(float *x) { x[10] = 1; }'
Kernel(get_function(source, "put", 0), "P")(0, (1,), (1,), 0, x)
"""


def test_environment_prints_a_summary_at_the_end():
    done = run_script(SCRIPT, CHECKED)
    assert "checks found 1 problem: 1 of memory" in done.stderr
    assert "kernel put wrote 4 bytes" in done.stderr
    assert run_script("x = torch.ones(10, device='cuda').sum().item()", CHECKED).stderr == ""


def test_unknown_check_in_the_environment():
    done = run_script(SCRIPT, {**CHECKED, "FLAMBEAU_CHECK": "memry"}, check=False)
    assert "there is no check 'memry'" in done.stderr


def test_command_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import flambeau as torch\n" + SCRIPT)
    command = [sys.executable, "-m", "flambeau", "run", "--virtual", "h200", "--check"]
    done = subprocess.run(
        [*command, "memory", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "checks found 1 problem: 1 of memory" in done.stderr
    assert done.stderr.count("checks found") == 1
    program.write_text("import torch\nprint(torch.ones(3, device='cuda').sum().item())")
    done = subprocess.run([*command, "all", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.0\n", "")
    done = subprocess.run([*command, "luck", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no check 'luck'; there are memory, init, race and all" in done.stderr


def test_reset_forgets_memory_and_keeps_checking():
    done = run_script(
        "x = torch.ones(10, device='cuda'); torch.cuda.synchronize(); del x\n"
        "torch.virtual.reset()\n" + SCRIPT,
        CHECKED,
    )
    assert "checks found 1 problem: 1 of memory" in done.stderr


def test_parts_of_graphs_that_repeat_use_the_memory_of_their_capture():
    """It was freed in the capture; each replay of the part may use it all the same."""
    with memory("raise"):
        x, going = torch.ones(1, device="cuda"), torch.ones((), dtype=torch.bool, device="cuda")
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            graph.begin_capture_to_while_node(going)
            x *= 2
            going.copy_((x < 100).squeeze())
            graph.set_conditional_handle_for_current_node(going)
            graph.end_capture_to_conditional_node()
        graph.instantiate()
        graph.replay()
        assert x.item() == 128


def test_a_kernel_that_never_ends_does_not_keep_the_process():
    source = 'extern "C" __global__ void loop(volatile float* x) { while (*x == 1) {} }'
    begun = time.monotonic()
    done = run_script(
        SCRIPT
        + f"""
torch.cuda.synchronize()
Kernel(get_function({source!r}, "loop", 0), "P")(0, (1,), (1,), 0, torch.ones(1, device="cuda"))
""",
        CHECKED,
    )
    assert "checks found 1 problem: 1 of memory" in done.stderr  # what was found is told
    assert time.monotonic() - begun < 60


def test_reports_may_go_to_a_file(tmp_path):
    file = tmp_path / "reports.txt"
    done = run_script(SCRIPT, {**CHECKED, "FLAMBEAU_CHECK_FILE": str(file)})
    assert done.stderr == ""
    run_script(SCRIPT, {**CHECKED, "FLAMBEAU_CHECK_FILE": str(file)})
    assert file.read_text().count("kernel put wrote 4 bytes") == 2
