# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled ahead: an archive in the package that spares its users the compiler.

A release wheel brings it, a source tree has none. ``python -m flambeau.kernels`` writes it: the
programs of `pack_list` run on a virtual GPU, and every kernel that they need is compiled for each
architecture. No GPU is needed for that. An entry is found by everything that its code depends on
but the compiler's version, so a change of any source makes it void.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ARCHITECTURES", "FILE", "build", "find", "record"]

FILE = "pack.zip"
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# (source, expression, options) of every kernel asked for, in order, while a list is being made.
recorded: dict[tuple[str, str, tuple[str, ...]], None] | None = None


def _key(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _archive() -> zipfile.ZipFile | None:
    import zipfile

    place = importlib.resources.files("flambeau.kernels") / FILE
    return zipfile.ZipFile(str(place)) if place.is_file() else None


def find(parts: Sequence[str]) -> bytes | None:
    """The entry of a kernel, or None.

    Parameters
    ----------
    parts
        What the code depends on: kind, arguments, expression, source, headers.
    """
    archive = _archive()
    if archive is None:
        return None
    try:
        return archive.read(_key(parts))
    except KeyError:
        return None


def record(programs: Sequence[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Run programs on a virtual GPU; the kernels that they asked for.

    A program that has run before in this process asks for nothing: kernels stay loaded.
    """
    global recorded
    import flambeau as torch

    recorded = {}
    try:
        for program in programs:
            exec(program, {"torch": torch})
        torch.cuda.synchronize()
        return list(recorded)
    finally:
        recorded = None


def build(
    target: Path,
    kernels: Sequence[tuple[str, str, tuple[str, ...]]],
    architectures: Sequence[str] = ARCHITECTURES,
    jobs: int = 1,
) -> int:
    """Compile kernels for architectures into an archive.

    Parameters
    ----------
    target
        The file to write.
    kernels
        As `record` gives them.
    architectures
        Such as ``"sm_90"``.
    jobs
        How many compile at a time.

    Returns
    -------
    int
        How many entries it has.

    Raises
    ------
    CompilationError, MissingExtraError
        A kernel cannot be compiled, or the compiler is missing.
    """
    import zipfile
    from concurrent.futures import ThreadPoolExecutor

    from flambeau.kernels.compile import compile_for_pack

    def compiled(item: tuple[tuple[str, str, tuple[str, ...]], str]) -> tuple[list[str], bytes]:
        (source, expression, options), arch = item
        return compile_for_pack(source, expression, options, arch)

    work = [(kernel, arch) for kernel in kernels for arch in architectures]
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ThreadPoolExecutor(jobs) as pool,
    ):
        for parts, entry in pool.map(compiled, work):
            archive.writestr(_key(parts), entry)
    return len(work)
