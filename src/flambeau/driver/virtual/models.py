# SPDX-License-Identifier: Apache-2.0
"""Device models: the figures of public data sheets that virtual GPUs are made from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "DeviceModel"]

_GB = 10**9
_GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """What a virtual GPU is like.

    Parameters
    ----------
    name
        What ``get_device_name`` answers; say that it is virtual.
    capability
        Compute capability, such as ``(9, 0)``.
    multiprocessors
        Streaming multiprocessors.
    memory_bytes
        Device memory. Host memory is taken only as it is touched.
    memory_bandwidth
        Bytes per second.
    clock_khz
        The multiprocessors' clock.
    memory_clock_khz, memory_bus_bits
        Of the memory interface; reported, not used for timing.
    l2_bytes
        Level-2 cache.
    arithmetic_rate
        Single-precision operations per second.
    matrix_rate
        Half-precision operations per second in dense matrix products.
    host_bandwidth
        Bytes per second and direction between host and device.
    peer_bandwidth
        Bytes per second and direction between two devices.
    nvlink
        Whether devices are linked directly.
    threads_per_multiprocessor, blocks_per_multiprocessor
        Resident at most.
    shared_per_multiprocessor, shared_per_block_optin
        Shared memory in bytes.
    context_bytes
        Device memory that an active context takes for itself.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    memory_bandwidth: float
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    l2_bytes: int
    arithmetic_rate: float
    matrix_rate: float
    host_bandwidth: float = 55e9
    peer_bandwidth: float = 25e9
    nvlink: bool = False
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    shared_per_multiprocessor: int = 167936
    shared_per_block_optin: int = 166912
    context_bytes: int = 512 * _MIB

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a device model needs a name")
        if self.memory_bytes < self.context_bytes + 4 * _MIB:
            raise ValueError(
                f"memory_bytes={self.memory_bytes} leaves nothing beside the context's "
                f"{self.context_bytes} bytes (context_bytes) and two granules of 2 MiB"
            )
        for figure in ("multiprocessors", "memory_bandwidth", "clock_khz", "arithmetic_rate"):
            if getattr(self, figure) <= 0:
                raise ValueError(f"{figure} must be above 0, got {getattr(self, figure)}")


def _hopper(name: str, memory_bytes: int, bandwidth: float, memory_clock_khz: int) -> DeviceModel:
    return DeviceModel(
        name=name,
        capability=(9, 0),
        multiprocessors=132,
        memory_bytes=memory_bytes,
        memory_bandwidth=bandwidth,
        clock_khz=1_980_000,
        memory_clock_khz=memory_clock_khz,
        memory_bus_bits=6016 if "H200" in name else 5120,
        l2_bytes=60 * _MIB if "H200" in name else 50 * _MIB,
        arithmetic_rate=67e12,
        matrix_rate=989e12,
        peer_bandwidth=450e9,
        nvlink=True,
        shared_per_multiprocessor=233472,
        shared_per_block_optin=232448,
    )


def _ada(name: str, multiprocessors: int, clock_khz: int, **figures: float) -> DeviceModel:
    return DeviceModel(
        name=name,
        capability=(8, 9),
        multiprocessors=multiprocessors,
        memory_bytes=int(figures["memory_gib"] * _GIB),
        memory_bandwidth=figures["bandwidth"],
        clock_khz=clock_khz,
        memory_clock_khz=int(figures["memory_clock_khz"]),
        memory_bus_bits=int(figures["bus"]),
        l2_bytes=int(figures["l2_mib"]) * _MIB,
        arithmetic_rate=figures["fp32"],
        matrix_rate=figures["fp16"],
        host_bandwidth=26e9,
        peer_bandwidth=20e9,
        threads_per_multiprocessor=1536,
        blocks_per_multiprocessor=24,
        shared_per_multiprocessor=102400,
        shared_per_block_optin=101376,
    )


MODELS: dict[str, DeviceModel] = {
    "h200": _hopper("Virtual NVIDIA H200", 150_109_880_320, 4.8e12, 3_201_000),
    "h100": _hopper("Virtual NVIDIA H100 80GB HBM3", 85_017_493_504, 3.35e12, 2_619_000),
    "b200": DeviceModel(
        name="Virtual NVIDIA B200",
        capability=(10, 0),
        multiprocessors=148,
        memory_bytes=192_265_846_784,
        memory_bandwidth=8e12,
        clock_khz=1_965_000,
        memory_clock_khz=3_996_000,
        memory_bus_bits=8192,
        l2_bytes=126 * _MIB,
        arithmetic_rate=75e12,
        matrix_rate=2250e12,
        peer_bandwidth=900e9,
        nvlink=True,
        shared_per_multiprocessor=233472,
        shared_per_block_optin=232448,
    ),
    "a100": DeviceModel(
        name="Virtual NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        multiprocessors=108,
        memory_bytes=85_174_321_152,
        memory_bandwidth=2.039e12,
        clock_khz=1_410_000,
        memory_clock_khz=1_593_000,
        memory_bus_bits=5120,
        l2_bytes=40 * _MIB,
        arithmetic_rate=19.5e12,
        matrix_rate=312e12,
        host_bandwidth=26e9,
        peer_bandwidth=300e9,
        nvlink=True,
    ),
    "a10": DeviceModel(
        name="Virtual NVIDIA A10",
        capability=(8, 6),
        multiprocessors=72,
        memory_bytes=23_600_103_424,
        memory_bandwidth=600 * _GB,
        clock_khz=1_695_000,
        memory_clock_khz=6_251_000,
        memory_bus_bits=384,
        l2_bytes=6 * _MIB,
        arithmetic_rate=31.2e12,
        matrix_rate=125e12,
        host_bandwidth=26e9,
        peer_bandwidth=20e9,
        threads_per_multiprocessor=1536,
        blocks_per_multiprocessor=16,
        shared_per_multiprocessor=102400,
        shared_per_block_optin=101376,
    ),
    "l40s": _ada(
        "Virtual NVIDIA L40S", 142, 2_520_000, memory_gib=44.39, bandwidth=864 * _GB,
        memory_clock_khz=9_001_000, bus=384, l2_mib=96, fp32=91.6e12, fp16=362e12,
    ),
    "l4": _ada(
        "Virtual NVIDIA L4", 58, 2_040_000, memory_gib=22.05, bandwidth=300 * _GB,
        memory_clock_khz=6_251_000, bus=192, l2_mib=48, fp32=30.3e12, fp16=121e12,
    ),
    "t4": DeviceModel(
        name="Virtual Tesla T4",
        capability=(7, 5),
        multiprocessors=40,
        memory_bytes=15_642_329_088,
        memory_bandwidth=320 * _GB,
        clock_khz=1_590_000,
        memory_clock_khz=5_001_000,
        memory_bus_bits=256,
        l2_bytes=4 * _MIB,
        arithmetic_rate=8.1e12,
        matrix_rate=65e12,
        host_bandwidth=13e9,
        peer_bandwidth=10e9,
        threads_per_multiprocessor=1024,
        blocks_per_multiprocessor=16,
        shared_per_multiprocessor=65536,
        shared_per_block_optin=65536,
    ),
}  # fmt: skip
