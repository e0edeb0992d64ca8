# SPDX-License-Identifier: Apache-2.0
"""``t[...]`` and ``t[...] = …``; for compiled callers only."""
