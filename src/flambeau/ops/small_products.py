# SPDX-License-Identifier: Apache-2.0
"""Products of small float32 matrices by a kernel of our own, where that is better than the library.

A library call costs the host more than such a product costs the device.
"""

from __future__ import annotations

from flambeau.runtime import _small_product

__all__ = ["SOURCE", "function_for"]

SOURCE = """
#include "product.cuh"
// small_product
FLAMBEAU_KERNEL(PRODUCT_THREADS)
kernel(float *c, const float *a, const float *b, ProductShape shape) {
  FLAMBEAU_GRID_WAIT();
  small_product(c, a, b, shape);
}
"""


def function_for(device: int) -> int:
    """The kernel for a device; 0 where products are left to the library."""
    from flambeau import driver
    from flambeau.driver.errors import MissingExtraError
    from flambeau.kernels.compile import get_function

    if not driver.current().supports("small_products"):
        return 0
    try:
        return get_function(SOURCE, "kernel", device)
    except MissingExtraError:  # no compiler; the library needs none
        return 0


_small_product.set_compiler(function_for)
