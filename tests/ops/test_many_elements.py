# SPDX-License-Identifier: Apache-2.0
"""More elements than 32 bits count: every kind of kernel reaches the last one."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

COUNT = (1 << 31) + 4_099  # odd, and three rows of equal width
LAST = COUNT - 1


@pytest.fixture(autouse=True)
def memory(gpu: Any) -> Iterator[None]:
    free, _ = torch.cuda.mem_get_info()
    if free < 60 << 30:
        pytest.skip("needs 60 GiB of free GPU memory")
    yield
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture
def bytes_(gpu: Any) -> Any:
    """Ones, but for a three at the end and a two in the middle."""
    x = torch.ones(COUNT, dtype=torch.int8, device=gpu)
    x[-1] = 3
    x[1 << 30] = 2
    return x


def test_many_elements_are_added(bytes_: Any) -> None:
    total = bytes_ + bytes_
    assert [int(total[i]) for i in (0, 1 << 30, LAST - 1, LAST)] == [2, 4, 2, 6]
    total.add_(bytes_, alpha=2)
    assert [int(total[i]) for i in (0, 1 << 30, LAST - 1, LAST)] == [4, 8, 4, 12]
    assert int((bytes_ > 1).sum()) == 2


def test_many_elements_are_summed(bytes_: Any) -> None:
    assert int(bytes_.sum()) == COUNT + 3
    assert (int(bytes_.max()), int(bytes_.argmax())) == (3, LAST)
    rows = bytes_.view(3, -1)
    width = rows.shape[1]
    assert rows.sum(1).tolist() == [width, width + 1, width + 2]
    columns = bytes_[: 1 << 31].view(-1, 2).sum(0)
    assert columns.tolist() == [(1 << 30) + 1, 1 << 30]


def test_many_elements_are_scanned(bytes_: Any) -> None:
    total = bytes_.cumsum(0, dtype=torch.int64)
    assert [int(total[i]) for i in (0, 1 << 30, LAST)] == [1, (1 << 30) + 2, COUNT + 3]


def test_many_elements_are_converted_and_copied(bytes_: Any) -> None:
    half = bytes_.half()
    assert (float(half[-1]), float(half[1 << 30])) == (3.0, 2.0)
    stepped = bytes_[::2].contiguous()
    assert stepped.numel() == (COUNT + 1) // 2
    assert (int(stepped[-1]), int(stepped[1 << 29])) == (3, 2)
    turned = bytes_[: 1 << 31].view(1 << 16, 1 << 15).t().contiguous()
    assert int(turned[0, 1 << 15]) == 2
    assert int((turned == 2).sum()) == 1
    joined = torch.cat((bytes_, bytes_))
    assert joined.shape[0] == 2 * COUNT
    assert (int(joined[LAST]), int(joined[COUNT]), int(joined[-1])) == (3, 1, 3)


def test_many_elements_are_indexed(bytes_: Any, gpu: Any) -> None:
    places = torch.tensor([LAST, 1 << 30, 0], device=gpu)
    assert bytes_[places].tolist() == [3, 2, 1]
    assert bytes_.gather(0, places).tolist() == [3, 2, 1]
    assert bytes_.index_select(0, places).tolist() == [3, 2, 1]
    assert bytes_.take(places).tolist() == [3, 2, 1]
    changed = bytes_.scatter(0, places, 7)
    assert [int(changed[i]) for i in (0, 1, 1 << 30, LAST)] == [7, 1, 7, 7]
    bytes_.index_fill_(0, places, 5)
    assert [int(bytes_[i]) for i in (0, 1, 1 << 30, LAST)] == [5, 1, 5, 5]
    assert bytes_.masked_select(bytes_ == 5).tolist() == [5, 5, 5]


def test_many_elements_not_zero_are_found(bytes_: Any) -> None:
    assert (bytes_ > 1).nonzero().flatten().tolist() == [1 << 30, LAST]
    assert bytes_.count_nonzero().item() == COUNT


def test_many_elements_are_sorted(bytes_: Any) -> None:
    rows = bytes_.view(3, -1)
    top, places = torch.topk(rows, 2, 1)
    assert (top.tolist(), places[1:, 0].tolist()) == (
        [[1, 1], [2, 1], [3, 1]],
        [(1 << 30) - rows.shape[1], rows.shape[1] - 1],
    )
    values, places = rows.sort(1)
    assert values[:, -2:].tolist() == [[1, 1], [1, 2], [1, 3]]
    assert places[1:, -1].tolist() == [(1 << 30) - rows.shape[1], rows.shape[1] - 1]
    with pytest.raises(RuntimeError, match="can not have more than INT_MAX elements"):
        bytes_.sort()


def test_many_elements_in_rows_are_normalized(gpu: Any) -> None:
    rows, width = (1 << 16) + 3, 1 << 15
    x = torch.zeros(rows, width, dtype=torch.float16, device=gpu)
    x[-1, -1] = 10.0
    y = x.softmax(1)
    first, last = 1 / width, 22026.4658 / (width - 1 + 22026.4658)
    assert float(y[0, 0]) == pytest.approx(first, rel=1e-2)
    assert float(y[-2, -1]) == pytest.approx(first, rel=1e-2)
    assert float(y[-1, -1]) == pytest.approx(last, rel=1e-2)


def test_many_elements_are_drawn(gpu: Any) -> None:
    x = torch.empty(COUNT, dtype=torch.float16, device=gpu).uniform_()
    tail = x[-(1 << 20) :].float()
    assert 0.49 < float(tail.mean()) < 0.51
    assert 0.32 < float(tail.std() * 1.1547) < 0.35
