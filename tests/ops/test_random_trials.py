# SPDX-License-Identifier: Apache-2.0
"""Gamma, binomial and Dirichlet numbers: moments, edges, reproducibility."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

COUNT = 4000


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, gpu: Any) -> Any:
    """The host, and a GPU."""
    torch.manual_seed(7)
    return gpu if request.param == "cuda" else torch.device("cpu")


@pytest.mark.parametrize("shape", [0.3, 2.5, 80.0])
def test_gamma_has_mean_and_variance_of_its_shape(shape: float, device: Any) -> None:
    drawn = torch._standard_gamma(torch.full((COUNT,), shape, device=device))
    spread = 5 * (shape / COUNT) ** 0.5
    assert abs(drawn.mean().item() - shape) < spread
    assert 0.8 < drawn.var().item() / shape < 1.25
    assert (drawn > 0).all().item()


@pytest.mark.parametrize(("count", "chance"), [(5.0, 0.3), (40.0, 0.9), (1000.0, 0.25)])
def test_binomial_has_the_moments(count: float, chance: float, device: Any) -> None:
    trials = torch.full((COUNT,), count, device=device)
    drawn = torch.binomial(trials, torch.tensor(chance, device=device))
    variance = count * chance * (1 - chance)
    assert abs(drawn.mean().item() - count * chance) < 5 * (variance / COUNT) ** 0.5
    assert 0.85 < drawn.var().item() / variance < 1.17
    assert ((drawn >= 0) & (drawn <= count) & (drawn == drawn.floor())).all().item()


def test_edges_of_binomial(device: Any) -> None:
    counts = torch.tensor([0.0, 5.0, 5.0], device=device)
    chances = torch.tensor([0.5, 0.0, 1.0], device=device)
    assert torch.binomial(counts, chances).tolist() == [0.0, 0.0, 5.0]
    assert torch.binomial(counts[:0], chances[:0]).shape == (0,)
    with pytest.raises(RuntimeError, match="of one dtype"):
        torch.binomial(counts, chances.double())
    with pytest.raises(NotImplementedError, match="binomial"):
        torch.binomial(counts.int(), chances)


def test_dirichlet_sums_to_one_and_repeats(device: Any) -> None:
    weights = torch.tensor([[1.0, 2.0, 3.0]] * 50, device=device)
    torch.manual_seed(3)
    first = torch._sample_dirichlet(weights)
    torch.manual_seed(3)
    again = torch._sample_dirichlet(weights)
    assert torch.equal(first, again)
    assert torch.allclose(first.sum(-1), torch.ones(50, device=device))
