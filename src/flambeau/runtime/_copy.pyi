# SPDX-License-Identifier: Apache-2.0
"""The copying and converting methods of tensors; installed on `Tensor`, which documents them."""
