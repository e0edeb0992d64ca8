# SPDX-License-Identifier: Apache-2.0
"""Whole training steps: they learn, the same on host and device, and inside captured graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, optim
from ops.cases import array_of


class Classifier(nn.Module):
    """Tokens to one of four classes, with every kind of layer that a small GPT has."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.network(x.mean(1))


def problem(device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = np.random.default_rng(0).integers(0, 11, (16, 6))
    return torch.tensor(tokens, device=device), torch.tensor(tokens[:, 0] % 4, device=device)


def model(device: Any) -> Classifier:
    torch.manual_seed(0)
    return Classifier().to(device)


def step(net: nn.Module, optimizer: Any, tokens: Any, targets: Any) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(tokens), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("kind", [optim.AdamW, optim.SGD])
def test_host_and_device_agree(kind: Any, gpu: Any) -> None:
    found = []
    for device in (gpu, "cpu"):
        net = model(device)
        optimizer = kind(net.parameters(), lr=0.02)
        batch = problem(device)
        found.append([step(net, optimizer, *batch).item() for _ in range(8)])
    np.testing.assert_allclose(*found, rtol=1e-3)
    assert found[0][-1] < found[0][0] - 0.02


def test_it_learns(gpu: Any, schedule: str) -> None:
    net = model(gpu)
    optimizer = optim.Adam(net.parameters(), lr=0.02)
    batch = problem(gpu)
    losses = [step(net, optimizer, *batch) for _ in range(40)]
    assert losses[-1].item() < 0.3 * losses[0].item()
    net.eval()
    with torch.no_grad():
        assert (net(batch[0]).argmax(1) == batch[1]).float().mean().item() > 0.8


def test_a_whole_step_in_a_graph(gpu: Any) -> None:
    """Forward, backward and update, captured once and replayed on new data."""
    torch.cuda.set_device(gpu)
    nets = [model(gpu) for _ in range(2)]
    eager, captured = (optim.Adam(net.parameters(), lr=0.02, capturable=True) for net in nets)
    tokens, targets = problem(gpu)
    expected = []
    for k in range(7):
        expected.append(step(nets[0], eager, tokens.roll(k, 0), targets.roll(k, 0)).item())

    static_tokens, static_targets = tokens.clone(), targets.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for k in range(3):
            static_tokens.copy_(tokens.roll(k, 0))
            static_targets.copy_(targets.roll(k, 0))
            step(nets[1], captured, static_tokens, static_targets)
    torch.cuda.current_stream().wait_stream(stream)
    captured.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(nets[1], captured, static_tokens, static_targets)
    found = []
    for k in range(3, 7):
        static_tokens.copy_(tokens.roll(k, 0))
        static_targets.copy_(targets.roll(k, 0))
        graph.replay()
        found.append(loss.item())
    np.testing.assert_allclose(found, expected[3:], rtol=1e-5)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        np.testing.assert_allclose(array_of(a), array_of(b), rtol=1e-4, atol=1e-6)


def test_mixed_precision(gpu: Any) -> None:
    """Products in float16, sums and losses in float32, and a scale that keeps small gradients."""
    net = model(gpu)
    optimizer = optim.AdamW(net.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler()
    tokens, targets = problem(gpu)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            scores = net(tokens)
            loss = nn.functional.cross_entropy(scores, targets)
        assert scores.dtype == torch.float16
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert net.token.weight.grad.dtype == torch.float32
    assert losses[-1] < losses[0] - 0.05
