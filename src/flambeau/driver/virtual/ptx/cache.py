# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels on disk. A damaged entry costs a compilation and nothing more."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["Cache", "cache_folder", "key"]

_MAGIC = b"flambeau-ptx-1\n\0"
_DIGEST = hashlib.sha256().digest_size
_LENGTH = struct.Struct("<Q")


def cache_folder() -> Path:
    """``$FLAMBEAU_CACHE_DIR``, else ``flambeau`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("FLAMBEAU_CACHE_DIR")
    if own:
        return Path(own)
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "flambeau"


def key(*parts: str) -> str:
    """A file name for what the parts determine."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(_LENGTH.pack(len(data)) + data)
    return digest.hexdigest()


class Cache:
    """Entries of a JSON record and a blob, each one file.

    Parameters
    ----------
    folder
        Made when something is stored. Any number of processes may share it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    def load(self, name: str) -> tuple[Any, bytes] | None:
        """The record and blob stored under a name, or None if there are no good ones."""
        try:
            data = self._path(name).read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST + _LENGTH.size
        if len(data) < head or not data.startswith(_MAGIC):
            return None
        body = data[len(_MAGIC) + _DIGEST :]
        if hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
            return None
        (size,) = _LENGTH.unpack_from(body)
        end = _LENGTH.size + size
        return json.loads(body[_LENGTH.size : end]), body[end:]

    def store(self, name: str, record: Any, blob: bytes) -> None:
        """Store an entry; a folder that cannot be written is left alone."""
        text = json.dumps(record, separators=(",", ":")).encode()
        body = _LENGTH.pack(len(text)) + text + blob
        path = self._path(name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(body).digest() + body)
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
