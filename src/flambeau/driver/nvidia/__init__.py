# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's driver: `driver` loads it, `modules` loads code, `management` reads NVML."""
