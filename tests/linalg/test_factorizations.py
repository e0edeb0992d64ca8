# SPDX-License-Identifier: Apache-2.0
"""LU, Cholesky, QR, singular values and eigenvalues: factors multiply back to the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.linalg import _spectral
from linalg_cases import BATCHES, DTYPES, adjoint, assert_near, matrix, positive, tensor_of

SHAPES = [(4, 4), (5, 3), (3, 5), (1, 1), (4, 1)]
DEVICES = ["cpu", "cuda"]
Array = np.ndarray[Any, Any]


def _arrays(results: Any) -> list[Array]:
    return [one.cpu().numpy() for one in results]


def _assert_orthonormal(q: Array) -> None:
    unit = np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], *q.shape[-1:] * 2))
    assert_near(adjoint(q) @ q, unit)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_lu(batch: Any, dtype: str, device: str) -> None:
    for rows, columns in SHAPES:
        a = matrix(dtype, *batch, rows, columns)
        p, lower, upper = _arrays(torch.linalg.lu(tensor_of(a, device)))
        assert_near(p @ lower @ upper, a)
        assert np.all(np.triu(lower, 1) == 0)
        assert np.all(np.tril(upper, -1) == 0)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_lu_does_not_wait(gpu: Any) -> None:
    a = matrix("float32", 2, 100, 70)
    x = tensor_of(a, gpu)
    torch.cuda.set_sync_debug_mode("error")
    try:
        parts = torch.linalg.lu(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    p, lower, upper = _arrays(parts)
    assert_near(p @ lower @ upper, a)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_without_exchanges(dtype: str, device: str) -> None:
    for batch in BATCHES:
        a = positive(dtype, *batch, 5)
        p, lower, upper = torch.linalg.lu(tensor_of(a, device), pivot=False)
        assert p.shape == (0,)
        assert_near((lower @ upper).cpu().numpy(), a)
        packed, pivots = torch.linalg.lu_factor(tensor_of(a, device), pivot=False)
        assert pivots.reshape(-1, 5)[0].tolist() == [1, 2, 3, 4, 5]
        b = matrix(dtype, *batch, 5, 2)
        solved = torch.linalg.lu_solve(packed, pivots, tensor_of(b, device))
        assert_near(solved.cpu().numpy(), np.linalg.solve(a, b))
    swapped = torch.tensor([[0.0, 1.0], [1.0, 0.0]], device=device)
    assert torch.linalg.lu_factor_ex(swapped).info.item() == 0
    assert torch.linalg.lu_factor_ex(swapped, pivot=False).info.item() == 1
    with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero and using it on lu_solve"):
        torch.linalg.lu_factor_ex(swapped, pivot=False, check_errors=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(dtype: str, mode: str, device: str) -> None:
    for batch in BATCHES:
        for rows, columns in SHAPES:
            a = matrix(dtype, *batch, rows, columns)
            q, r = _arrays(torch.linalg.qr(tensor_of(a, device), mode))
            expected = np.linalg.qr(a, mode)
            assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
            assert_near(q @ r, a)
            _assert_orthonormal(q)
    empty, r_only = torch.linalg.qr(tensor_of(a, device), "r")
    assert empty.numel() == 0
    assert_near(r_only, np.asarray(np.linalg.qr(a, "r")), signs=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_svd(dtype: str, full: bool, device: str) -> None:
    for batch in BATCHES:
        for rows, columns in SHAPES:
            a = matrix(dtype, *batch, rows, columns)
            u, s, vh = _arrays(torch.linalg.svd(tensor_of(a, device), full))
            expected = np.linalg.svd(a, full)
            assert [x.shape for x in (u, s, vh)] == [x.shape for x in expected]
            assert_near(s, expected[1])
            k = s.shape[-1]
            assert_near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
            _assert_orthonormal(u)
    assert_near(torch.linalg.svdvals(tensor_of(a, device)), expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("driver", ["gesvd", "gesvdj", "gesvda"])
def test_svd_drivers(gpu: Any, driver: str, dtype: str) -> None:
    for batch in ((), (3,)):
        for rows, columns in ((8, 3), (3, 8), (40, 40), (50, 35)):
            for full in (True, False):
                a = matrix(dtype, *batch, rows, columns)
                x = tensor_of(a, gpu)
                u, s, vh = _arrays(torch.linalg.svd(x, full, driver=driver))
                assert_near(s, np.linalg.svd(a, compute_uv=False))
                k = s.shape[-1]
                assert_near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
                _assert_orthonormal(u)
    assert_near(torch.linalg.svdvals(x, driver=driver), s)
    with pytest.raises(RuntimeError, match="unknown svd driver gesdd"):
        torch.linalg.svd(x, driver="gesdd")
    with pytest.raises(RuntimeError, match="only supported on CUDA"):
        torch.linalg.svd(x.cpu(), driver=driver)


def test_what_jacobi_s_method_cannot_do_is_done_by_iteration(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods, once = [], _spectral._svd_once

    def failing(a: torch.Tensor, job: str, method: str) -> Any:
        methods.append(method)
        u, s, vh, _ = once(a, job, method)
        failed = torch.tensor(5, dtype=torch.int32, device=a.device)
        return u, s, vh, failed if method == "gesvdj" else None

    monkeypatch.setattr(_spectral, "_svd_once", failing)
    a = matrix("float32", 4, 4)
    assert_near(torch.linalg.svdvals(tensor_of(a, gpu)), np.linalg.svd(a, compute_uv=False))
    assert methods == ["gesvdj", "gesvd"]
    with pytest.raises(torch.linalg.LinAlgError, match=r"failed to converge.*error code: 5"):
        torch.linalg.svd(tensor_of(a, gpu), driver="gesvdj")


def test_many_small_matrices(gpu: Any) -> None:
    for dtype, rows, columns in (("float32", 32, 32), ("complex128", 40, 20), ("float64", 5, 9)):
        a = matrix(dtype, 20, rows, columns)
        a[3] = 0  # reflectors that do nothing
        a[4, :, 1:] = a[4, :, :1]
        for mode in ("reduced", "complete"):
            q, r = _arrays(torch.linalg.qr(tensor_of(a, gpu), mode))
            assert_near(q @ r, a)
            _assert_orthonormal(q)


@pytest.mark.parametrize("device", DEVICES)
def test_svd_of_nothing(device: str) -> None:
    u, s, vh = torch.linalg.svd(torch.empty(0, 3, device=device))
    assert (u.shape, s.shape) == ((0, 0), (0,))
    assert vh.shape == (3, 3)
    assert_near(vh, np.eye(3, dtype=np.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_and_eigh(dtype: str, device: str) -> None:
    for batch in BATCHES:
        a = positive(dtype, *batch, 4)
        x = tensor_of(a, device)
        assert_near(torch.linalg.cholesky(x), np.linalg.cholesky(a))
        upper = torch.linalg.cholesky(x, upper=True).cpu().numpy()
        assert_near(adjoint(upper) @ upper, a)
        values, vectors = _arrays(torch.linalg.eigh(x))
        assert_near(values, np.linalg.eigvalsh(a))
        assert_near(vectors * values[..., None, :], a @ vectors)
        assert_near(torch.linalg.eigvalsh(tensor_of(np.triu(a), device), "U"), values)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(dtype: str, device: str) -> None:
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 4)
        values, vectors = _arrays(torch.linalg.eig(tensor_of(a, device)))
        assert values.dtype.kind == vectors.dtype.kind == "c"
        assert_near(vectors * values[..., None, :], a @ vectors)
        only = torch.linalg.eigvals(tensor_of(a, device)).cpu().numpy()
        assert_near(only.sum(-1), np.trace(a, axis1=-2, axis2=-1).astype(only.dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_packed_factors(device: str) -> None:
    a, b = matrix("float64", 3, 4, 4), matrix("float64", 3, 4, 2)
    packed, pivots = torch.linalg.lu_factor(tensor_of(a, device))
    assert pivots.dtype == torch.int32
    right = tensor_of(b, device)
    assert_near(torch.linalg.lu_solve(packed, pivots, right), np.linalg.solve(a, b))
    transposed = torch.linalg.lu_solve(packed, pivots, right, adjoint=True)
    assert_near(transposed, np.linalg.solve(adjoint(a), b))
    left = torch.linalg.lu_solve(packed, pivots, right.mT, left=False)
    assert_near(left.mT, np.linalg.solve(adjoint(a), b))


@pytest.mark.parametrize("device", DEVICES)
def test_householder_product(device: str) -> None:
    from scipy.linalg import lapack

    a = matrix("float64", 5, 3)
    packed, tau = lapack.dgeqrf(a)[:2]
    q = torch.linalg.householder_product(tensor_of(packed, device), tensor_of(tau, device))
    assert_near(q.cpu().numpy() @ np.triu(packed)[:3], a)


def test_input_is_kept(gpu: Any) -> None:
    x = tensor_of(positive("float32", 3), "cuda")
    before = x.clone()
    for function in (torch.linalg.lu, torch.linalg.qr, torch.linalg.svd, torch.linalg.eigh):
        function(x)
    torch.linalg.cholesky(x)
    torch.linalg.eig(x)
    assert torch.equal(x, before)


def test_results_follow_the_stream(gpu: Any) -> None:
    stream = torch.cuda.Stream()
    a = positive("float32", 16)
    x = tensor_of(a, "cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000)
        factors, info = torch.linalg.cholesky_ex(x * 1)
    stream.synchronize()
    assert info.item() == 0
    assert_near(factors, np.linalg.cholesky(a))


def test_other_devices_and_threads(gpus: Any) -> None:
    import threading

    _, second = gpus(2)
    a = positive("float64", 3)
    found: list[Any] = []

    def work() -> None:
        found.append(torch.linalg.inv(tensor_of(a, str(second))))
        found.append(torch.fft.rfft(tensor_of(a, str(second))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [one.device for one in found] == [second, second]
    assert torch.cuda.current_device() == 0
    assert_near(found[0], np.linalg.inv(a))
    assert_near(found[1], np.fft.rfft(a))


def test_out(gpu: Any) -> None:
    x = tensor_of(positive("float32", 3), "cuda")
    out = torch.empty(0, device="cuda")
    assert torch.linalg.cholesky(x, out=out) is out
    assert_near(out, np.linalg.cholesky(x.cpu().numpy()))
    q, r = torch.empty(0, device="cuda"), torch.empty(0, device="cuda")
    torch.linalg.qr(x, out=(q, r))
    assert_near((q @ r), x.cpu().numpy())
