# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to PTX for the tests: NVRTC with its bundled headers, results kept on disk."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from cuda.bindings import nvrtc

OPTIONS = ("--gpu-architecture=compute_80", "-default-device", "--std=c++17")


def cache_folder() -> Path:
    root = os.environ.get("FLAMBEAU_TEST_CACHE")
    if root:
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flambeau-tests"


def checked(result: tuple) -> tuple:
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC failed: {status!r}")
    return tuple(values)


@cache
def version() -> str:
    major, minor = checked(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


@cache
def header_folder() -> Path:
    folder = cache_folder() / f"headers-{version()}"
    folder.mkdir(parents=True, exist_ok=True)
    status, error = nvrtc.nvrtcInstallBundledHeaders(str(folder).encode(), 0)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"the compiler's headers cannot be installed: {error!r}")
    return folder


def run_compiler(source: str, options: tuple[str, ...], name: str) -> str:
    (program,) = checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    encoded = [option.encode() for option in options]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            (size,) = checked(nvrtc.nvrtcGetProgramLogSize(program))
            log = b" " * size
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise RuntimeError(log.decode())
        (size,) = checked(nvrtc.nvrtcGetPTXSize(program))
        ptx = b" " * size
        checked(nvrtc.nvrtcGetPTX(program, ptx))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0 ").decode()


def compile_ptx(source: str, *extra: str, name: str = "kernel.cu") -> str:
    """PTX of CUDA C++ source; compiled once per source, options and compiler version."""
    parts = (version(), name, source, *OPTIONS, *extra)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    file = cache_folder() / f"{key}.ptx"
    if file.exists():
        return file.read_text()
    options = (*OPTIONS, *extra)
    if "#include" in source:
        folder = header_folder()
        options += (f"-I{folder}", f"-I{folder / 'cccl'}")
    ptx = run_compiler(source, options, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(ptx)
    temporary.replace(file)
    return ptx
