# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms against SciPy, the plan cache, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import flambeau as torch

Array = np.ndarray[Any, Any]
F = torch.fft
DEVICES = ["cpu", "cuda"]
NORMS = [None, "backward", "ortho", "forward"]
REAL_INPUT = {"rfft", "ihfft"}
_TOLERANCE = {"float32": 1e-4, "float64": 1e-10, "complex64": 1e-4, "complex128": 1e-10}


def _data(precision: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    real = rng.normal(size=(3, 4, 5, 6)).astype(precision)
    return real, real + 1j * rng.normal(size=real.shape).astype(precision)


def _input(name: str, precision: str) -> list[Array]:
    real, complex_ = _data(precision)
    if name.rstrip("2n") in REAL_INPUT:
        return [real]
    return [complex_, real] if name in {"fft", "ifft"} else [complex_]


def _assert_like(found: torch.Tensor, expected: Any) -> None:
    values = found.cpu().numpy()
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    tolerance = _TOLERANCE[str(values.dtype)]
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dimension(name: str, precision: str, device: str) -> None:
    for data in _input(name, precision):
        x = torch.from_numpy(data).to(device)
        for norm in NORMS:
            for n, dim in ((None, -1), (4, 1), (7, -1), (1, 0), (9, 2)):
                expected = getattr(scipy.fft, name)(data, n, dim, norm)
                _assert_like(getattr(F, name)(x, n, dim, norm), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_any_dimensions(name: str, device: str) -> None:
    data = _input(name, "float64")[0]
    x = torch.from_numpy(data).to(device)
    for norm in (None, "ortho"):
        for s, dim in (
            (None, None),
            ((3, 5), None),
            ((4,), (1,)),
            (None, (0, 2)),
            ((3, 2, 4), (2, 0, 1)),
        ):
            expected = getattr(scipy.fft, name)(data, s, dim, norm)
            _assert_like(getattr(F, name)(x, s, dim, norm), expected)
    two = name[:-1] + "2"
    _assert_like(getattr(F, two)(x), getattr(scipy.fft, two)(data))


@pytest.mark.parametrize("device", DEVICES)
def test_frequencies_and_shifts(device: str) -> None:
    for n in (1, 4, 5):
        expected = np.fft.fftfreq(n, 0.5).astype(np.float32)
        _assert_like(F.fftfreq(n, 0.5, device=device), expected)
        _assert_like(F.rfftfreq(n, 0.5, device=device), np.fft.rfftfreq(n, 0.5).astype(np.float32))
    data = _data("float32")[0]
    x = torch.from_numpy(data).to(device)
    _assert_like(F.fftshift(x), np.fft.fftshift(data))
    _assert_like(F.ifftshift(x, 2), np.fft.ifftshift(data, 2))
    _assert_like(F.fftshift(x, (0, 2)), np.fft.fftshift(data, (0, 2)))


def test_half_precision(gpu: Any) -> None:
    x = torch.ones(3, 8, dtype=torch.float16, device=gpu)
    spectrum = F.rfft(x)
    assert spectrum.dtype == torch.complex32
    assert F.irfft(spectrum).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="powers of two"):
        F.rfft(x[:, :7])


def test_integers_and_out(gpu: Any) -> None:
    x = torch.arange(4, device=gpu)
    _assert_like(F.fft(x), np.fft.fft(np.arange(4)).astype(np.complex64))
    out = torch.empty(0, dtype=torch.complex64, device=gpu)
    assert F.fft(x, out=out) is out
    assert out.shape == (4,)


def test_plans_are_kept_in_order_of_use(gpu: Any) -> None:
    cache = torch.backends.cuda.cufft_plan_cache
    cache.clear()
    sizes = []
    for n in (8, 8, 9):
        x = torch.ones(n, device=gpu, dtype=torch.complex64)
        F.ifft(F.fft(x))  # both directions have one plan
        sizes.append(cache.size)
    assert sizes == [1, 1, 2]
    cache.max_size = 1
    assert cache.size == 1
    cache.max_size = 0
    F.fft(x)
    assert cache.size == 0
    with pytest.raises(RuntimeError, match="must be non-negative"):
        cache.max_size = -1
    with pytest.raises(RuntimeError, match="read-only property"):
        cache.size = 3
    with pytest.raises(RuntimeError, match="but got device with index 99"):
        cache[99]
    cache[torch.device(gpu)].max_size = 4096
    assert cache.max_size == 4096


def test_the_plan_that_was_not_used_for_longest_goes_first(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flambeau import driver

    cache, library = torch.backends.cuda.cufft_plan_cache, driver.current().libraries.fft
    plan, made = library.plan, 0

    def counted(transform: Any) -> Any:
        nonlocal made
        made += 1
        return plan(transform)

    monkeypatch.setattr(library, "plan", counted)
    cache.clear()
    before, cache.max_size = cache.max_size, 2
    counts = []
    try:
        for n in (8, 9, 8, 10, 8, 9):
            F.fft(torch.ones(n, device=gpu, dtype=torch.complex64))
            counts.append(made)
    finally:
        cache.max_size = before
    assert counts == [1, 2, 2, 3, 3, 4]
    assert cache.size == 2


def test_transforms_are_captured(gpu: Any) -> None:
    x = torch.ones(8, device=gpu, dtype=torch.complex64)
    F.fft(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = F.fft(x)
    x.fill_(2)
    graph.replay()
    assert y.abs()[0].item() == 16.0


_WRONG = [
    (lambda x: F.fft(x, 0), RuntimeError, r"Invalid number of data points \(0\) specified"),
    (lambda x: F.fft(x, norm="x"), RuntimeError, 'Invalid normalization mode: "x"'),
    (lambda x: F.fft(x, dim=3), IndexError, "Dimension out of range"),
    (lambda x: F.fft(x[0, 0]), IndexError, "Dimension specified as -1 but tensor has no dim"),
    (lambda x: F.rfft(F.fft(x)), RuntimeError, "rfft expects a real input tensor"),
    (lambda x: F.fftn(x, (1, 2, 3)), RuntimeError, "Got shape with 3 values but input tensor only"),
    (lambda x: F.fftn(x, (1, 2), (0,)), RuntimeError, "must have the same length"),
    (lambda x: F.fftn(x, dim=(0, 0)), RuntimeError, "FFT dims must be unique"),
    (lambda x: F.rfftn(x, dim=()), RuntimeError, "must transform at least one axis"),
    (lambda x: F.fft(x.bfloat16()), RuntimeError, "Unsupported dtype BFloat16"),
    (lambda x: F.fft(x.cpu().half()), RuntimeError, "Unsupported dtype Half"),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[2][:25])
def test_wrong_arguments(case: Any, gpu: Any) -> None:
    call, error, text = case
    with pytest.raises(error, match=text):
        call(torch.ones(2, 3, device=gpu))
