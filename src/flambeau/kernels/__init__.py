# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ sources, and how they become loaded kernels."""
