# SPDX-License-Identifier: Apache-2.0
"""Operands of elementwise operations; for compiled callers only."""
