# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on flambeau's tensors, devices and streams, with no PyTorch installed.

Importing this module makes flambeau Triton's active driver; `deactivate` undoes that. Kernels
then take tensors as they are, launch on this thread's current stream, and are captured in graphs
like any other work; autotuning measures with flambeau's events. Triton's versions 3.6 and 3.9 are
known to work::

    import flambeau as torch
    import flambeau.interop.triton
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

    x = torch.ones(1000, device="cuda")
    double[(triton.cdiv(1000, 256),)](x, 1000, BLOCK=256)

Triton compiles for what the device's driver takes: machine code by its own ptxas, or, on virtual
GPUs, PTX for compute capability 8.0. Not offered: clusters (``num_ctas > 1``), cooperative
launches, and tensor descriptors that use the TMA unit.
"""

from __future__ import annotations

import functools
import math
import re
import struct
import time
from typing import TYPE_CHECKING, Any

import triton
from triton import backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import _allocation

import flambeau
from flambeau import cuda
from flambeau.cuda._compiled_kernel import NEEDS_CONFIGURATION, _CudaKernel, _OnDevices
from flambeau.runtime import _function, _state
from flambeau.runtime._stream import ExternalStream, current_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flambeau.driver.contract import CodeTarget

__all__ = ["FlambeauDriver", "activate", "benchmark", "deactivate"]

WARP = 32


def _target() -> CodeTarget:
    """What to compile for the current device."""
    from flambeau import driver

    index = cuda.current_device()
    return driver.current().code_target(index)


# -- compiling -------------------------------------------------------------------------------------


class _Backend(CUDABackend):  # type: ignore[misc]
    """Triton's compiler for NVIDIA GPUs, which ends with PTX where that is what devices take."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self._ends_with_ptx = _target().kind == "ptx"
        if self._ends_with_ptx:
            self.binary_ext = "ptx"

    def add_stages(self, stages: dict[str, Any], *more: Any) -> None:
        super().add_stages(stages, *more)
        if self._ends_with_ptx:
            del stages["cubin"]

    @functools.lru_cache  # noqa: B019 - as its base class does; backends are few and live on
    def hash(self) -> str:
        return f"{super().hash()}-{self.binary_ext}"


# -- launching -------------------------------------------------------------------------------------


def _bytes_of_bfloat16(value: float) -> bytes:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if not math.isnan(value):  # round to nearest even
        bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.pack("<H", (bits >> 16) & 0xFFFF)


def _address(value: Any) -> Any:
    return 0 if value is None else value


def _bytes_of_int(size: int) -> Callable[[Any], bytes]:
    mask = (1 << 8 * size) - 1
    return lambda value: (int(value) & mask).to_bytes(size, "little")


# By Triton's name of a parameter's type: the letter in a launch signature, and the conversion.
_PARAMETERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{
        f"{sign}{bits}": ("B", _bytes_of_int(max(1, bits // 8)))
        for sign in "iu"
        for bits in (1, 8, 16)
    },
    "i32": ("i", int),
    "u32": ("I", int),
    "i64": ("q", int),
    "u64": ("Q", int),
    "fp16": ("B", lambda value: struct.pack("<e", value)),
    "bf16": ("B", _bytes_of_bfloat16),
    "fp32": ("f", float),
    "f32": ("f", float),
    "fp64": ("d", float),
}


def _parameter(of: str) -> tuple[str, Callable[[Any], Any]]:
    if of.startswith("*"):
        return ("P", _address)
    found = _PARAMETERS.get(of)
    if found is None:
        raise NotImplementedError(
            f"flambeau does not pass Triton parameters of type {of!r}; it passes pointers, tensor "
            f"descriptors without TMA, and {', '.join(_PARAMETERS)}"
        )
    return found


def _descriptor_types(of: str) -> list[str]:
    """The parameters that a tensor descriptor becomes where there is no TMA unit."""
    match = re.match(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]", of)
    assert match is not None, of
    ndim = match.group(2).count(",") + 1
    flags = 2 if _ROUNDS_TF32 else 1
    return [
        f"*{match.group(1)}",
        *["i64"] * (2 * ndim),
        *["i1"] * flags,
        *["i32"] * ndim,
        *["i64"] * ndim,
    ]


def _descriptor_values(value: Any) -> list[Any]:
    flags = [value.padding == "nan"]
    if _ROUNDS_TF32:
        flags.append(value.round_f32_to_tf32)
    return [value.base, *value.shape, *value.strides, *flags, *value.shape, *value.strides]


_ROUNDS_TF32 = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7)


def _flat_types(types: Iterable[Any]) -> list[str]:
    """The types of the parameters that the kernel has, without constants."""
    flat: list[str] = []
    for of in types:
        if isinstance(of, tuple):
            flat += _flat_types(of)
        elif of.startswith("tensordesc"):
            flat += _descriptor_types(of)
        elif of != "constexpr":
            flat.append(of)
    return flat


def _flat_values(types: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for of, value in zip(types, values, strict=False):
        if isinstance(of, tuple):
            flat += _flat_values(of, value)
        elif of.startswith("tensordesc"):
            flat += _descriptor_values(value)
        elif of != "constexpr":
            flat.append(value)
    return flat


class _Launcher:
    """Launches one compiled kernel; Triton makes it with the kernel's source and metadata."""

    def __init__(self, src: Any, metadata: Any) -> None:
        for option, why in (
            (getattr(metadata, "num_ctas", 1) > 1, "num_ctas > 1, which takes clusters"),
            (metadata.launch_cooperative_grid, "launch_cooperative_grid"),
            (getattr(metadata, "tensordesc_meta", None), "tensor descriptors by TMA"),
        ):
            if option:
                raise NotImplementedError(f"flambeau does not launch Triton kernels with {why}")
        self._types = list(src.signature.values())
        parameters = [_parameter(of) for of in _flat_types(self._types)]
        self._letters = "".join(letter for letter, _ in parameters)
        self._conversions = [convert for _, convert in parameters]
        self._threads = WARP * metadata.num_warps
        self._shared = metadata.shared
        self._scratch_sizes = (
            getattr(metadata, "global_scratch_size", 0) or 0,
            getattr(metadata, "profile_scratch_size", 0) or 0,
        )

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: _CudaKernel,
        kernel_metadata: Any,
        launch_metadata: Any,
        enter_hook: Any,
        exit_hook: Any,
        *arguments: Any,
    ) -> None:
        device = _state.current_device()
        if current_stream(device).cuda_stream != stream:
            with cuda.stream(ExternalStream(stream)):
                self(
                    grid_x, grid_y, grid_z, stream, function, kernel_metadata, launch_metadata,
                    enter_hook, exit_hook, *arguments,
                )  # fmt: skip
            return
        if enter_hook is not None:
            enter_hook(launch_metadata)
        values = [
            convert(value)
            for convert, value in zip(
                self._conversions, _flat_values(self._types, arguments), strict=True
            )
        ]
        loaded = function._on(device)
        # What is left are pointers to memory that the kernel uses for itself.
        hidden = len(loaded.sizes) - len(values)
        grid = (grid_x, grid_y, grid_z)
        scratch = [
            self._scratch(size * grid_x * grid_y * grid_z, stream)
            for size in self._scratch_sizes[:hidden]
        ]
        launch = loaded.launcher(self._letters + "P" * hidden)
        launch(device, grid, self._threads, self._shared, *values, *scratch)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    @staticmethod
    def _scratch(size: int, stream: int) -> Any:
        """Memory from the allocator that the program set in Triton, else from flambeau's."""
        if size == 0:
            return 0
        allocate = _allocation._allocator.get()
        if not isinstance(allocate, _allocation.NullAllocator):
            return allocate(size, 128, stream)
        return flambeau.zeros(size, dtype=flambeau.uint8, device="cuda")


class _Utilities:
    """What Triton asks a driver about devices and code."""

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        found = cuda.get_device_properties(device)
        return {
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": found.warp_size,
            "sm_clock_rate": found.clock_rate,
            "mem_clock_rate": found.memory_clock_rate,
            "mem_bus_width": found.memory_bus_width,
        }

    @staticmethod
    def load_binary(
        name: str, image: bytes | str, shared: int, device: int
    ) -> tuple[object, _CudaKernel, int, int, int]:
        """The module, the kernel, its registers and spills for a thread, and its most threads."""
        code = image.encode() if isinstance(image, str) else image
        module = _OnDevices(lambda _device: code)
        kernel = _CudaKernel(name, module)
        if shared >= NEEDS_CONFIGURATION:
            kernel.set_shared_memory_config(shared)
        function = kernel._on(device).function
        ask = _function.get_attribute
        return (
            module,
            kernel,
            ask(function, _function.REGISTERS),
            ask(function, _function.LOCAL_BYTES) // 4,
            ask(function, _function.MAX_THREADS_PER_BLOCK),
        )

    @staticmethod
    def unload_module(module: object) -> None:
        """The code stays loaded: work that uses it may not be done."""


# -- the driver ------------------------------------------------------------------------------------


class FlambeauDriver(DriverBase):  # type: ignore[misc]
    """Triton's driver interface, answered by `flambeau.cuda`."""

    launcher_cls = _Launcher

    def __init__(self) -> None:
        super().__init__()
        self.utils = _Utilities()

    @classmethod
    def is_active(cls) -> bool:
        """Whether there is a GPU."""
        return cuda.is_available()

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The C++ type of a parameter."""
        letter, _ = _parameter(ty)
        bits = ty.lstrip("iufbp")
        if letter == "P":
            return "CUdeviceptr"
        if letter in "fd" or ty in {"fp16", "bf16"}:
            return "double"
        return f"{'u' if ty[0] == 'u' else ''}int{max(8, int(bits))}_t"

    def get_current_device(self) -> int:
        """The index of the current device."""
        return cuda.current_device()

    def set_current_device(self, device: int) -> None:
        """Make a device current."""
        cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        """The handle of this thread's current stream of a device."""
        return current_stream(device).cuda_stream

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """The compute capability to compile for."""
        number = int(re.sub(r"\D", "", _target().arch))
        return divmod(number, 10)

    def get_current_target(self) -> Any:
        """What Triton compiles for on the current device."""
        major, minor = self.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, WARP)

    def get_active_torch_device(self) -> Any:
        """The current device, as tensors name it."""
        return flambeau.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """The module with events and synchronisation."""
        return cuda

    def get_benchmarker(self) -> Any:
        """What autotuning measures with: `benchmark`."""
        return benchmark

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory that fills the device's cache when it is written."""
        size = 2 * cuda.get_device_properties(self.get_current_device()).L2_cache_size
        return flambeau.empty(max(1, size // 4), dtype=flambeau.int32, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """Write that memory, so that what was in the device's cache is not there any more."""
        cache.zero_()


def benchmark(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Measure on the device how long a function's work takes, with a cold cache, in milliseconds.

    As ``triton.testing.do_bench``, and bounded by the host's clock as well, which matters where
    devices run slower than their own clock says.

    Parameters
    ----------
    fn
        What gives work to the current stream.
    warmup, rep
        Milliseconds to run before measuring, and to measure; at least one and three runs.
    grad_to_none
        Tensors whose gradient is dropped before each run.
    quantiles
        Which quantiles to return, instead of what `return_mode` says.
    return_mode
        ``"mean"``, ``"median"``, ``"min"``, ``"max"`` or ``"all"``.
    """
    from triton.testing import _summarize_statistics

    driver = triton.runtime.driver.active
    cache = driver.get_empty_cache_for_benchmark()
    fn()
    cuda.synchronize()
    times: list[float] = []
    for budget, least in ((warmup, 1), (rep, 3)):
        times = []
        began = time.monotonic()
        while len(times) < least or max(sum(times), 1e3 * (time.monotonic() - began)) < budget:
            for tensor in grad_to_none or ():
                tensor.grad = None
            driver.clear_cache(cache)
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            fn()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    return _summarize_statistics(times, quantiles, return_mode)


_before: list[Any] = []


def activate() -> None:
    """Make flambeau what Triton compiles for and launches with; importing this module does."""
    if not _before:
        _before.append(backends.backends["nvidia"])
    backends.backends["nvidia"] = backends.Backend(_Backend, FlambeauDriver)
    triton.runtime.driver.set_active(FlambeauDriver())


def deactivate() -> None:
    """Give Triton back the driver and the compiler that it finds by itself."""
    if _before:
        backends.backends["nvidia"] = _before.pop()
        triton.runtime.driver._active = None


activate()
