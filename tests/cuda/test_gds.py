# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import os
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from conftest import REAL
from flambeau.cuda import _gds_bounce, gds
from flambeau.cuda.gds import GdsFile, gds_deregister_buffer, gds_register_buffer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gpu")

READ_WRITE = os.O_CREAT | os.O_RDWR


def numbers(count: int) -> Any:
    return torch.arange(count, dtype=torch.int32, device="cuda")


@pytest.mark.parametrize("count", [1, 1000, 1024, 1 << 18])
def test_a_storage_goes_to_a_file_and_back(tmp_path: Path, count: int) -> None:
    x, y = numbers(count), torch.empty(count, dtype=torch.int32, device="cuda")
    name = tmp_path / "x.bin"
    with GdsFile(name, READ_WRITE) as file:
        file.save_storage(x.untyped_storage())
        file.load_storage(y.untyped_storage())
    assert torch.equal(x, y)
    assert np.array_equal(np.fromfile(name, np.int32), np.arange(count))


@pytest.mark.parametrize("offset", [4096, 100])
def test_offsets_need_not_be_aligned(tmp_path: Path, offset: int) -> None:
    x, y = numbers(2048), torch.zeros(2048, dtype=torch.int32, device="cuda")
    name = tmp_path / "x.bin"
    with GdsFile(str(name), READ_WRITE) as file:
        file.save_storage(x.untyped_storage(), offset)
        file.load_storage(y.untyped_storage(), offset=offset)
    assert torch.equal(x, y)
    assert name.read_bytes()[offset : offset + 8] == b"\0\0\0\0\1\0\0\0"


def test_queued_work_comes_first(tmp_path: Path) -> None:
    with GdsFile(tmp_path / "x.bin", READ_WRITE) as file:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(1_000_000)
            x = torch.full((1024,), 7, dtype=torch.int32, device="cuda")
            file.save_storage(x.untyped_storage())
        assert (tmp_path / "x.bin").read_bytes()[:4] == b"\7\0\0\0"


def test_a_file_that_ends_too_soon(tmp_path: Path) -> None:
    name = tmp_path / "x.bin"
    name.write_bytes(b"x" * 5000)
    y = torch.zeros(4096, dtype=torch.int32, device="cuda")
    with GdsFile(name, os.O_RDONLY) as file, pytest.raises(RuntimeError) as caught:
        file.load_storage(y.untyped_storage(), 4096)
    assert "cuFileRead failed: " in str(caught.value)
    assert "904 of 16384 bytes" in str(caught.value)
    assert "the file has 5000 bytes" in str(caught.value)


def test_a_file_that_is_not_open_for_writing(tmp_path: Path) -> None:
    name = tmp_path / "x.bin"
    name.write_bytes(b"x" * 4096)
    with (
        GdsFile(name, os.O_RDONLY) as file,
        pytest.raises(RuntimeError, match="cuFileWrite failed"),
    ):
        file.save_storage(numbers(1024).untyped_storage())
    assert name.read_bytes() == b"x" * 4096


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GdsFile(tmp_path / "nothing", os.O_RDONLY)
    gc.collect()  # no finalizer complains


def test_registering_twice_and_not_at_all(tmp_path: Path) -> None:
    x = numbers(1024)
    file = GdsFile(tmp_path / "x.bin", READ_WRITE)
    assert file.fd >= 0
    assert file.flags == READ_WRITE
    for kind in (AssertionError, RuntimeError):
        with pytest.raises(kind, match="already registered"):
            file.register_handle()
    file.deregister_handle()
    assert file.handle is None
    for use in (
        file.deregister_handle,
        lambda: file.load_storage(x.untyped_storage()),
        lambda: file.save_storage(x.untyped_storage()),
    ):
        with pytest.raises(AssertionError, match="not registered"):
            use()
    file.register_handle()
    file.save_storage(x.untyped_storage())
    file.close()
    file.close()
    assert file.fd == -1
    with pytest.raises(ValueError, match="is closed"):
        file.save_storage(x.untyped_storage())


def test_a_forgotten_file_is_closed(tmp_path: Path) -> None:
    descriptor = GdsFile(tmp_path / "x.bin", READ_WRITE).fd
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_is_no_storage_on_a_gpu(tmp_path: Path) -> None:
    host = torch.ones(4).untyped_storage()
    with GdsFile(tmp_path / "x.bin", READ_WRITE) as file:
        for call in (file.load_storage, file.save_storage, gds_register_buffer):
            with pytest.raises(ValueError, match="on a CUDA device"):
                call(host)
            with pytest.raises(TypeError, match="expected a storage"):
                call(numbers(4))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="negative"):
            file.load_storage(numbers(4).untyped_storage(), -1)
        with pytest.raises(TypeError, match="integer"):
            file.load_storage(numbers(4).untyped_storage(), 0.5)  # type: ignore[arg-type]
        file.save_storage(torch.empty(0, device="cuda").untyped_storage())


def test_a_typed_storage_will_do(tmp_path: Path) -> None:
    x, y = numbers(64), torch.zeros(64, dtype=torch.int32, device="cuda")
    with GdsFile(tmp_path / "x.bin", READ_WRITE) as file:
        file.save_storage(x.storage())
        file.load_storage(y.storage())
    assert torch.equal(x, y)


@pytest.mark.skipif(REAL, reason="needs cuFile, which not every machine has")
def test_buffers_are_registered_once() -> None:
    storage = numbers(1024).untyped_storage()
    assert gds.is_available()
    gds_register_buffer(storage)
    with pytest.raises(RuntimeError, match="cuFileBufRegister failed"):
        gds_register_buffer(storage)
    gds_deregister_buffer(storage)
    with pytest.raises(RuntimeError, match=r"cuFileBufDeregister failed: .*lookup failure"):
        gds_deregister_buffer(storage)


def test_where_cufile_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau import driver

    monkeypatch.setattr(driver.current().files, "trouble", lambda: "libcufile was not found")
    assert not gds.is_available()
    x = numbers(1 << 14)
    with pytest.raises(RuntimeError, match="is not supported on this platform: libcufile"):
        gds_register_buffer(x.untyped_storage())
    y = torch.zeros(1 << 14, dtype=torch.int32, device="cuda")
    with GdsFile(tmp_path / "x.bin", READ_WRITE) as file:
        assert file.path == "bounce"
        for offset in (0, 12):
            file.save_storage(x.untyped_storage(), offset)
            file.load_storage(y.untyped_storage(), offset)
            assert torch.equal(x, y)
        with pytest.raises(RuntimeError, match="65524 of 65536 bytes"):
            file.load_storage(y.untyped_storage(), 24)
        with pytest.raises(RuntimeError, match="61452 of 65536 bytes"):
            file.load_storage(y.untyped_storage(), 4096)
        with pytest.raises(RuntimeError, match="0 of 65536 bytes"):
            file.load_storage(y.untyped_storage(), 1 << 20)


def test_the_bounce_through_pinned_memory_in_several_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gds_bounce, "PIECE", 8192)
    x, y = numbers(10_000), torch.zeros(10_000, dtype=torch.int32, device="cuda")
    descriptor = os.open(tmp_path / "x.bin", READ_WRITE)
    try:
        assert _gds_bounce.move(descriptor, x.untyped_storage(), 0, writes=True) == 40_000
        assert _gds_bounce.move(descriptor, y.untyped_storage(), 0, writes=False) == 40_000
    finally:
        os.close(descriptor)
    torch.cuda.synchronize()
    assert torch.equal(x, y)


@pytest.mark.skipif(REAL, reason="asserts times of the device model")
def test_transfers_take_time_on_the_modelled_clock(tmp_path: Path) -> None:
    x = torch.zeros(7_000_000, dtype=torch.uint8, device="cuda")
    with GdsFile(tmp_path / "x.bin", READ_WRITE) as file:
        assert file.path == "direct"
        torch.cuda.synchronize()
        start = torch.virtual.clock()
        file.save_storage(x.untyped_storage())
        assert 1_000_000 <= torch.virtual.clock() - start < 1_050_000  # 7 GB a second


def test_a_large_file_is_byte_for_byte_the_memory(tmp_path: Path) -> None:
    count = (1 << 30 if REAL else 1 << 24) // 4
    x = torch.randint(-(1 << 31), (1 << 31) - 1, (count,), dtype=torch.int32, device="cuda")
    y = torch.zeros_like(x)
    path = tmp_path / "large.bin"
    with GdsFile(str(path), os.O_CREAT | os.O_RDWR) as file:
        file.save_storage(x.untyped_storage())
        file.load_storage(y.untyped_storage())
    assert torch.equal(x, y)
    with path.open("rb") as written:
        found = 0
        while piece := written.read(1 << 24):
            found = zlib.crc32(piece, found)
    assert found == zlib.crc32(x.cpu().numpy())
