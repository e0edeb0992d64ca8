# SPDX-License-Identifier: Apache-2.0
"""Sparse tensor types would be here; there are none yet, as there are no sparse tensors."""

__all__: list[str] = []
