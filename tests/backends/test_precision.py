# SPDX-License-Identifier: Apache-2.0
"""How float32 precision resolves, and how older and newer names agree or do not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends import _precision

if TYPE_CHECKING:
    from collections.abc import Iterator

B = torch.backends
MATMUL = B.cuda.matmul


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    _precision.reset()
    yield
    _precision.reset()
    _precision.apply()


def test_start() -> None:
    assert (B.fp32_precision, B.cudnn.fp32_precision, MATMUL.fp32_precision) == ("none",) * 3
    assert (B.cudnn.conv.fp32_precision, B.cudnn.rnn.fp32_precision) == ("tf32", "tf32")
    assert not MATMUL.allow_tf32
    assert B.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


def test_reading_asks_the_parents() -> None:
    B.fp32_precision = "ieee"
    assert MATMUL.fp32_precision == B.cudnn.fp32_precision == B.cudnn.conv.fp32_precision == "ieee"
    B.cudnn.fp32_precision = "tf32"
    assert MATMUL.fp32_precision == B.cudnn.rnn.fp32_precision == "tf32"
    MATMUL.fp32_precision = "ieee"
    assert MATMUL.fp32_precision == "ieee"
    assert B.fp32_precision == "ieee"
    MATMUL.fp32_precision = "none"
    assert MATMUL.fp32_precision == "tf32"


@pytest.mark.parametrize(
    ("word", "precision"), [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")]
)
def test_older_setters_write_both_worlds(word: str, precision: str) -> None:
    torch.set_float32_matmul_precision(word)
    assert MATMUL.fp32_precision == precision
    assert torch.get_float32_matmul_precision() == word
    assert MATMUL.allow_tf32 == (precision == "tf32")
    MATMUL.allow_tf32 = True
    assert (MATMUL.fp32_precision, torch.get_float32_matmul_precision()) == ("tf32", "high")
    MATMUL.allow_tf32 = False
    assert (MATMUL.fp32_precision, torch.get_float32_matmul_precision()) == ("ieee", "highest")


def test_older_getters_fail_when_the_worlds_differ() -> None:
    MATMUL.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        _ = MATMUL.allow_tf32
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        torch.get_float32_matmul_precision()
    MATMUL.fp32_precision = "ieee"
    assert not MATMUL.allow_tf32
    B.cudnn.conv.fp32_precision = "ieee"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        _ = B.cudnn.allow_tf32
    B.cudnn.allow_tf32 = False
    assert not B.cudnn.allow_tf32
    assert B.cudnn.conv.fp32_precision == "none"
    B.cudnn.allow_tf32 = True
    assert B.cudnn.rnn.fp32_precision == "tf32"


def test_refusals() -> None:
    with pytest.raises(RuntimeError, match="Unknown precision: half"):
        MATMUL.fp32_precision = "half"
    with pytest.raises(RuntimeError, match="backend 'cuda' does not support precision 'bf16'"):
        MATMUL.fp32_precision = "bf16"
    with pytest.raises(RuntimeError, match="only supported for backend 'cuda' and op 'matmul'"):
        B.fp32_precision = "bfx9"
    MATMUL.fp32_precision = "bfx9"
    with pytest.warns(UserWarning, match="is not one of 'highest', 'high', or 'medium'"):
        torch.set_float32_matmul_precision("High")
    with pytest.raises(AttributeError, match="Unknown attribute speed"):
        _ = MATMUL.speed
    with pytest.raises(AttributeError, match="Unknown attribute speed"):
        MATMUL.speed = 1


def _error(x: torch.Tensor) -> float:
    exact = x.cpu().numpy().astype(np.float64)
    return float(np.abs((x @ x).cpu().numpy() - exact @ exact).max())


def test_products_follow(gpu: Any) -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)).to(
        gpu
    )
    full = _error(x)
    MATMUL.allow_tf32 = True
    assert _error(x) > 20 * full
    vector = x[0].cpu().numpy().astype(np.float64)
    exact = x.cpu().numpy().astype(np.float64) @ vector
    assert np.abs((x @ x[0]).cpu().numpy() - exact).max() < 10 * full
    B.fp32_precision = "ieee"
    MATMUL.fp32_precision = "none"
    assert _error(x) <= 2 * full


def test_flags_of_cudnn() -> None:
    with B.cudnn.flags(enabled=False, benchmark=True, allow_tf32=False):
        assert B.cudnn.benchmark
        assert not B.cudnn.allow_tf32
    assert not B.cudnn.benchmark
    assert B.cudnn.allow_tf32
    assert not B.cudnn.is_available()


def test_environment_starts_high() -> None:
    code = (
        "import flambeau as torch; m = torch.backends.cuda.matmul; "
        "print(m.allow_tf32, m.fp32_precision, torch.get_float32_matmul_precision())"
    )
    import os

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
    )
    assert done.stdout == "True tf32 high\n"
