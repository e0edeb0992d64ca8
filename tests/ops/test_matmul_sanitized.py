# SPDX-License-Identifier: Apache-2.0
"""The stream sanitizer and the checks of virtual GPUs know what a product reads."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.cuda._sanitizer import CUDASanitizerDispatchMode


def _operators(wait: bool) -> set[str]:
    x, bias = torch.ones(16, 16, device="cuda"), torch.ones(16, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with CUDASanitizerDispatchMode("collect") as found:
        bias.mul_(2)
        if wait:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.nn.functional.linear(x, x, bias)
        torch.cuda.synchronize()
    return {error.current_access.operator.split("(")[0] for error in found.errors}


@pytest.mark.finds("race")
def test_missing_wait_for_a_bias(gpu: Any) -> None:
    assert "matmul" in _operators(wait=False)


def test_wait(gpu: Any) -> None:
    assert _operators(wait=True) == set()
