# SPDX-License-Identifier: Apache-2.0
"""The programs whose kernels a release brings compiled: what most programs do first."""

from __future__ import annotations

__all__ = ["PROGRAMS"]

_FLOATS = ("float32", "float16", "bfloat16")
_NUMBERS = (*_FLOATS, "float64", "int64", "int32")
_ALL = (*_NUMBERS, "uint8", "bool")

_ARITHMETIC = """
x = torch.ones(8, 8, device="cuda", dtype=torch.{dtype})
for y in (x, x[0], x[:, :1], x.t(), 2):
    x + y, x - y, x * y, x / y
    x == y, x != y, x < y, x > y, x <= y, x >= y
    torch.maximum(x, x), torch.minimum(x, x)
x += x
x *= 2
-x, x.abs(), x.clamp(0, 1), x.clamp(min=0), x**2, 1 - x, x // 2, x % 2
torch.where(x > 0, x, x), x.masked_fill(x > 0, 0)
"""
_FUNCTIONS = """
x = torch.ones(8, 8, device="cuda", dtype=torch.{dtype})
x.exp(), x.log(), x.sqrt(), x.rsqrt(), x.sin(), x.cos(), x.tanh(), x.sigmoid(), x.relu()
x.reciprocal(), x.isnan(), x.isfinite(), x.erf(), x.floor(), x.round(), x.mean(), x.mean(1)
x.var(), x.std(1), x.norm(), x.softmax(-1) if hasattr(x, "softmax") else x
"""
_REDUCTIONS = """
x = torch.ones(8, 8, device="cuda", dtype=torch.{dtype})
for y in (x, torch.ones(64, 64, device="cuda", dtype=x.dtype)):
    y.sum(), y.sum(0), y.sum(1), y.max(), y.min(), y.amax(1), y.amin(0), y.max(0), y.max(1)
    y.argmax(1), y.prod(), y.all(), y.any(), y.cumsum(0), y.cumsum(1)
"""
_MOVES = """
x = torch.ones(40, 40, device="cuda", dtype=torch.{dtype})
x.t().contiguous(), x[::2].clone(), x.copy_(x.t().clone()), torch.cat([x, x]), x.flip(0)
i = torch.arange(8, device="cuda")
x[i], x[i, i], x.index_select(1, i), x.gather(0, i.reshape(1, 8)), x[x > 0], x.nonzero()
x[i] = 0
x.scatter_(0, i.reshape(1, 8), x[:1, :8].clone())
torch.zeros_like(x).index_add_(0, i, x[:8])
x.sort(), x.topk(3), x.unique()
"""
_CASTS = """
x = torch.ones(8, 8, device="cuda", dtype=torch.{dtype})
for other in ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"):
    x.to(getattr(torch, other))
"""
_RANDOM = """
x = torch.empty(64, device="cuda", dtype=torch.{dtype})
x.uniform_(), x.normal_(), x.bernoulli_(0.5)
torch.randint(10, (8,), device="cuda"), torch.randperm(8, device="cuda")
"""
_PRODUCTS = """
from flambeau.kernels.compile import get_function
from flambeau.ops.small_products import SOURCE

get_function(SOURCE, "kernel", 0)
"""

PROGRAMS = (
    *(_ARITHMETIC.format(dtype=dtype) for dtype in _NUMBERS),
    *(_FUNCTIONS.format(dtype=dtype) for dtype in _FLOATS),
    *(_REDUCTIONS.format(dtype=dtype) for dtype in _NUMBERS),
    *(_MOVES.format(dtype=dtype) for dtype in _NUMBERS),
    *(_CASTS.format(dtype=dtype) for dtype in _ALL),
    *(_RANDOM.format(dtype=dtype) for dtype in _FLOATS),
    _PRODUCTS,
)
