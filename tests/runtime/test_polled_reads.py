# SPDX-License-Identifier: Apache-2.0
"""Reading one element by looking at pinned memory while the device writes it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import driver
from flambeau.driver import _table
from flambeau.runtime import _copy

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = 0x7FF4A5C37FF4A5C3  # what the host looks for the end of


@pytest.fixture(autouse=True)
def polling(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Poll on virtual GPUs too; there most reads end with the wait."""
    current = driver.current()
    supports = type(current).supports
    monkeypatch.setattr(
        type(current),
        "supports",
        lambda self, feature: feature == "visible_writes" or supports(self, feature),
    )
    _copy._forget_handles()
    yield
    monkeypatch.undo()
    _copy._forget_handles()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1.5), ("float32", -0.0), ("int32", -7), ("int32", 0), ("float64", 1e300),
        ("int64", -(2**62)), ("int64", 5), ("uint8", 200), ("bool", True), ("float16", 0.5),
        ("complex64", 1 - 2j), ("complex128", 1 - 2j),
        ("int64", MARK), ("int32", MARK & 0xFFFFFFFF), ("int64", MARK ^ 1 << 40),
        ("int64", MARK ^ 1),
    ],
)  # fmt: skip
def test_every_value_is_read(gpu: torch.device, dtype: str, value: Any) -> None:
    x = torch.tensor([value], dtype=getattr(torch, dtype), device=gpu)
    for _ in range(3):
        assert x.item() == value
        assert x[0].item() == value


def test_random_bits(gpu: torch.device) -> None:
    values = np.random.default_rng(0).integers(-(2**63), 2**63, 200)
    x = torch.from_numpy(values).to(gpu)
    assert [x[i].item() for i in range(200)] == values.tolist()


def test_work_before_it_is_done(gpu: torch.device, schedule: str) -> None:
    x = torch.zeros(1 << 16, device=gpu)
    for i in range(20):
        x += 1
        assert x[-1].item() == i + 1


def test_threads_have_words_of_their_own(gpu: torch.device) -> None:
    x = torch.arange(100, device=gpu)
    wrong: list[int] = []

    def read(first: int) -> None:
        wrong.extend(i for i in range(first, 100) if x[i].item() != i)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.parametrize("entry", ["cuMemcpyDtoHAsync", "cuMemHostAlloc"])
def test_failures(gpu: torch.device, entry: str) -> None:
    x = torch.ones(1, device=gpu)
    torch.cuda.synchronize()
    _table.inject(entry, status=999, nth=1)
    if entry == "cuMemHostAlloc":
        assert x.item() == 1  # the usual way is left
    else:
        with pytest.raises(torch.AcceleratorError, match="unknown error"):
            x.item()
    _table.clear_faults()
    assert x.item() == 1


def test_captures_refuse_it_as_ever(gpu: torch.device) -> None:
    x = torch.ones(1, device=gpu)
    x.item()
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.item()
    assert x.item() == 1
