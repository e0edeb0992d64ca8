# SPDX-License-Identifier: Apache-2.0
"""The methods that give views of tensors; installed on `Tensor`, which documents them."""
