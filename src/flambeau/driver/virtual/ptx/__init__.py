# SPDX-License-Identifier: Apache-2.0
"""PTX executed on the CPU: parsed, lowered to LLVM IR, compiled for the host, run block by block.

``loader.load`` makes kernels of a PTX text; ``_engine`` runs them. Nothing here knows of streams,
devices or allocations: a launch brings a map of the memory that it may touch.
"""

from flambeau.driver.virtual.ptx.loader import LoadedModule, load

__all__ = ["LoadedModule", "load"]
