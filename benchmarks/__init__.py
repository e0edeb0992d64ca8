# SPDX-License-Identifier: Apache-2.0
"""Measurements beside torch and CuPy, in one run.

Each library works in a process of its own, which may belong to another virtual environment: set
``BENCH_TORCH_PYTHON`` or ``BENCH_CUPY_PYTHON`` to its interpreter. The processes take turns, a
figure is the median of its turns, and what counts is the ratio. A library that is not installed
leaves its column blank.
"""
