# SPDX-License-Identifier: Apache-2.0
"""Kernels are loaded on the device that they are for, whichever is current."""

import pytest

import flambeau as torch
from flambeau.kernels.compile import get_function
from flambeau.runtime._launch import Kernel
from support import needs_two

SOURCE = """
extern "C" __global__ void mark(int *out) { out[0] = 41; }
"""


@needs_two
@pytest.mark.parametrize("current", [0, 1])
def test_code_goes_to_its_device_and_the_current_one_stays(current):
    torch.cuda.set_device(current)
    for index in (0, 1):
        out = torch.zeros(1, dtype=torch.int32, device=f"cuda:{index}")
        source = SOURCE + f"// loaded with {current} current\n"
        Kernel(get_function(source, "mark", index), "P")(index, (1, 1, 1), (1, 1, 1), 0, out)
        torch.cuda.synchronize(index)
        assert out.tolist() == [41]
        assert torch.cuda.current_device() == current
