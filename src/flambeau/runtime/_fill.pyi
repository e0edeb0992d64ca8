# SPDX-License-Identifier: Apache-2.0
"""The filling methods; installed on `Tensor`, which documents them."""
