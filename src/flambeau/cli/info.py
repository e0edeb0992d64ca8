# SPDX-License-Identifier: Apache-2.0
"""``flambeau info``: what flambeau finds here."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

import flambeau
from flambeau.cli.cache import caches
from flambeau.cli.tables import print_table
from flambeau.driver.errors import DriverNotFoundError, MissingExtraError

__all__ = ["devices", "libraries", "show"]

_PACKAGES = ("numpy", "ml-dtypes", "cuda-bindings", "cuda-pathfinder", "llvmlite")
_LIBRARIES = ("nvrtc", "nvJitLink", "cublasLt", "cusolver", "cufft", "nccl", "cufile")
_DRIVER_LIBRARIES = ("cuda", "nvml")


def show() -> None:
    """Print version, driver and devices, libraries and caches."""
    print(f"flambeau {flambeau.__version__} in {Path(flambeau.__file__).parent}")
    print(f"Python {platform.python_version()} ({sys.executable}), {platform.platform()}")
    _show_devices()
    print_table(("package or library", "version", "where"), libraries(), "What it builds on")
    kept = [c.info() for c in caches()]
    rows = [(str(i.folder), str(i.entries), f"{i.bytes / 2**20:.1f}") for i in kept]
    if rows:
        print_table(("cache", "entries", "MiB"), rows, "Compiled kernels")


def _show_devices() -> None:
    from flambeau import cuda, driver

    try:
        current = driver.current()
    except (DriverNotFoundError, MissingExtraError) as error:
        print(f"no CUDA device: {str(error).splitlines()[0]}\n`flambeau doctor` says what helps")
        return
    if not cuda.is_available():
        print(f"the {current.name} driver shows no device; `flambeau doctor` says why")
        return
    print(f"driver: {current.name}")
    print_table(("device", "name", "capability", "SMs", "memory GiB", "UUID"), devices(), "Devices")


def devices() -> list[tuple[str, ...]]:
    """One row for each visible device."""
    from flambeau import cuda

    rows: list[tuple[str, ...]] = []
    for index in range(cuda.device_count()):
        of = cuda.get_device_properties(index)
        rows.append(
            (
                f"cuda:{index}",
                of.name,
                f"{of.major}.{of.minor}",
                str(of.multi_processor_count),
                f"{of.total_memory / 2**30:.1f}",
                str(of.uuid),
            )
        )
    return rows


def libraries() -> list[tuple[str, str, str]]:
    """Name, version and place of what flambeau uses, or that it is not there."""
    return [*map(_package, _PACKAGES), *map(_library, (*_LIBRARIES, *_DRIVER_LIBRARIES))]


def _package(name: str) -> tuple[str, str, str]:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return name, "-", "not installed"
    return name, found.version, str(found.locate_file(""))


def _library(name: str) -> tuple[str, str, str]:
    from cuda import pathfinder

    try:
        loaded = pathfinder.load_nvidia_dynamic_lib(name)
    except pathfinder.DynamicLibNotFoundError:
        return f"lib{name}", "-", "not found"
    return f"lib{name}", _library_version(name), loaded.abs_path or "loaded"


def _library_version(name: str) -> str:
    if name != "nvrtc":
        return ""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"
