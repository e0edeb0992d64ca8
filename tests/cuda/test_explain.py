# SPDX-License-Identifier: Apache-2.0
"""Reasons and remedies, on machines made of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from flambeau import driver
from flambeau.cuda import _availability, _explain
from flambeau.driver.errors import DriverNotFoundError, MissingExtraError
from flambeau.kernels import compile as kernel_compiler
from support import needs_two, run_script

if TYPE_CHECKING:
    from pathlib import Path

NO_LIBRARY = DriverNotFoundError("Found no NVIDIA driver on your system.")


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def with_module(root: Path, version: str) -> None:
    write(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
    )


def reasons(root: Path, environ: dict[str, str] | None = None) -> str:
    machine = _explain.Machine(root, environ or {})
    return "\n".join(" -> ".join(finding) for finding in _explain._findings(machine))


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NO_LIBRARY

    monkeypatch.setattr(driver, "current", refuse)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> object:
    """A driver that is there and starts with a status."""
    monkeypatch.setattr(_availability, "is_available", lambda: False)

    def answer(status: int) -> None:
        monkeypatch.setattr(_availability, "probe", lambda: _availability.Probe(0, status))

    return answer


def test_nothing_is_wrong_on_a_machine_that_works() -> None:
    assert torch.cuda.explain() == []


@pytest.mark.usefixtures("no_driver")
class TestWithoutADriver:
    def test_no_gpu(self, tmp_path: Path) -> None:
        text = reasons(tmp_path)
        assert "No NVIDIA GPU was found" in text
        assert "FLAMBEAU_VIRTUAL=h200" in text

    def test_a_gpu_and_no_driver(self, tmp_path: Path) -> None:
        device = tmp_path / "sys/bus/pci/devices/0000:06:00.0"
        write(device / "vendor", "0x10de\n")
        write(device / "class", "0x030200\n")
        assert "has an NVIDIA GPU, but no NVIDIA driver is loaded" in reasons(tmp_path)

    def test_another_maker_s_display_is_no_gpu(self, tmp_path: Path) -> None:
        device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
        write(device / "vendor", "0x1002\n")
        write(device / "class", "0x030000\n")
        assert "No NVIDIA GPU was found" in reasons(tmp_path)

    @pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", None])
    def test_a_container_without_gpus(self, tmp_path: Path, mark: str | None) -> None:
        if mark:
            write(tmp_path / mark)
        text = reasons(tmp_path, {} if mark else {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
        assert "container was started without a GPU" in text
        assert "--gpus all" in text

    def test_an_old_driver(self, tmp_path: Path) -> None:
        with_module(tmp_path, "535.183.01")
        assert "version 535.183.01; flambeau needs 580 or newer" in reasons(tmp_path)

    def test_a_module_without_its_library(self, tmp_path: Path) -> None:
        with_module(tmp_path, "580.65.06")
        text = reasons(tmp_path)
        assert "kernel module 580.65.06 is loaded, but its library cannot be used" in text
        assert "no device node /dev/nvidia0" in text

    def test_nodes_that_the_user_may_not_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with_module(tmp_path, "580.65.06")
        for name in ("nvidia0", "nvidiactl"):
            write(tmp_path / "dev" / name)
        monkeypatch.setattr(os, "access", lambda path, mode: path.name != "nvidiactl")
        text = reasons(tmp_path)
        assert "may not open /dev/nvidiactl." in text
        assert "no device node" not in text


@needs_two
def test_everything_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,0")
    monkeypatch.setattr(_availability, "is_available", lambda: False)
    text = reasons(tmp_path)
    assert "CUDA_VISIBLE_DEVICES is '7,0', which shows none of the machine's 2 GPUs" in text
    assert "Unset it" in text


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (46, "exclusive mode"),
        (100, "MIG"),
        (802, "fabricmanager"),
        (803, "restart"),
        (999, "nvidia_uvm"),
        (304, "dmesg"),
    ],
)
def test_a_driver_that_refuses(
    refusing: object,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: int,
    remedy: str,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write(tmp_path / "dev/nvidia0")
    refusing(status)
    text = reasons(tmp_path)
    assert f"{status})" in text
    assert remedy in text


def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> None:
        raise MissingExtraError("pip install ...")

    monkeypatch.setattr(kernel_compiler, "supported_architectures", missing)
    assert "NVRTC was not found" in reasons(tmp_path)
    assert torch.cuda.get_arch_list() == []
    assert torch.cuda.get_gencode_flags() == ""


def test_a_virtual_machine_that_does_not_exist() -> None:
    run_script(
        """
        (finding,) = torch.cuda.explain()
        assert "FLAMBEAU_VIRTUAL is 'abacus:2'" in finding.cause
        assert "h200:2" in finding.remedy
        """,
        {"FLAMBEAU_VIRTUAL": "abacus:2"},
    )


def test_the_whole_way_without_a_gpu() -> None:
    done = run_script(
        """
        assert not torch.cuda.is_available()
        findings = torch.cuda.explain()
        assert findings and all(f.cause and f.remedy for f in findings)
        assert not torch.cuda.is_initialized()
        """,
        {"FLAMBEAU_VIRTUAL": "h200:2", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert done.stderr == ""
