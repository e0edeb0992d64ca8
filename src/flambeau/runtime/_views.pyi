# SPDX-License-Identifier: Apache-2.0
"""The methods that give views of tensors; installed on `Tensor`, which documents them."""

def short_answers() -> dict[str, tuple[object, object]]:
    """For `recorded`, by method: the calls with nothing but sizes."""
