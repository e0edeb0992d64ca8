# SPDX-License-Identifier: Apache-2.0
"""Windows, numerical gradients and distances of pairs, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch


@pytest.mark.parametrize(
    ("name", "form"),
    [("hann", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman),
     ("bartlett", np.bartlett), ("kaiser", lambda n: np.kaiser(n, 12.0))],
)  # fmt: skip
def test_windows(name: str, form: Any, gpu: Any) -> None:
    make = getattr(torch, f"{name}_window")
    for length in (0, 1, 2, 9):
        found = make(length, periodic=False, dtype=torch.float64, device=gpu)
        np.testing.assert_allclose(found.cpu().numpy(), form(length), atol=1e-12)
    periodic = make(8, dtype=torch.float64, device=gpu)
    np.testing.assert_allclose(periodic.cpu().numpy(), form(9)[:8], atol=1e-12)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradients(edge_order: int) -> None:
    values = np.random.default_rng(0).normal(size=(5, 7))
    found = torch.gradient(torch.from_numpy(values), spacing=0.5, edge_order=edge_order)
    for mine, expected in zip(found, np.gradient(values, 0.5, edge_order=edge_order), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-12)
    places = np.array([0.0, 1.0, 1.5, 3.5, 4.0])
    (along,) = torch.gradient(
        torch.from_numpy(values), spacing=(torch.from_numpy(places),), dim=0, edge_order=edge_order
    )
    expected = np.gradient(values, places, axis=0, edge_order=edge_order)
    np.testing.assert_allclose(along.numpy(), expected, rtol=1e-9)


def test_distances_and_range() -> None:
    points = np.random.default_rng(1).normal(size=(4, 3))
    x = torch.from_numpy(points)
    expected = [np.linalg.norm(points[i] - points[j]) for i in range(4) for j in range(i + 1, 4)]
    np.testing.assert_allclose(torch.pdist(x).numpy(), expected)
    between = torch.pairwise_distance(x, x.flip(0), eps=0)
    np.testing.assert_allclose(between.numpy(), np.linalg.norm(points - points[::-1], axis=1))
    assert torch.range(1, 2, 0.5).tolist() == [1.0, 1.5, 2.0]
