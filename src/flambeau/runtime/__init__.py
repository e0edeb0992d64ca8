# SPDX-License-Identifier: Apache-2.0
"""Mechanism: tensors, allocators, streams, events, launches. Mostly compiled; no NumPy here."""
