# SPDX-License-Identifier: Apache-2.0
"""What autocast does with the operands of an operation, by its name."""

from __future__ import annotations

__all__ = ["CAST_TO_FLOAT32", "CAST_TO_LOWER", "CAST_TO_WIDEST", "FLOAT32_RESULT"]

# Run in the lower precision: products, which hardware is fast at.
CAST_TO_LOWER = frozenset(
    [
        "addbmm",
        "addmm",
        "addmv",
        "addr",
        "baddbmm",
        "bilinear",
        "bmm",
        "chain_matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "einsum",
        "linear",
        "matmul",
        "mm",
        "multi_dot",
        "mv",
        "prelu",
        "scaled_dot_product_attention",
    ]
)
# Run in float32: what needs range or precision.
CAST_TO_FLOAT32 = frozenset(
    [
        "acos",
        "asin",
        "bce_with_logits_loss",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cosh",
        "cosine_embedding_loss",
        "cosine_similarity",
        "cross_entropy",
        "cross_entropy_loss",
        "cumprod",
        "cumsum",
        "dist",
        "erfinv",
        "exp",
        "expm1",
        "group_norm",
        "huber_loss",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "layer_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "logsumexp",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "native_layer_norm",
        "nll_loss",
        "norm",
        "normalize",
        "pdist",
        "poisson_nll_loss",
        "pow",
        "prod",
        "reciprocal",
        "renorm",
        "rms_norm",
        "rsqrt",
        "sinh",
        "smooth_l1_loss",
        "soft_margin_loss",
        "softmax",
        "softmin",
        "softplus",
        "std",
        "sum",
        "tan",
        "triplet_margin_loss",
        "var",
    ]
)
# These take ``dtype=``, or return float32 of lower operands without a copy of them.
FLOAT32_RESULT = frozenset(["cumprod", "cumsum", "log_softmax", "prod", "softmax", "sum"])
# Run in the widest dtype among their operands.
CAST_TO_WIDEST = frozenset(
    [
        "addcdiv",
        "addcmul",
        "atan2",
        "bilinear",
        "cross",
        "dot",
        "fmod",
        "grid_sample",
        "index_put",
        "scatter_add",
        "tensordot",
        "cat",
        "stack",
    ]
)
