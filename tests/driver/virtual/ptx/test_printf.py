# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

PRINT = r"""
extern "C" __global__ void hello(const int* x, long long big) {
  const int n = printf("thread %d of %s: %5.2f|%-6x|%lld %%\n", threadIdx.x, "block", 1.5 * x[0],
                       255, big);
  if (n != 5) printf("wrong count %d\n", n);
  if (threadIdx.x == 1) printf("plain\n");
}
extern "C" __global__ void local_text(int n) {
  char text[8];
  for (int i = 0; i < 7; ++i) text[i] = 'a' + i + n;
  text[7] = 0;
  printf("%s|%c|%s\n", text, 'x', (const char*)nullptr);
}"""


def test_printf_goes_to_standard_output(cuda, capfd):
    x = np.array([7], np.int32)
    cuda(PRINT).run("hello", 1, 2, x, np.int64(-(10**12)))
    line = "thread {} of block: 10.50|ff    |-1000000000000 %\n"
    assert capfd.readouterr().out == line.format(0) + line.format(1) + "plain\n"


def test_text_in_local_memory_and_nowhere(cuda, capfd):
    cuda(PRINT).run("local_text", 1, 1, np.int32(1))
    assert capfd.readouterr().out == "bcdefgh|x|(null)\n"
