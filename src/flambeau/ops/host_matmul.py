# SPDX-License-Identifier: Apache-2.0
"""Matrix products of host tensors through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor


def run(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> None:
    """``c = alpha * a @ b + beta * c`` for 3-d tensors."""
    code = host.arithmetic_code(c.dtype.code)
    left, right, target = (host.convert(host.array(t), code) for t in (a, b, c))
    with np.errstate(all="ignore"):
        product = np.matmul(left, right)
        if alpha != 1:
            product = product * product.dtype.type(alpha)
        if beta:
            product = product + target * product.dtype.type(beta)
        host.array(c)[...] = host.convert(product, c.dtype.code)
