# SPDX-License-Identifier: Apache-2.0
"""All checks at once on correct programs: the same results, and nothing to report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import flambeau as torch
from driver.virtual.checked import scale
from driver.virtual.ptx.test_cub import SCAN, SORT
from flambeau.kernels.compile import get_function, include_options
from flambeau.runtime._launch import Kernel

pytestmark = pytest.mark.unchecked("turns on the checks that it is about")


def cub(source: str, name: str, signature: str) -> Kernel:
    torch.zeros(1, device="cuda")
    return Kernel(get_function(source, name, 0, include_options()), signature)


def test_block_scan():
    kernel = cub(SCAN, "scan", "PPPi")
    values = np.arange(1000, dtype=np.int32)
    with torch.virtual.checks():
        x = torch.from_numpy(values).to("cuda")
        y = torch.empty(1000, dtype=torch.int32, device="cuda")
        totals = torch.empty(2, dtype=torch.int32, device="cuda")
        kernel(0, (2,), (128,), 0, x, y, totals, 1000)
        assert totals.tolist() == [values[:512].sum(), values[512:].sum()]
        assert y[:512].tolist() == np.cumsum(values[:512]).tolist()


def test_block_radix_sort():
    kernel = cub(SORT, "sort", "PP")
    keys = np.random.default_rng(3).standard_normal(1024, dtype=np.float32)
    with torch.virtual.checks():
        x = torch.from_numpy(keys).to("cuda")
        places = torch.empty(1024, dtype=torch.int32, device="cuda")
        kernel(0, (2,), (128,), 0, x, places)
        assert x[:512].tolist() == np.sort(keys[:512]).tolist()
        assert places[:512].tolist() == np.argsort(keys[:512], kind="stable").tolist()


@pytest.mark.parametrize("policy", ["fifo", "random:5", "adversarial"])
def test_operations(policy: str):
    rng = np.random.default_rng(11)
    values = rng.standard_normal((70, 33), dtype=np.float32)
    with torch.virtual.schedule(policy), torch.virtual.checks():
        x = torch.from_numpy(values).to("cuda", non_blocking=True)
        y = (x.t() + 1).contiguous().sum(dim=0)
        np.testing.assert_allclose(y.cpu().numpy(), values.sum(1) + 33, rtol=1e-4, atol=1e-4)
        ordered, places = x.sort(dim=1)
        np.testing.assert_array_equal(ordered.cpu().numpy(), np.sort(values, 1))
        np.testing.assert_array_equal(places.cpu().numpy(), np.argsort(values, 1, kind="stable"))
        np.testing.assert_array_equal((x[x > 0]).cpu().numpy(), values[values > 0])
        product = x @ x.t()
        np.testing.assert_allclose(product.cpu().numpy(), values @ values.T, rtol=1e-3, atol=1e-3)
        assert torch.cat([x, x]).max().item() == values.max()
        bits = x > 0
        assert bits.any().item()
        assert int(bits.sum().item()) == int((values > 0).sum())
        assert 0 < torch.rand(1000, device="cuda").mean().item() < 1


def test_two_devices_and_side_streams():
    with torch.virtual.checks():
        x = torch.ones(1000, device="cuda:0")
        y = x.to("cuda:1") + 1
        z = y.to("cuda:0") + x
        assert z.sum().item() == 3000
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            w = z * 2
        w.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
        assert w.sum().item() == 6000
        pinned = torch.ones(1000).pin_memory()
        for _ in range(3):
            z.copy_(pinned, non_blocking=True)
            pinned = z.to("cpu", non_blocking=True)
            torch.cuda.synchronize()


def test_threads_of_the_host():
    kernel = scale()

    def work(size: int) -> float:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.ones(size, device="cuda")
            total = torch.zeros(1, device="cuda")
            for _ in range(10):
                y = torch.empty(size, device="cuda")
                kernel(2, 256, y, x, size)
                total += (y + x).sum()
            return total.item()

    sizes = [500, 400, 300, 200]
    with torch.virtual.checks(), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, sizes)) == [30.0 * size for size in sizes]


def test_many_allocations():
    """The ledger forgets what nobody can ask for any more."""
    with torch.virtual.checks("memory", "init"):
        total = torch.zeros(1, device="cuda")
        for _ in range(3000):
            total += torch.ones(1, device="cuda")
        assert total.item() == 3000


def test_nested_blocks_add_up():
    kernel = scale()
    x, y = torch.ones(10, device="cuda"), torch.zeros(16, device="cuda")
    with torch.virtual.checks("memory", mode="collect") as outer:
        with torch.virtual.checks("init", mode="collect") as inner:
            kernel(1, 32, y, x, 11)
            kernel(1, 32, y, torch.empty(10, device="cuda"), 1)
        kernel(1, 32, y, torch.empty(10, device="cuda"), 1)
        kernel(1, 32, y, x, 11)
    assert sorted(r.check for r in inner.reports) == ["init", "memory"]
    assert [r.check for r in outer.reports] == ["memory"]


def test_a_fault_inside_is_still_the_drivers_error():
    from support import run_script

    done = run_script(
        """
        import pytest
        from flambeau.kernels.compile import get_function
        from flambeau.runtime._launch import Kernel
        x = torch.ones(10, device="cuda")
        put = 'extern "C" __global__ void put(float *x) { x[1 << 28] = 1; }'
        kernel = Kernel(get_function(put, "put", 0), "P")
        with torch.virtual.checks(mode="collect"):
            kernel(0, (1,), (1,), 0, x)
            with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
                torch.cuda.synchronize()
        torch.virtual.reset()
        assert torch.ones(3, device="cuda").sum().item() == 3
        """,
        {"FLAMBEAU_VIRTUAL": "h200:1"},
    )
    assert done.returncode == 0
