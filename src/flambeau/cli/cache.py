# SPDX-License-Identifier: Apache-2.0
"""``flambeau cache``: what is kept on disk."""

from __future__ import annotations

from flambeau.cli.tables import print_table
from flambeau.kernels.cache import DiskCache, cache_folder

__all__ = ["caches", "clear", "show"]


def caches() -> list[DiskCache]:
    """Each cache that has a folder on this machine."""
    root = cache_folder()
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [DiskCache(folder) for folder in folders]


def show() -> None:
    """Print folder, entries and size of each cache."""
    rows = [cache.info() for cache in caches()]
    if not rows:
        print(f"{cache_folder()} holds nothing yet")
        return
    print_table(
        ("cache", "entries", "MiB"),
        [(str(row.folder), str(row.entries), f"{row.bytes / 2**20:.1f}") for row in rows],
    )


def clear() -> None:
    """Remove every entry and say how many there were."""
    removed = sum(cache.clear() for cache in caches())
    print(f"removed {removed} entries from {cache_folder()}")
