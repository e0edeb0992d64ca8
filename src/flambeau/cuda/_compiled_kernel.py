# SPDX-License-Identifier: Apache-2.0
"""Kernels from a user's own CUDA C++: compiled by NVRTC, called with tensors and numbers."""

from __future__ import annotations

import operator
import re
import struct
import sys
from typing import TYPE_CHECKING, Any

from flambeau.cuda import streams
from flambeau.driver.errors import AcceleratorError, CompilationError, MissingExtraError
from flambeau.runtime import _function, _launch, _state, lazy_init
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["_CudaKernel", "_CudaModule", "_compile_kernel", "_cuda_load_module", "_nvrtc_compile"]

NEEDS_CONFIGURATION = 48 * 1024
"""Bytes of shared memory from which on a launch needs `set_shared_memory_config` first."""

_INTEGER_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_INCLUDE = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
_OWN_HEADER = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)
_READS_FILES = ("-I", "--include-path", "-include", "--pre-include", "--use-pch", "--pch")
_NAME_LOOKUP = "__nv_name_map"  # the compiler's own file, with the names that were asked for
_NOT_FOUND = 500


class _Loaded:
    """A kernel on one device: its handle and the sizes of its parameters in bytes."""

    __slots__ = ("function", "launchers", "sizes")

    def __init__(self, function: int, sizes: tuple[int, ...]) -> None:
        self.function = function
        self.sizes = sizes
        self.launchers: dict[str, _launch.Kernel] = {}

    def launcher(self, signature: str) -> _launch.Kernel:
        found = self.launchers.get(signature)
        if found is None:
            found = self.launchers[signature] = _launch.Kernel(self.function, signature)
        return found


class _CudaKernel:
    """A compiled CUDA kernel, called with a grid, a block and its arguments.

    Programs get one from `flambeau.cuda._compile_kernel` or from a loaded module.

    Parameters
    ----------
    func
        The kernel's name in the image.
    module
        What loads the image on a device; called once for each device that the kernel runs on.
    name
        What messages call the kernel; None is its name in the image.
    """

    def __init__(self, func: str, module: Callable[[int], _Image], name: str | None = None) -> None:
        self.func = func
        self.module = module
        self._name = name or func
        self._loaded: dict[int, _Loaded] = {}
        self._epoch = _epoch
        self._max_shared_mem_bytes = 0

    def __repr__(self) -> str:
        return f"<CUDA kernel {self._name}>"

    def __call__(
        self,
        grid: int | Sequence[int] = (1, 1, 1),
        block: int | Sequence[int] = (1, 1, 1),
        args: Sequence[Any] | None = None,
        shared_mem: int = 0,
        stream: Any | None = None,
    ) -> None:
        """Launch the kernel (``cuLaunchKernel``); it runs asynchronously.

        Parameters
        ----------
        grid
            How many blocks: up to three numbers.
        block
            How many threads a block has: up to three numbers.
        args
            One for each parameter. A CUDA tensor, or a CPU tensor in pinned memory, is passed as
            the pointer to its first element, whatever its strides. An int is passed as 32 bits, a
            float as a double; where the kernel's parameter has another size, in that size. An
            instance of a ``ctypes`` type or structure is passed as it is.
        shared_mem
            Bytes of dynamic shared memory for each block. From 48 KiB on the kernel needs
            `set_shared_memory_config` first.
        stream
            Where to launch, a stream or an object with ``__cuda_stream__``; None is the current
            stream.

        Raises
        ------
        ValueError
            A tensor is neither on a CUDA device nor in pinned memory.
        TypeError
            An argument is of another type, or the arguments are not as many, or not as large, as
            the kernel's parameters.
        RuntimeError
            The shared memory was not configured.
        AcceleratorError
            The driver refused, or work that ran earlier failed.
        """
        if stream is not None:
            with streams.stream(stream):  # which makes its device current too
                self(grid, block, args, shared_mem)
            return
        self._check_shared_memory(shared_mem)
        device = _state.current_device()
        loaded = self._on(device)
        signature, values = _pack(self._name, loaded.sizes, args or ())
        launcher = loaded.launcher(signature)
        launcher(device, _extents(grid, "grid"), _extents(block, "block"), shared_mem, *values)

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Allow launches with up to this much dynamic shared memory (``cuFuncSetAttribute``).

        Parameters
        ----------
        shared_mem_bytes
            Bytes for each block.

        Raises
        ------
        RuntimeError
            The device has less.
        """
        if shared_mem_bytes >= NEEDS_CONFIGURATION:
            from flambeau.cuda import get_device_properties

            limit = get_device_properties().shared_memory_per_block_optin
            if shared_mem_bytes > limit:
                raise RuntimeError(
                    f"{shared_mem_bytes} bytes of shared memory were requested for a block of "
                    f"{self._name}, which exceeds device limit ({limit} bytes). Use smaller blocks "
                    "or less shared memory for each."
                )
            self._on(_state.current_device())
            for loaded in self._loaded.values():
                _allow_shared_memory(loaded, shared_mem_bytes)
        self._max_shared_mem_bytes = shared_mem_bytes

    def _check_shared_memory(self, wanted: int) -> None:
        allowed = self._max_shared_mem_bytes
        if wanted >= NEEDS_CONFIGURATION and wanted > allowed:
            state = f"only {allowed} bytes configured" if allowed else "not configured"
            raise RuntimeError(
                f"a launch of {self._name} asks for {wanted} bytes of shared memory for a block, "
                f"but {state}. From {NEEDS_CONFIGURATION} bytes on, call "
                f"kernel.set_shared_memory_config({wanted}) once before."
            )

    def _on(self, device: int) -> _Loaded:
        """The kernel as loaded on a device."""
        if self._epoch != _epoch:
            self._loaded, self._epoch = {}, _epoch
        found = self._loaded.get(device)
        if found is None:
            found = self._loaded[device] = self.module(device).kernel(self.func)
            if self._max_shared_mem_bytes >= NEEDS_CONFIGURATION:
                _allow_shared_memory(found, self._max_shared_mem_bytes)
        return found


class _CudaModule:
    """Loaded code; its kernels are its attributes.

    Parameters
    ----------
    module
        What makes the loaded image for a device.
    """

    def __init__(self, module: Callable[[int], _Image]) -> None:
        self._module = module
        self._kernels: dict[str, _CudaKernel] = {}

    def __getattr__(self, name: str) -> _CudaKernel:
        if name.startswith("_"):
            raise AttributeError(f"a CUDA module has no attribute {name!r}")
        found = self._kernels.get(name)
        if found is None:
            made = _CudaKernel(name, self._module)
            try:
                made._on(_state.current_device())
            except AcceleratorError as error:
                if error.error_code != _NOT_FOUND:
                    raise
                raise AttributeError(f"No kernel named {name!r} in this module: {error}") from error
            found = self._kernels[name] = made
        return found


class _Image:
    """Code loaded on a device."""

    def __init__(self, image: bytes, device: int) -> None:
        from flambeau import driver

        _function.use_context(device)
        self._device = device
        self._modules = driver.current().modules
        self._handle = self._modules.load(image, device)

    def kernel(self, name: str) -> _Loaded:
        _function.use_context(self._device)
        function = self._modules.function(self._handle, name)
        return _Loaded(function, self._modules.parameter_sizes(self._handle, name))


class _OnDevices:
    """Loads an image on the devices that ask for it, once on each."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make
        self._images: dict[int, _Image] = {}
        self._epoch = _epoch

    def __call__(self, device: int) -> _Image:
        if self._epoch != _epoch:
            self._images, self._epoch = {}, _epoch
        found = self._images.get(device)
        if found is None:
            found = self._images[device] = _Image(self._make(device), device)
        return found


_epoch = 0


def _forget_handles() -> None:
    global _epoch
    _epoch += 1


lazy_init.on_forget(_forget_handles)


def _compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
) -> _CudaKernel:
    """Compile CUDA C++ with NVRTC to a kernel that is called with tensors.

    CUDA's own headers, such as ``cuda_fp16.h``, can be included. On another device than the current
    one the kernel is compiled again when it is first launched there.

    Parameters
    ----------
    kernel_source
        CUDA C++ with at least one ``__global__`` function.
    kernel_name
        The kernel: a function's name, or a template expression such as ``"scale<float>"``.
    compute_capability
        What to compile for, such as ``"90"``; None is the current device's.
    cuda_include_dirs
        Folders with more headers.
    nvcc_options
        More options for the compiler, such as ``"--use_fast_math"``.

    Returns
    -------
    callable
        ``kernel(grid=(1, 1, 1), block=(1, 1, 1), args=None, shared_mem=0, stream=None)``.

    Raises
    ------
    RuntimeError
        The kernel does not compile; the message has the compiler's log.
    MissingExtraError
        The compiler, or the headers that the source includes, are not installed.

    Examples
    --------
    >>> import flambeau as torch
    >>> source = '''
    ... extern "C" __global__ void scale(const float* x, float* y, int n, double by) {
    ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = x[i] * by;
    ... }'''
    >>> scale = torch.cuda._compile_kernel(source, "scale")
    >>> x = torch.arange(4, dtype=torch.float32, device="cuda")
    >>> y = torch.empty_like(x)
    >>> scale(grid=(1, 1, 1), block=(32, 1, 1), args=[x, y, 4, 2.5])
    >>> y.tolist()
    [0.0, 2.5, 5.0, 7.5]
    """

    def compile_for(device: int) -> tuple[bytes, str]:
        return _compile(
            kernel_source, kernel_name, device, compute_capability, cuda_include_dirs, nvcc_options
        )

    device = _state.current_device()
    first, lowered = compile_for(device)
    images = _OnDevices(lambda other: first if other == device else compile_for(other)[0])
    kernel = _CudaKernel(lowered, images, kernel_name)
    kernel._on(device)
    return kernel


def _nvrtc_compile(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
    auto_pch: bool = False,
) -> tuple[bytes, str]:
    """Compile CUDA C++ for the current device without loading it.

    Parameters
    ----------
    kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options
        As for `_compile_kernel`.
    auto_pch
        Whether the compiler keeps precompiled headers.

    Returns
    -------
    image : bytes
        What `_cuda_load_module` takes: PTX or a cubin, whichever the device loads.
    name : str
        The kernel's name in the image.
    """
    options = [*(nvcc_options or ()), *(["--pch"] if auto_pch else [])]
    device = _state.current_device()
    return _compile(
        kernel_source, kernel_name, device, compute_capability, cuda_include_dirs, options
    )


def _cuda_load_module(
    ptx: str | bytes, kernel_names: Sequence[str] | None = None
) -> _CudaModule | dict[str, _CudaKernel]:
    """Load compiled code (``cuModuleLoadDataEx``).

    Parameters
    ----------
    ptx
        PTX, or a cubin as bytes.
    kernel_names
        Which kernels to find; None finds them when asked for.

    Returns
    -------
    module or dict
        An object whose attributes are the kernels, or, if names were given, the kernels by name.

    Raises
    ------
    AcceleratorError
        The driver refused the code, or it has no kernel of a name.
    """
    image = ptx.encode() if isinstance(ptx, str) else bytes(ptx)
    images = _OnDevices(lambda _device: image)
    device = _state.current_device()
    images(device)
    if not kernel_names:
        return _CudaModule(images)
    kernels = {name: _CudaKernel(name, images) for name in kernel_names}
    for kernel in kernels.values():
        kernel._on(device)
    return kernels


def _compile(
    source: str,
    name: str,
    device: int,
    capability: str | None,
    folders: Sequence[str] | None,
    more: Sequence[str] | None,
) -> tuple[bytes, str]:
    from flambeau.kernels.compile import compile_source

    _function.use_context(device)  # so that there is a device, whatever the compiler will say
    given = list(more or ())
    options = [*given, *(f"-I{folder}" for folder in folders or ())]
    if not {"-lineinfo", "--generate-line-info", "-G", "--device-debug"} & set(given):
        options.append("-lineinfo")  # a fault then names the line of the source
    reads_files = any(option.startswith(_READS_FILES) for option in options)
    if _INCLUDE.search(source):
        options += _header_options(optional=reads_files)
    if name.isidentifier():
        name = f"::{name}"  # asked for as an expression, it is found whatever its linkage
    try:
        return compile_source(
            source,
            name,
            device=device,
            options=options,
            arch=_architecture(capability),
            use_cache=not reads_files and not _OWN_HEADER.search(source),
        )
    except CompilationError as error:
        if not error.log.startswith(_NAME_LOOKUP):
            raise
        shown = name.removeprefix("::")
        raise CompilationError(
            f"Kernel compilation failed: the source compiles, but has no kernel {shown!r}. Give a "
            "__global__ function's name with its namespace, and a template's with its arguments."
            f"\n{error.log}",
            error.log,
        ) from error


def _architecture(capability: str | None) -> str | None:
    if capability is None:
        return None
    return str(capability).replace(".", "").removeprefix("sm_").removeprefix("compute_")


def _header_options(*, optional: bool) -> tuple[str, ...]:
    from flambeau.kernels.compile import include_options

    try:
        return include_options()
    except MissingExtraError:
        if optional:  # the caller's folders may have all that the source includes
            return ()
        raise


def _allow_shared_memory(loaded: _Loaded, size: int) -> None:
    attribute = _function.MAX_DYNAMIC_SHARED_BYTES
    _function.set_attribute(loaded.function, attribute, size)


def _extents(dims: int | Sequence[int], what: str) -> tuple[int, ...]:
    """One to three extents of a grid or a block."""
    if isinstance(dims, int):
        return (dims,)
    extents = tuple(operator.index(extent) for extent in dims)
    if not 1 <= len(extents) <= 3 or min(extents) < 0:
        raise ValueError(f"a {what} has one to three extents, none negative; got {dims!r}")
    return extents


def _pack(
    kernel: str, sizes: tuple[int, ...], arguments: Sequence[Any]
) -> tuple[str, list[int | bytes]]:
    """The signature for the launch and the values, each in the size of its parameter."""
    if len(arguments) != len(sizes):
        named = ", ".join(str(size) for size in sizes) or "none"
        raise TypeError(
            f"{kernel} takes {len(sizes)} arguments (of {named} bytes), got {len(arguments)}"
        )
    letters, values = [], []
    for position, (argument, size) in enumerate(zip(arguments, sizes, strict=True), 1):
        value = _value(argument, size)
        given = 8 if isinstance(value, int) else len(value)
        if given != size:
            raise TypeError(
                f"argument {position} of {kernel}, {_described(argument)}, has {given} bytes; "
                f"the kernel's parameter has {size}"
            )
        letters.append("P" if isinstance(value, int) else "B")
        values.append(value)
    return "".join(letters), values


def _value(argument: Any, size: int) -> int | bytes:
    """An address as an int, anything else as the bytes of a parameter of this size."""
    if isinstance(argument, Tensor):
        if not argument.is_cuda and not argument.is_pinned():
            raise ValueError(
                "All tensor arguments must be CUDA tensors or pinned CPU tensors; this one is in "
                "pageable memory. Use .cuda(), or .pin_memory()."
            )
        return argument.data_ptr()
    if isinstance(argument, int):
        return _integer(argument, size)
    if isinstance(argument, float):
        return struct.pack("<f" if size == 4 else "<d", argument)
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None and isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return bytes(argument)
    raise TypeError(
        f"Unsupported argument type: {type(argument)}; a kernel takes tensors, ints, floats and "
        "instances of ctypes types"
    )


def _integer(value: int, size: int) -> bytes:
    """An int in the size of its parameter, signed or unsigned; 32 bits for a struct."""
    width = size if size in _INTEGER_CODES else 4
    code = _INTEGER_CODES[width]
    if not -(1 << (8 * width - 1)) <= value < 1 << (8 * width):
        raise OverflowError(f"the kernel's parameter has {8 * width} bits, too few for {value}")
    return struct.pack("<" + (code if value < 1 << (8 * width - 1) else code.upper()), value)


def _described(argument: Any) -> str:
    return "a tensor's address" if isinstance(argument, Tensor) else f"the {argument!r}"
