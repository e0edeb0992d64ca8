# SPDX-License-Identifier: Apache-2.0
"""Small float32 products by a kernel of our own, and what is left to the library."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import driver
from flambeau.kernels.compile import get_function
from flambeau.ops import small_products
from flambeau.runtime import _small_product


@pytest.fixture
def asked(gpu):
    """Have the kernel serve on any driver; the devices that it was made for."""
    devices = []

    def compile_it(device):
        devices.append(device)
        return get_function(small_products.SOURCE, "kernel", device)

    _small_product.set_compiler(compile_it)
    yield devices
    _small_product.set_compiler(small_products.function_for)


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(c, a, b):
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b) * a.shape[1] * 2.0**-24
    assert (np.abs(c.cpu().numpy() - exact) <= bound + 1e-30).all()


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (16, 16, 16), (17, 33, 15), (1, 128, 5), (5, 3, 1), (64, 64, 64), (64, 128, 64)],
)
def test_products_of_all_layouts_are_within_the_rounding_of_their_sums(asked, gpu, m, k, n):
    a, b = random(m, k), random(k, n)
    for left in (torch.tensor(a, device=gpu), torch.tensor(a.T.copy(), device=gpu).t()):
        for right in (torch.tensor(b, device=gpu), torch.tensor(b.T.copy(), device=gpu).t()):
            check(left @ right, a, b)
    assert asked == [0]


def test_parts_of_larger_matrices(asked, gpu):
    a, b = random(40, 50), random(50, 60)
    x, y = torch.tensor(a, device=gpu), torch.tensor(b, device=gpu)
    check(x[3:37, 5:45] @ y[7:47, 2:51], a[3:37, 5:45], b[7:47, 2:51])
    out = torch.full((70, 70), 7.0, device=gpu)
    torch.mm(x, y, out=out[10:50, 5:65])
    check(out[10:50, 5:65], a, b)
    out[10:50, 5:65] = 7
    assert bool((out == 7).all())
    assert asked == [0]


def test_a_product_with_out_has_the_bits_of_one_without(asked, gpu):
    x, y = torch.tensor(random(30, 20), device=gpu), torch.tensor(random(20, 10), device=gpu)
    out = torch.empty(30, 10, device=gpu)
    assert torch.equal(torch.mm(x, y, out=out), x @ y)


def test_in_a_graph(asked, gpu):
    x, y = torch.tensor(random(20, 20), device=gpu), torch.tensor(random(20, 20), device=gpu)
    eager = x @ y
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = x @ y
    z.zero_()
    graph.replay()
    assert torch.equal(z, eager)
    x.fill_(1)
    graph.replay()
    np.testing.assert_allclose(z[0].cpu().numpy(), y.sum(0).cpu().numpy(), rtol=1e-5, atol=1e-5)


def test_inf_and_nan_go_where_they_belong(asked, gpu):
    a, b = random(20, 9), random(9, 18)
    a[3, 4], b[5, 6] = np.inf, np.nan
    c = torch.tensor(a, device=gpu) @ torch.tensor(b, device=gpu)
    finite = np.isfinite(c.cpu().numpy())
    expected = np.ones((20, 18), bool)
    expected[3, :] = expected[:, 6] = False
    assert (finite == expected).all()


def test_what_is_left_to_the_library(asked, gpu):
    x = torch.ones(8, 8, device=gpu)
    large, deep = torch.ones(65, 8, device=gpu), torch.ones(8, 129, device=gpu)
    large @ x, x @ large.t(), deep @ deep.t(), deep.t() @ x
    x.double() @ x.double(), x.half() @ x.half()
    torch.bmm(x.expand(2, 8, 8), x.expand(2, 8, 8))
    torch.addmm(x, x, x), torch.addmm(x[0], x, x), torch.addmm(x, x, x, beta=0, alpha=2)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        x @ x
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert asked == []
    x @ x
    assert asked == [0]


def test_the_driver_says_whether_the_kernel_serves(gpu, monkeypatch):
    current = driver.current()
    made = small_products.function_for(0)
    assert bool(made) == current.supports("small_products")
    monkeypatch.setattr(
        type(current), "supports", lambda self, feature: feature != "small_products"
    )
    assert small_products.function_for(0) == 0
