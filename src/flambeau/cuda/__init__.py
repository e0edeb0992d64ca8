# SPDX-License-Identifier: Apache-2.0
"""CUDA devices: streams, events, memory and questions, under the names of ``torch.cuda``.

Importing this module does nothing to a device. CUDA is initialised at the first use; see
`flambeau.cuda.init`. `flambeau.cuda.explain` says why CUDA is not available.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.cuda import memory, profiler, random, sparse, streams
from flambeau.cuda._architecture import (
    get_arch_list,
    get_gencode_flags,
    is_bf16_supported,
    is_tf32_supported,
)
from flambeau.cuda._availability import (
    _device_count_nvml as _device_count_nvml,
)
from flambeau.cuda._availability import (
    device_count,
    is_available,
    remember_visible_devices,
)
from flambeau.cuda._device import (
    _exchange_device as _exchange_device,
)
from flambeau.cuda._device import (
    _maybe_exchange_device as _maybe_exchange_device,
)
from flambeau.cuda._device import (
    _primary_context_devices as _primary_context_devices,
)
from flambeau.cuda._device import (
    _sleep as _sleep,
)
from flambeau.cuda._device import (
    can_device_access_peer,
    current_device,
    device,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    ipc_collect,
    set_device,
    synchronize,
)
from flambeau.cuda._graph_launch import is_graph_launch_enabled, set_graph_launch
from flambeau.cuda._lazy import (
    DeferredCudaCallError,
    _lazy_call,
    init,
    is_initialized,
)
from flambeau.cuda._lazy import (
    _is_compiled as _is_compiled,
)
from flambeau.cuda._lazy import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from flambeau.cuda._lazy import (
    _lazy_init as _lazy_init,
)
from flambeau.cuda._management import (
    clock_rate,
    device_memory_used,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from flambeau.cuda._memory_pool import graph_pool_handle
from flambeau.cuda._runtime_api import CudaError, check_error, cudart, cudaStatus
from flambeau.cuda._sync_debug import expect_no_sync, get_sync_debug_mode, set_sync_debug_mode
from flambeau.cuda._utils import _get_device_index as _get_device_index
from flambeau.cuda._visible_devices import _parse_visible_devices as _parse_visible_devices
from flambeau.cuda.memory import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_explain,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from flambeau.cuda.random import (
    _get_rng_state_offset as _get_rng_state_offset,
)
from flambeau.cuda.random import (
    _set_rng_state_offset as _set_rng_state_offset,
)
from flambeau.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from flambeau.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from flambeau.cuda.streams import (
    _set_stream_by_id as _set_stream_by_id,
)
from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.runtime._cuda_device import DeviceGuard as _DeviceGuard  # noqa: F401 - torch's name

if TYPE_CHECKING:
    from flambeau.cuda import _gpu_trace as _gpu_trace
    from flambeau.cuda import _sanitizer as _sanitizer
    from flambeau.cuda import (
        comm,
        gds,
        graph_annotations,
        graphs,
        green_contexts,
        jiterator,
        nccl,
        nvtx,
    )
    from flambeau.cuda._compiled_kernel import _compile_kernel as _compile_kernel
    from flambeau.cuda._explain import explain
    from flambeau.cuda._graphed_callables import make_graphed_callables
    from flambeau.cuda._properties import _CudaDeviceProperties as _CudaDeviceProperties
    from flambeau.cuda.graphs import CUDAGraph, export_dot, export_graph_data, graph
    from flambeau.cuda.green_contexts import GreenContext

__all__ = [
    "AcceleratorError",
    "CUDAGraph",
    "CUDAPluggableAllocator",
    "CudaError",
    "DeferredCudaCallError",
    "Event",
    "ExternalStream",
    "GreenContext",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "change_current_allocator",
    "check_error",
    "clock_rate",
    "comm",
    "cudaStatus",
    "cudart",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "expect_no_sync",
    "explain",
    "export_dot",
    "export_graph_data",
    "gds",
    "get_allocator_backend",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_annotations",
    "graph_pool_handle",
    "graphs",
    "green_contexts",
    "has_half",
    "has_magma",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_graph_launch_enabled",
    "is_initialized",
    "is_tf32_supported",
    "jiterator",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_explain",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "nccl",
    "nvtx",
    "power_draw",
    "profiler",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_graph_launch",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "sparse",
    "stream",
    "streams",
    "synchronize",
    "temperature",
    "use_mem_pool",
    "utilization",
]

has_half: bool = True
"""Whether kernels compute with float16: always."""
has_magma: bool = False
"""Whether the MAGMA library is used: never."""

# Rarely needed, and slower to import than all the rest.
_LATER = {
    "_CudaDeviceProperties": "flambeau.cuda._properties",
    "_compile_kernel": "flambeau.cuda._compiled_kernel",
    "_use_uvm": "flambeau.cuda._memory_pool",
    "current_blas_handle": "flambeau.cuda._library_handles",
    "current_solver_handle": "flambeau.cuda._library_handles",
    "explain": "flambeau.cuda._explain",
    "CUDAGraph": "flambeau.cuda.graphs",
    "export_dot": "flambeau.cuda.graphs",
    "export_graph_data": "flambeau.cuda.graphs",
    "graph": "flambeau.cuda.graphs",
    "make_graphed_callables": "flambeau.cuda._graphed_callables",
    "GreenContext": "flambeau.cuda.green_contexts",
}
_LATER_MODULES = (
    "tunable",
    "amp",
    "jiterator",
    "nvtx",
    "comm",
    "gds",
    "green_contexts",
    "nccl",
    "_gpu_trace",
    "_sanitizer",
    "graph_annotations",
    "graphs",
    "_graph_annotations",
)

_lazy_call(remember_visible_devices)


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # changes when CUDA is initialised
        return random.default_generators
    import importlib

    if name in _LATER_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.endswith(("Tensor", "Storage")):
        from flambeau.ops.legacy_types import legacy_type

        return legacy_type(name, True)
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'flambeau.cuda' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    if name in __all__:
        value.__module__ = __name__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_LATER_MODULES, "default_generators"})


def _claim_public_names() -> None:
    """Have public functions and classes say that they are this module's."""
    for name in __all__:
        value = globals().get(name)
        if getattr(value, "__module__", "").startswith((f"{__name__}._", "flambeau.runtime.")):
            value.__module__ = __name__


_claim_public_names()
