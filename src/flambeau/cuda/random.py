# SPDX-License-Identifier: Apache-2.0
"""Random number generators of the CUDA devices."""

from __future__ import annotations

__all__: list[str] = []

default_generators: tuple[object, ...] = ()
"""The generator of each device, once random numbers have been drawn there."""
