# SPDX-License-Identifier: Apache-2.0
"""Functions of neural networks, beside torch's: ``python -m benchmarks.neural``.

Times come from the device's events. Those of a virtual GPU are its model's, not a measurement.
"""

from __future__ import annotations

import sys

from benchmarks.compare import LIBRARIES, Row, print_table
from benchmarks.kernels import gigabytes

MATRIX = "a = xp.randn(65536, 4096, device='cuda'{more}); F = xp.nn.functional"
WIDE = "a = xp.randn(4096, 50257, device='cuda'{more}); F = xp.nn.functional"
FLOAT, HALF = MATRIX.format(more=""), MATRIX.format(more=", dtype=xp.bfloat16")
COUNT = 65536 * 4096
VOCABULARY = 4096 * 50257
PARAMETERS = "w = xp.randn(4096, device='cuda'); b = xp.randn(4096, device='cuda')"
HALF_PARAMETERS = f"{PARAMETERS}; w = w.bfloat16(); b = b.bfloat16()"
TARGETS = "t = xp.randint(0, 50257, (4096,), device='cuda')"
TOKENS = (
    "t = xp.randint(0, 4096, (65536,), device='cuda'); w = xp.randn(4096, 4096, device='cuda'); "
    "F = xp.nn.functional"
)


def attention(features: int, dtype: str = "bfloat16", tokens: int = 4096) -> str:
    """Queries, keys and values of 16 heads."""
    return (
        f"q, k, v = (xp.randn(2, 16, {tokens}, {features}, device='cuda', dtype=xp.{dtype}) "
        "for _ in range(3)); F = xp.nn.functional"
    )


GRADIENTS = (
    "q, k, v = (xp.randn(2, 16, 4096, {0}, device='cuda', dtype=xp.bfloat16, requires_grad=True) "
    "for _ in range(3)); g = xp.randn(2, 16, 4096, {0}, device='cuda', dtype=xp.bfloat16); "
    "F = xp.nn.functional"
)
# The shapes of GPT-2's smallest model.
ADAM = (
    "shapes = [(50257, 768), (1024, 768)] + 12 * [(768,), (768,), (2304, 768), (2304,), "
    "(768, 768), (768,), (768,), (768,), (3072, 768), (3072,), (768, 3072), (768,)]\n"
    "params = [xp.nn.Parameter(xp.randn(*shape, device='cuda')) for shape in shapes]\n"
    "for p in params: p.grad = xp.randn_like(p)\n"
    "opt = xp.optim.AdamW(params, fused=True)"
)

# A gradient of the same form through each library's own entry points.
SLOPES = (
    "g = xp.randn(65536, 4096, device='cuda'); y = F.softmax(a, 1); "
    "from importlib import import_module as load\n"
    "if xp.__name__ == 'flambeau':\n"
    "    S, N = load('flambeau.ops.softmax'), load('flambeau.ops.normalization')\n"
    "    made = N.forward(a, 4096, w, b, 1e-5, False)\n"
    "    softmax_back = lambda: S.backward(g, y, 1, False)\n"
    "    norm_back = lambda: N.backward(g, a, 4096, made.mean, made.scale, w, False)\n"
    "else:\n"
    "    made = xp.native_layer_norm(a, (4096,), w, b, 1e-5)\n"
    "    softmax_back = lambda: xp._softmax_backward_data(g, y, 1, a.dtype)\n"
    "    norm_back = lambda: xp.ops.aten.native_layer_norm_backward(\n"
    "        g, a, (4096,), made[1], made[2], w, b, (True, True, True))\n"
)

ROWS = [
    Row("softmax", "F.softmax(a, 1)", FLOAT, calls=10, bytes=8 * COUNT),
    Row("softmax, bfloat16", "F.softmax(a, 1)", HALF, calls=10, bytes=4 * COUNT),
    Row("softmax, dim 0", "F.softmax(a, 0)", FLOAT, calls=5, bytes=8 * COUNT),
    Row("log_softmax", "F.log_softmax(a, 1)", FLOAT, calls=10, bytes=8 * COUNT),
    Row("softmax of 50,257", "F.softmax(a, 1)", WIDE.format(more=""), calls=10,
        bytes=8 * VOCABULARY),
    Row("layer_norm", "F.layer_norm(a, (4096,), w, b)", f"{FLOAT}; {PARAMETERS}", calls=10,
        bytes=8 * COUNT),
    Row("layer_norm, bfloat16", "F.layer_norm(a, (4096,), w, b)", f"{HALF}; {HALF_PARAMETERS}",
        calls=10, bytes=4 * COUNT),
    Row("rms_norm", "F.rms_norm(a, (4096,), w)", f"{FLOAT}; {PARAMETERS}", calls=10,
        bytes=8 * COUNT),
    Row("softmax, backward", "softmax_back()", f"{FLOAT}; {PARAMETERS}; {SLOPES}", calls=5,
        bytes=12 * COUNT),
    Row("layer_norm, backward", "norm_back()", f"{FLOAT}; {PARAMETERS}; {SLOPES}", calls=5,
        bytes=12 * COUNT),
    Row("cross_entropy of 50,257", "F.cross_entropy(a, t)", f"{WIDE.format(more='')}; {TARGETS}",
        calls=10, bytes=4 * VOCABULARY),
    Row("cross_entropy, bfloat16", "F.cross_entropy(a, t)",
        f"{WIDE.format(more=', dtype=xp.bfloat16')}; {TARGETS}", calls=10, bytes=2 * VOCABULARY),
    Row("gelu", "F.gelu(a)", FLOAT, calls=10, bytes=8 * COUNT),
    Row("silu", "F.silu(a)", FLOAT, calls=10, bytes=8 * COUNT),
    Row("embedding", "F.embedding(t, w)", TOKENS, calls=10, bytes=4 * COUNT),
    Row("attention, 64 features", "F.scaled_dot_product_attention(q, k, v)", attention(64),
        calls=10, bytes=4 * 2 * 16 * 4096 * 4096 * 64),
    Row("attention, 128 features", "F.scaled_dot_product_attention(q, k, v)", attention(128),
        calls=10, bytes=4 * 2 * 16 * 4096 * 4096 * 128),
    Row("causal attention, 64", "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        attention(64), calls=10, bytes=2 * 2 * 16 * 4096 * 4096 * 64),
    Row("causal attention, float32", "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        attention(64, "float32", 2048), calls=5, bytes=2 * 2 * 16 * 2048 * 2048 * 64),
    Row("attention and gradients, 64", "xp.autograd.grad(F.scaled_dot_product_attention("
        "q, k, v, is_causal=True), (q, k, v), g)", GRADIENTS.format(64), calls=5,
        bytes=7 * 2 * 16 * 4096 * 4096 * 64),
    Row("attention and gradients, 128", "xp.autograd.grad(F.scaled_dot_product_attention("
        "q, k, v, is_causal=True), (q, k, v), g)", GRADIENTS.format(128), calls=5,
        bytes=7 * 2 * 16 * 4096 * 4096 * 128),
    Row("AdamW step, 124M parameters", "opt.step()", ADAM, calls=10, bytes=28 * 124_000_000),
    Row("_foreach_add_ of 300", "xp._foreach_add_(p, g, alpha=0.5)",
        "p, g = ([xp.randn(1000, 100, device='cuda') for _ in range(300)] for _ in range(2))",
        calls=10, bytes=12 * 30_000_000),
]  # fmt: skip

if __name__ == "__main__":
    chosen = [row for row in ROWS if not sys.argv[1:] or any(w in row.name for w in sys.argv[1:])]
    print_table(
        "Functions of neural networks, GB/s (of attention: billions of operations a second) by the "
        "device's clock", chosen, "gpu", gigabytes, LIBRARIES[:2],
    )  # fmt: skip
