# SPDX-License-Identifier: Apache-2.0
"""Deterministic mode: what it refuses, what it lets pass, what it fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


def _index_put(x: torch.Tensor, index: torch.Tensor) -> None:
    x.index_put_((index,), torch.ones_like(x), accumulate=True)


_ADDING = [
    lambda x, i: x.scatter_add_(0, i, torch.ones_like(x)),
    lambda x, i: x.index_add_(0, i, torch.ones_like(x)),
    lambda x, i: x.put_(i, torch.ones_like(x), accumulate=True),
    _index_put,
]


@pytest.mark.parametrize("call", _ADDING)
def test_sums_in_any_order_are_refused(call: Any, gpu: Any) -> None:
    x, index = torch.zeros(4, device=gpu), torch.zeros(4, dtype=torch.int64, device=gpu)
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation, but you"):
        call(x, index)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
        call(x, index)
    assert x[0].item() == 4.0
    torch.use_deterministic_algorithms(False)
    call(x, index)
    assert x[0].item() == 8.0


def test_what_is_deterministic_passes(gpu: Any) -> None:
    torch.use_deterministic_algorithms(True)
    whole = torch.zeros(4, dtype=torch.int64, device=gpu)
    index = torch.zeros(4, dtype=torch.int64, device=gpu)
    assert whole.scatter_add_(0, index, torch.ones_like(whole))[0].item() == 4
    host = torch.zeros(4)
    assert host.index_add_(0, index.cpu(), torch.ones(4))[0].item() == 4.0
    x = torch.ones(8, 8, device=gpu)
    assert (x @ x).sum().item() == 512.0
    x[index] = 2.0
    assert x.cumsum(0).sort().values.shape == (8, 8)


def test_long_rows_are_added_up_in_a_fixed_order(gpu: Any) -> None:
    x = torch.rand((1 << 18) + 5, device=gpu)
    found = x.cumsum(0)
    torch.use_deterministic_algorithms(True)
    for _ in range(3):
        assert torch.equal(found, x.cumsum(0))
    expected = x.double().cumsum(0)
    assert ((found - expected).abs() <= 1e-4 * expected).all().item()


def test_modes() -> None:
    assert torch.get_deterministic_debug_mode() == 0
    for mode, expected in (("warn", 1), (2, 2), ("default", 0), (1, 1), ("error", 2)):
        torch.set_deterministic_debug_mode(mode)
        assert torch.get_deterministic_debug_mode() == expected
        assert torch.are_deterministic_algorithms_enabled() == (expected > 0)
        assert torch.is_deterministic_algorithms_warn_only_enabled() == (expected == 1)
    with pytest.raises(RuntimeError, match="expected one of `default`, `warn`, `error`, but got x"):
        torch.set_deterministic_debug_mode("x")
    with pytest.raises(RuntimeError, match="expected 0, 1, or 2, but got 3"):
        torch.set_deterministic_debug_mode(3)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_new_memory_is_filled(device: str) -> None:
    plain = torch.empty
    torch.use_deterministic_algorithms(True)
    assert torch.empty(2, device=device).isnan().all().item()
    assert torch.empty_like(torch.ones(2, device=device)).isnan().all().item()
    assert torch.ones(2, device=device).new_empty(2).isnan().all().item()
    assert torch.empty(1, dtype=torch.int32, device=device).item() == 2147483647
    assert torch.empty(1, dtype=torch.bool, device=device).item() is True
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert torch.empty is plain
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty is not plain
    torch.use_deterministic_algorithms(False)
    assert torch.empty is plain


def test_products_need_no_workspace_setting(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.use_deterministic_algorithms(True)
    x = torch.rand(64, 64, device=gpu)
    assert torch.equal(x @ x, x @ x)
