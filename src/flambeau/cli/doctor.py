# SPDX-License-Identifier: Apache-2.0
"""``flambeau doctor``: why CUDA is not available, and what helps."""

from __future__ import annotations

__all__ = ["examine"]


def examine() -> int:
    """Print each cause with its remedy.

    Returns
    -------
    int
        The exit status: 0 if CUDA is available and kernels can be compiled, else 1.
    """
    from flambeau import cuda
    from flambeau.cuda import _explain

    findings = _explain.explain()
    if not findings and cuda.is_available():
        print(f"CUDA is available: {cuda.device_count()} x {cuda.get_device_name(0)}")
        return 0
    print("CUDA is not available." if not cuda.is_available() else "CUDA is available, but:")
    for cause, remedy in findings:
        print(f"- {cause}\n  {remedy}")
    return 1
