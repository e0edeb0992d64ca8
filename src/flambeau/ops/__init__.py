# SPDX-License-Identifier: Apache-2.0
"""What tensors can do: one table or module per family, and the rules they share."""
