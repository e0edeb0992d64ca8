# SPDX-License-Identifier: Apache-2.0
"""Sizes and strides as numbers; for compiled callers only."""
