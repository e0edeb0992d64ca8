# SPDX-License-Identifier: Apache-2.0
"""``python -m flambeau.kernels``: write the archive of kernels that a release brings."""

from __future__ import annotations

import importlib.resources
import os
from pathlib import Path

from flambeau import virtual
from flambeau.kernels import pack
from flambeau.kernels.compile import supported_architectures
from flambeau.kernels.pack_list import PROGRAMS


def main() -> None:
    """Run the programs, compile what they needed, and say how much it is."""
    virtual.enable("h200")
    known = {f"sm_{number}" for number in supported_architectures()}
    target = Path(str(importlib.resources.files("flambeau.kernels"))) / pack.FILE
    target.unlink(missing_ok=True)
    kernels = pack.record(PROGRAMS)
    chosen = [arch for arch in pack.ARCHITECTURES if arch in known]
    count = pack.build(target, kernels, chosen, os.cpu_count() or 1)
    print(f"{target}: {count} kernels, {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
