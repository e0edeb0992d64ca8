# SPDX-License-Identifier: Apache-2.0
"""What a device is: its name, its size and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.runtime import _cuda_device

__all__ = ["read_properties"]


# The numbers are those of CUdevice_attribute.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block": 8,
    "warp_size": 10,
    "clock_rate": 13,
    "multi_processor_count": 16,
    "is_integrated": 18,
    "pci_bus_id": 33,
    "pci_device_id": 34,
    "memory_clock_rate": 36,
    "memory_bus_width": 37,
    "L2_cache_size": 38,
    "max_threads_per_multi_processor": 39,
    "pci_domain_id": 50,
    "major": 75,
    "minor": 76,
    "shared_memory_per_multiprocessor": 81,
    "regs_per_multiprocessor": 82,
    "is_multi_gpu_board": 84,
    "shared_memory_per_block_optin": 97,
}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _CudaDeviceProperties:
    """What `get_device_properties` answers with (``cuDeviceGetAttribute`` and its kin).

    Parameters
    ----------
    name
        The device's name.
    major, minor
        Compute capability.
    total_memory
        Bytes of device memory.
    multi_processor_count
        Streaming multiprocessors.
    warp_size
        Threads of a warp.
    max_threads_per_block, max_threads_per_multi_processor
        Limits on threads.
    regs_per_multiprocessor
        32-bit registers of a multiprocessor.
    shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor
        Bytes of shared memory: by default, after asking for more, and in all.
    L2_cache_size
        Bytes.
    clock_rate, memory_clock_rate
        Kilohertz.
    memory_bus_width
        Bits.
    is_integrated, is_multi_gpu_board
        1 or 0.
    pci_bus_id, pci_device_id, pci_domain_id
        Where the device sits.
    uuid
        36 characters, without ``GPU-``.
    gcnArchName
        The name again; it is of use on other makers' devices only.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    is_integrated: int
    is_multi_gpu_board: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    uuid: str
    gcnArchName: str  # noqa: N815 - torch's name

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


_known: dict[tuple[int, int], _CudaDeviceProperties] = {}  # by epoch and device


def read_properties(index: int) -> _CudaDeviceProperties:
    """What the driver says about a device, asked once; CUDA is initialised, the device exists."""
    key = (_cuda_device.epoch(), index)
    known = _known.get(key)
    if known is None:
        known = _known[key] = _ask_driver(index)
    return known


def _ask_driver(index: int) -> _CudaDeviceProperties:
    import uuid

    name = _cuda_device.name(index)
    return _CudaDeviceProperties(
        name=name,
        gcnArchName=name,
        total_memory=_cuda_device.total_memory(index),
        uuid=str(uuid.UUID(bytes=_cuda_device.uuid(index))),
        **{field: _cuda_device.attribute(index, which) for field, which in _ATTRIBUTES.items()},
    )
