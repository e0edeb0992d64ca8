# SPDX-License-Identifier: Apache-2.0
"""Train a small GPT on a text that comes with Python, then let it write.

Written for torch, and unchanged for flambeau::

    flambeau run examples/gpt.py
    flambeau run --virtual h200 examples/gpt.py --steps 20

The model predicts the next character of Python's own help on its keywords.
"""

from __future__ import annotations

import argparse
import math
import time
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to the tokens before."""
        batch, tokens, width = x.shape
        split = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Attention and a network for each token, both beside a way past them."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.between = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what both find."""
        x = x + self.attention(self.before(x))
        return x + self.network(self.between(x))


class GPT(nn.Module):
    """A decoder-only transformer; the table of tokens serves at both ends."""

    def __init__(self, tokens: int, context: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(tokens, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout=0.0) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.apply(self._start)

    @staticmethod
    def _start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token at each place."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.place(places)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)

    @torch.no_grad()
    def write(self, tokens: torch.Tensor, count: int, temperature: float = 0.7) -> torch.Tensor:
        """Go on for `count` tokens."""
        self.eval()
        for _ in range(count):
            scores = self(tokens[:, -self.context :])[:, -1] / temperature
            drawn = torch.multinomial(F.softmax(scores, dim=-1), 1)
            tokens = torch.cat([tokens, drawn], dim=1)
        return tokens


def text_of_python() -> str:
    """Python's help topics: a few hundred thousand characters of English and code."""
    return "\n".join(topics.topics[name] for name in sorted(topics.topics))


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--characters", type=int, default=200, help="how many to write at the end")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train, and write."""
    options = arguments()
    torch.manual_seed(options.seed)
    text = text_of_python()
    letters = sorted(set(text))
    number = {letter: n for n, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text], device="cuda")
    model = GPT(len(letters), options.context, options.width, options.heads, options.depth).cuda()
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(text):,} characters of {len(letters)} kinds, {count:,} parameters")

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    warm = max(1, options.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm, 0.55 + 0.45 * math.cos(math.pi * step / options.steps)),
    )
    reach = torch.arange(options.context + 1, device="cuda")
    started = time.perf_counter()
    for step in range(options.steps):
        first = torch.randint(len(text) - options.context - 1, (options.batch, 1), device="cuda")
        batch = data[first + reach]
        scores = model(batch[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, options.steps // 10) == 0 or step == options.steps - 1:
            passed = time.perf_counter() - started
            print(f"step {step:4d}  loss {loss.item():.3f}  {passed:6.1f} s", flush=True)

    beginning = torch.tensor([[number[letter] for letter in "The "]], device="cuda")
    written = model.write(beginning, options.characters)[0].tolist()
    print("".join(letters[n] for n in written))


if __name__ == "__main__":
    main()
