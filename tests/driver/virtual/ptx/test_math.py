# SPDX-License-Identifier: Apache-2.0
"""CUDA's math library, which is long PTX: carry chains, tables in constant memory, slow paths."""

from __future__ import annotations

import numpy as np

RARE = """
extern "C" __global__ void rare(const double* x, double* y, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const double v = x[i];
  double* o = y + i * 10;
  o[0] = lgamma(v); o[1] = normcdf(v); o[2] = j0(v); o[3] = erfcx(v); o[4] = hypot(v, 3.0);
  o[5] = atan2(v, 2.0); o[6] = expm1(v); o[7] = fmod(v, 0.3); o[8] = sinpi(v);
  o[9] = nextafter(v, 100.0);
}
extern "C" __global__ void reduced(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  y[i * 3] = sinf(x[i]); y[i * 3 + 1] = cosf(x[i]); y[i * 3 + 2] = tanf(x[i]);
}
extern "C" __global__ void directed(const double* x, double* y) {
  const double v = x[0];
  y[0] = __drcp_rd(v); y[1] = __drcp_ru(v); y[2] = __dsqrt_rd(v); y[3] = __dsqrt_ru(v);
  y[4] = __fma_rd(v, v, 0.1); y[5] = __fma_ru(v, v, 0.1);
  y[6] = __frcp_rd((float)v); y[7] = __frcp_ru((float)v);
  y[8] = __fsqrt_rz((float)v); y[9] = __fsqrt_ru((float)v);
}"""


def test_rare_functions(cuda):
    from scipy import special

    x = np.linspace(0.05, 8, 200)
    y = np.zeros((200, 10))
    cuda(RARE).run("rare", 1, 256, x, y, np.int32(200))
    expected = [
        special.gammaln(x),
        special.ndtr(x),
        special.j0(x),
        special.erfcx(x),
        np.hypot(x, 3),
        np.arctan2(x, 2),
        np.expm1(x),
        np.fmod(x, 0.3),
        np.sin(np.pi * x),
        np.nextafter(x, 100.0),
    ]
    # the product with pi is rounded in the reference
    np.testing.assert_allclose(y, np.stack(expected, 1), rtol=1e-13, atol=4e-15)
    np.testing.assert_array_equal(y[:, 7], expected[7])
    np.testing.assert_array_equal(y[:, 9], expected[9])


def test_large_arguments_are_reduced(cuda):
    x = np.array([1e5, 1e8, 3.4e38, 12345678, 0.1, 105615.0], np.float32)
    y = np.zeros((x.size, 3), np.float32)
    cuda(RARE).run("reduced", 1, 32, x, y, np.int32(x.size))
    wide = x.astype(np.float64)
    expected = np.stack([np.sin(wide), np.cos(wide), np.tan(wide)], 1)
    np.testing.assert_allclose(y, expected, rtol=3e-7)


def test_directed_functions_are_neighbours(cuda):
    x, y = np.array([0.7]), np.zeros(10)
    cuda(RARE).run("directed", 1, 1, x, y)
    for low, high in y[:6].reshape(3, 2):
        assert np.nextafter(low, np.inf) == high
    assert y[0] <= 1 / x[0] <= y[1]
    assert y[2] <= np.sqrt(x[0]) <= y[3]
    for low, high in y[6:].astype(np.float32).reshape(2, 2):
        assert np.nextafter(low, np.float32(np.inf)) == high
