# SPDX-License-Identifier: Apache-2.0
"""The smallest program: add two vectors on the GPU.

Run it with ``flambeau run examples/vector_add.py``.
"""

import torch


def main() -> None:
    """Add, and show the last element."""
    a = torch.arange(1000, dtype=torch.float32, device="cuda")
    b = torch.full((1000,), 0.5, device="cuda")
    c = a + b
    print(f"{torch.cuda.get_device_name()}: the sum ends with {c[-1].item()}")


if __name__ == "__main__":
    main()
