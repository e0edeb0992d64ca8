# SPDX-License-Identifier: Apache-2.0
"""The disk cache keeps its promises when entries, folders and processes misbehave."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING

import pytest

from flambeau.kernels.cache import DiskCache, cache_folder

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ab" + "0" * 62


def test_stores_and_finds(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "kernels")
    assert cache.get(KEY) is None
    cache.put(KEY, b"code\0more")
    assert cache.get(KEY) == b"code\0more"
    assert DiskCache(tmp_path / "kernels").get(KEY) == b"code\0more"
    assert cache.info().entries == 1
    assert cache.clear() == 1
    assert cache.get(KEY) is None


def test_empty_body(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"")
    assert cache.get(KEY) == b""


@pytest.mark.parametrize("keep", [0, 1, 20, 60, -1])
def test_truncated_entry_is_a_miss_with_one_warning(tmp_path: Path, keep: int) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"some code, long enough to be cut")
    path = cache.path(KEY)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.warns(RuntimeWarning, match="damaged entry"):
        assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_flipped_byte_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"x" * 100)
    path = cache.path(KEY)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert cache.get(KEY) is None


def test_unwritable_folder_warns_once_and_goes_on(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    cache = DiskCache(blocker / "kernels")
    with pytest.warns(RuntimeWarning, match="FLAMBEAU_CACHE_DIR"):
        cache.put(KEY, b"code")
    cache.put(KEY, b"code")  # a second warning would be an error


def test_read_only_folder_still_serves_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskCache(tmp_path).put(KEY, b"code")

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    # What a read-only folder answers; root would be let through by the real one.
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    cache = DiskCache(tmp_path)
    assert cache.get(KEY) == b"code"
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        cache.put("cd" + "0" * 62, b"other")
    assert cache.get(KEY) == b"code"


def test_no_temporary_files_stay(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    for number in range(20):
        cache.put(f"{number:02d}" + "0" * 62, b"x")
    assert not list(tmp_path.rglob(".new-*"))


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit_bytes=500)
    keys = [f"{number:02d}" + "0" * 62 for number in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, b"x" * 150)
        os.utime(cache.path(key), (1000 + age, 1000 + age))
    cache.get(keys[0])  # a use now
    assert cache.trim() == 2
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    assert cache.get(keys[3]) is not None


def _hammer(folder: str, seed: int) -> None:
    from pathlib import Path

    cache = DiskCache(Path(folder))
    for round_ in range(60):
        key = f"{round_ % 5:02d}" + "0" * 62
        expected = bytes([round_ % 5]) * 5000
        found = cache.get(key)
        assert found in {None, expected}
        cache.put(key, expected)


def test_many_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_hammer, args=(str(tmp_path), n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", "/one")
    assert str(cache_folder()) == "/one"
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert str(cache_folder()) == "/two/flambeau"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/three")
    assert str(cache_folder()) == "/three/.cache/flambeau"
