# SPDX-License-Identifier: Apache-2.0
"""A folder of compiled code that survives crashes, races and full disks.

An entry is one file. It is written under a temporary name and renamed, so that a reader sees all
of it or nothing, and it carries a digest of its contents, so that a damaged one is noticed, removed
and made again. Any failure of the folder costs time, never a result.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CacheInfo", "DiskCache", "cache_folder"]

_MAGIC = b"flambeau-cache-1\n"
_DIGEST_BYTES = 32
_WRITES_BETWEEN_TRIMS = 128


def cache_folder() -> Path:
    """The root of flambeau's caches.

    Returns
    -------
    pathlib.Path
        ``FLAMBEAU_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/flambeau``, else
        ``~/.cache/flambeau``.
    """
    if own := os.environ.get("FLAMBEAU_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "flambeau"
    return Path(os.path.expanduser("~")) / ".cache" / "flambeau"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds.

    Parameters
    ----------
    folder
        Where it is.
    entries
        How many files.
    bytes
        Their total size.
    """

    folder: Path
    entries: int
    bytes: int


class DiskCache:
    """Byte strings by key in one folder.

    Parameters
    ----------
    folder
        Where entries are kept; made at the first write.
    limit_bytes
        From time to time the least recently used entries beyond this total are removed.
    """

    def __init__(self, folder: Path, limit_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._warned = False
        self._writes = 0

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None if there are none or they are damaged."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot be read: {error}")
            return None
        body = data[len(_MAGIC) + _DIGEST_BYTES :]
        if data != _seal(body):
            self._warn(f"had a damaged entry, {path.name}, which is made again")
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # the time of use, for trimming
        return body

    def put(self, key: str, body: bytes) -> None:
        """Store `body` under `key`; a folder that cannot be written costs one warning."""
        path = self.path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_seal(body))
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)
            self._warn(f"cannot be written: {error}")
            return
        self._writes += 1
        if self._writes % _WRITES_BETWEEN_TRIMS == 0:
            self.trim()

    def info(self) -> CacheInfo:
        """How much the cache holds."""
        sizes = [size for _, size, _ in self._files()]
        return CacheInfo(self.folder, len(sizes), sum(sizes))

    def clear(self) -> int:
        """Remove every entry; the number of files removed."""
        removed = 0
        for _, _, path in self._files():
            with suppress(OSError):
                path.unlink()
                removed += 1
        return removed

    def trim(self) -> int:
        """Remove the least recently used entries beyond the limit; the number removed."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        removed = 0
        for _, size, path in files:
            if total <= self.limit_bytes:
                break
            with suppress(OSError):
                path.unlink()
                removed += 1
            total -= size
        return removed

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self.folder.glob("??/*"):
            with suppress(OSError):  # another process may have removed it
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _warn(self, what: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"flambeau's cache {self.folder} {what}. Kernels are compiled without it; set "
            "FLAMBEAU_CACHE_DIR to a folder that can be written.",
            RuntimeWarning,
            stacklevel=4,
        )


def _seal(body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(body).digest() + body
