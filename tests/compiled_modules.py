# SPDX-License-Identifier: Apache-2.0
"""Print the names of all compiled modules, for tools that take them as arguments."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"


def compiled_modules() -> list[str]:
    """Dotted names, sorted."""
    found = (SOURCES / "flambeau").rglob("*.pyx")
    return sorted(".".join(p.relative_to(SOURCES).with_suffix("").parts) for p in found)


if __name__ == "__main__":
    print(*compiled_modules())
