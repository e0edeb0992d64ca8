# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to loaded kernels: NVRTC, the cache on disk, and the modules of this process.

Nothing here runs before a kernel is needed, and NVRTC itself is loaded only when the cache on disk
has no answer.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import re
import threading
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import CompilationError, MissingExtraError
from flambeau.kernels import pack
from flambeau.kernels.cache import CacheInfo, DiskCache, cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "cache_info",
    "clear_cache",
    "compile_source",
    "get_function",
    "include_options",
    "read_source",
    "supported_architectures",
]

_COMMON_OPTIONS = ("--std=c++17", "-default-device")
_COMPILER_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_GENERATED = re.compile(r"FLAMBEAU_KERNEL\(\w+\)\s+kernel\b")
_TITLE = re.compile(r"^// (\w+)$|^typedef (\w+)<.*> Op;$", re.MULTILINE)
_lock = threading.RLock()
_modules: dict[tuple[Any, ...], tuple[int, str]] = {}
_functions: dict[tuple[Any, ...], int] = {}


@functools.cache
def read_source(name: str) -> str:
    """The text of one of flambeau's own CUDA sources, such as ``"elementwise.cuh"``."""
    return (importlib.resources.files("flambeau.kernels") / name).read_text("utf-8")


@functools.cache
def _own_headers() -> dict[str, str]:
    folder = importlib.resources.files("flambeau.kernels")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".cuh"))
    return {name: read_source(name) for name in names}


@functools.cache
def _included(name: str) -> frozenset[str]:
    """The names of one of our headers and of those it includes."""
    found = {name}
    for inner in _INCLUDE.findall(_own_headers()[name]):
        found |= _included(inner)
    return frozenset(found)


def _headers_of(source: str) -> list[tuple[str, str]]:
    """The headers of ours that a source needs, by name; others must not change its key."""
    needed: set[str] = set()
    for name in _INCLUDE.findall(source):
        if name in _own_headers():
            needed |= _included(name)
    return [(name, _own_headers()[name]) for name in sorted(needed)]


@functools.cache
def _disk() -> DiskCache:
    return DiskCache(cache_folder() / "kernels")


def cache_info() -> CacheInfo:
    """Where compiled kernels are kept on disk, how many and how large.

    Returns
    -------
    CacheInfo
        Folder, number of entries and bytes.
    """
    return _disk().info()


def clear_cache() -> int:
    """Remove all compiled kernels from disk; the number of entries removed."""
    return _disk().clear()


def compile_source(
    source: str,
    name: str,
    *,
    device: int,
    options: Sequence[str] = (),
    arch: str | None = None,
    use_cache: bool = True,
) -> tuple[bytes, str]:
    """Compile CUDA C++ for a device, through the cache on disk.

    flambeau's own ``.cuh`` files can be included by name.

    Parameters
    ----------
    source
        CUDA C++.
    name
        The kernel: a function's name, or a template expression such as ``"scale<float>"``.
    device
        The ordinal of the device that shall run it.
    options
        More compiler options, such as those of `include_options`. One that is also among
        flambeau's own, such as another ``--std``, takes its place.
    arch
        The architecture instead of the device's own, as a number such as ``"90"``.
    use_cache
        False for a source whose result depends on more than itself: on a user's own headers.

    Returns
    -------
    image : bytes
        A cubin or PTX, whatever the driver loads for this device.
    lowered : str
        The kernel's name in the image.

    Raises
    ------
    CompilationError
        The compiler refused the source; ``.log`` says why.
    MissingExtraError
        The compiler, NVRTC, is not installed.
    """
    from flambeau import driver

    target = driver.current().code_target(device)
    expression = _expression(source, name)
    own = target.arch if arch is None else f"{target.arch.partition('_')[0]}_{arch}"
    if pack.recorded is not None:
        pack.recorded.setdefault((source, expression, tuple(options)))
    if target.kind == "ptx" and not {"-lineinfo", "--generate-line-info"} & set(options):
        options = (*options, "-lineinfo")  # so that faults and checks name lines of the source
    own_options = (*_with_common_options(options), *_renaming(source, target.kind))
    arguments = (f"--gpu-architecture={own}", *own_options)
    name = _symbol(source, name, target.kind)
    if not use_cache:
        image, lowered_name = _compile(source, expression, target.kind, arguments)
        return image, lowered_name or name
    parts = [target.kind, *arguments, expression, source]
    for header, text in _headers_of(source):
        parts += [header, text]
    if (packed := pack.find(parts)) is not None:
        lowered, _, image = packed.partition(b"\0")
        return image, lowered.decode() or name
    key = hashlib.sha256("\0".join([_compiler_version(), *parts]).encode()).hexdigest()
    if (entry := _disk().get(key)) is not None:
        lowered, _, image = entry.partition(b"\0")
        return image, lowered.decode() or name
    image, lowered_name = _compile(source, expression, target.kind, arguments)
    _disk().put(key, lowered_name.encode() + b"\0" + image)
    return image, lowered_name or name


def _expression(source: str, name: str) -> str:
    """What the compiler is asked to name: nothing for kernels of C's linkage, which have theirs."""
    in_c = "FLAMBEAU_KERNEL" in source or 'extern "C"' in source
    return "" if in_c and name.isidentifier() else name


def compile_for_pack(
    source: str, expression: str, options: Sequence[str], arch: str
) -> tuple[list[str], bytes]:
    """What makes a kernel's key in the pack, and its entry: machine code for an architecture."""
    own_options = (*_with_common_options(options), *_renaming(source, "cubin"))
    arguments = (f"--gpu-architecture={arch}", *own_options)
    parts = ["cubin", *arguments, expression, source]
    for header, text in _headers_of(source):
        parts += [header, text]
    image, lowered = _compile(source, expression, "cubin", arguments)
    return parts, lowered.encode() + b"\0" + image


def _symbol(source: str, name: str, kind: str) -> str:
    """What a kernel of C's linkage is called in the code.

    Generated sources call theirs ``kernel``. In machine code it has the name of what it does, which
    is all that CUPTI and other tools know of a graph's kernels.
    """
    if kind != "cubin" or name != "kernel" or not _GENERATED.search(source):
        return name
    title = _title(source)
    return f"{title.lower()}_kernel" if title else name


def _renaming(source: str, kind: str) -> tuple[str, ...]:
    """The compiler option that makes `_symbol` true."""
    symbol = _symbol(source, "kernel", kind)
    return () if symbol == "kernel" else (f"-Dkernel={symbol}",)


def _with_common_options(options: Sequence[str]) -> tuple[str, ...]:
    """These options after flambeau's own, of which the compiler takes none twice."""
    given = {option.lstrip("-").partition("=")[0] for option in options}
    long_names = {"default-device": "device-as-default-execution-space"}
    kept = []
    for option in _COMMON_OPTIONS:
        name = option.lstrip("-").partition("=")[0]
        if not {name, long_names.get(name, name)} & given:
            kept.append(option)
    return (*kept, *options)


def get_function(source: str, name: str, device: int, options: Sequence[str] = ()) -> int:
    """The loaded kernel for a device, compiled at most once per process.

    Parameters
    ----------
    source, name, device, options
        As for `compile_source`. Kernels declared ``extern "C"`` in one source share one module.

    Returns
    -------
    int
        The ``CUfunction``.

    Raises
    ------
    CompilationError, MissingExtraError
        As `compile_source`.
    AcceleratorError
        The driver refused the code.
    """
    key = (device, source, name, tuple(options))
    function = _functions.get(key)
    if function is not None:
        return function
    from flambeau import driver
    from flambeau.runtime import _function

    with _lock:
        if (function := _functions.get(key)) is not None:
            return function
        modules = driver.current().modules
        _function.use_context(device)  # code is loaded into the context that is current
        expression = _expression(source, name)
        module_key = (device, source, expression, tuple(options))
        loaded = _modules.get(module_key)
        if loaded is None:
            image, lowered = compile_source(source, name, device=device, options=options)
            loaded = _modules[module_key] = (modules.load(image, device), lowered)
        module, lowered = loaded
        if not expression:
            lowered = _symbol(source, name, driver.current().code_target(device).kind)
        function = modules.function(module, lowered)
        _functions[key] = function
        return function


def forget_functions() -> None:
    """Forget every loaded kernel, for a driver that starts afresh."""
    with _lock:
        _modules.clear()
        _functions.clear()


def include_options() -> tuple[str, ...]:
    """Compiler options that make CUDA's own headers available (fp16, bf16, CUB, libcu++).

    An NVRTC from 13.5 on brings them; they are unpacked once into the cache folder. With an older
    one they are looked for in the wheels ``nvidia-cuda-runtime`` and ``nvidia-cuda-cccl`` and in a
    toolkit.

    Returns
    -------
    tuple of str
        ``-I…`` options.

    Raises
    ------
    MissingExtraError
        No headers can be found.
    """
    folders = _bundled_headers() or _installed_headers()
    if not folders:
        raise MissingExtraError(
            "This kernel includes CUDA headers, and none were found: this NVRTC is older than 13.5 "
            "and brings none. Either `pip install -U nvidia-cuda-nvrtc`, or "
            "`pip install nvidia-cuda-runtime nvidia-cuda-cccl`, or install a CUDA toolkit."
        )
    return tuple(f"-I{folder}" for folder in folders)


@functools.cache
def _bundled_headers() -> tuple[str, ...]:
    nvrtc = _nvrtc()
    install = getattr(nvrtc, "nvrtcInstallBundledHeaders", None)
    if install is None or _nvrtc_version() < (13, 5):
        return ()
    folder = cache_folder() / "headers" / "{}.{}".format(*_nvrtc_version())
    folder.parent.mkdir(parents=True, exist_ok=True)
    skip_if_exists = 1
    status, log = install(str(folder).encode(), skip_if_exists)
    if int(status) != 0:
        raise CompilationError(
            f"NVRTC could not unpack its headers into {folder}: {_text(log)}. Set "
            "FLAMBEAU_CACHE_DIR to a folder that can be written.",
            _text(log),
        )
    return str(folder), str(folder / "cccl")


def _installed_headers() -> tuple[str, ...]:
    from cuda import pathfinder

    find = getattr(pathfinder, "find_nvidia_header_directory", None)
    found = [find(library) for library in ("cudart", "cccl")] if find else []
    return tuple(str(folder) for folder in found if folder)


@functools.cache
def _compiler_version() -> str:
    """The compiler's version without loading it, if a wheel provides it."""
    for wheel in _COMPILER_WHEELS:
        try:
            return importlib.metadata.version(wheel)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "{}.{}".format(*_nvrtc_version())


@functools.cache
def _nvrtc_version() -> tuple[int, int]:
    status, major, minor = _nvrtc().nvrtcVersion()
    _require(status, "nvrtcVersion")
    return int(major), int(minor)


@functools.cache
def _nvrtc() -> Any:
    """cuda-bindings' module, with the library behind it loaded."""
    advice = (
        "A CUDA kernel has to be compiled and the compiler, NVRTC, is not installed. "
        '`pip install "flambeau[virtual]"` brings it for virtual GPUs, '
        '`pip install "flambeau[cu13]"` for NVIDIA GPUs; a CUDA 13 toolkit has it too.'
    )
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # the library is missing: type differs by version
        raise MissingExtraError(f"{advice} ({error.__class__.__name__}: {error})") from error
    return nvrtc


def supported_architectures() -> tuple[int, ...]:
    """The architectures that the compiler can make machine code for, such as ``(75, 80, 90)``.

    Raises
    ------
    MissingExtraError
        The compiler, NVRTC, is not installed.
    """
    status, numbers = _nvrtc().nvrtcGetSupportedArchs()
    _require(status, "nvrtcGetSupportedArchs")
    return tuple(int(number) for number in numbers)


def _compile(
    source: str, expression: str, kind: str, arguments: Sequence[str]
) -> tuple[bytes, str]:
    nvrtc = _nvrtc()
    headers = _headers_of(source)
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        b"kernel.cu",
        len(headers),
        [text.encode() for _, text in headers],
        [name.encode() for name, _ in headers],
    )
    _require(status, "nvrtcCreateProgram")
    try:
        if expression:
            (status,) = nvrtc.nvrtcAddNameExpression(program, expression.encode())
            _require(status, f"nvrtcAddNameExpression({expression!r})")
        options = [argument.encode() for argument in arguments]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(status) != 0:
            raise _refused(status, _log(program), source, arguments)
        image = _fetch(nvrtc, program, "CUBIN" if kind == "cubin" else "PTX")
        lowered = ""
        if expression:
            status, raw = nvrtc.nvrtcGetLoweredName(program, expression.encode())
            _require(status, "nvrtcGetLoweredName")
            lowered = _text(raw)
        return image, lowered
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _fetch(nvrtc: Any, program: Any, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _require(status, f"nvrtcGet{what}Size")
    buffer = b" " * size
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _require(status, f"nvrtcGet{what}")
    image: bytes = buffer.rstrip(b"\0") if what == "PTX" else buffer
    return image


def _log(program: Any) -> str:
    nvrtc = _nvrtc()
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    if int(status) != 0:
        return ""
    buffer = b" " * size
    nvrtc.nvrtcGetProgramLog(program, buffer)
    return _text(buffer)


def _text(raw: bytes | str | None) -> str:
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else raw.rstrip(b"\0").decode(errors="replace").rstrip()


def _refused(status: Any, log: str, source: str, arguments: Sequence[str]) -> CompilationError:
    numbered = "\n".join(f"{n:4d} | {line}" for n, line in enumerate(source.splitlines(), 1))
    return CompilationError(
        f"Kernel compilation failed ({getattr(status, 'name', status)}).\n{log}\n\n"
        f"Options: {' '.join(arguments)}\nSource (kernel.cu):\n{numbered}",
        log,
    )


def _require(status: Any, call: str) -> None:
    if int(status) != 0:
        raise CompilationError(f"{call} failed: {getattr(status, 'name', status)}")


def title_of(function: int) -> str | None:
    """What a loaded kernel of ours does, for people who read traces: ``"add"``, ``"reduce Sum"``.

    Sources that are made from tables call all their kernels the same; this tells them apart.
    """
    for (_, source, _, _), handle in _functions.items():
        if handle == function:
            return _title(source)
    return None


def _title(source: str) -> str | None:
    found = _TITLE.search(source)
    return (found[1] or found[2]).strip("_") if found else None
