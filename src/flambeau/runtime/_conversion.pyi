# SPDX-License-Identifier: Apache-2.0
"""The methods that give another tensor with the same values; installed on `Tensor`, which documents them."""
