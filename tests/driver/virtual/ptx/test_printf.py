# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

PRINT = r"""
extern "C" __global__ void hello(const int* x, long long big) {
  const int n = printf("thread %d of %s: %5.2f|%-6x|%lld %%\n", threadIdx.x, "block", 1.5 * x[0],
                       255, big);
  if (n != 5) printf("wrong count %d\n", n);
  if (threadIdx.x == 1) printf("plain\n");
}"""


def test_printf_goes_to_standard_output(cuda, capfd):
    x = np.array([7], np.int32)
    cuda(PRINT).run("hello", 1, 2, x, np.int64(-(10**12)))
    line = "thread {} of block: 10.50|ff    |-1000000000000 %\n"
    assert capfd.readouterr().out == line.format(0) + line.format(1) + "plain\n"
