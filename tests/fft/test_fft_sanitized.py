# SPDX-License-Identifier: Apache-2.0
"""The stream sanitizer knows what libraries read and write."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.cuda._sanitizer import CUDASanitizerDispatchMode


def _operators(wait: bool) -> set[str]:
    x = torch.ones(64, dtype=torch.complex64, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with CUDASanitizerDispatchMode("collect") as found:
        x.mul_(2)
        if wait:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.fft.fft(x)
        torch.cuda.synchronize()
    return {error.current_access.operator.split("(")[0] for error in found.errors}


@pytest.mark.finds("race")
def test_missing_wait(gpu: Any) -> None:
    assert "fft_c2c" in _operators(wait=False)


def test_wait(gpu: Any) -> None:
    assert _operators(wait=True) == set()
