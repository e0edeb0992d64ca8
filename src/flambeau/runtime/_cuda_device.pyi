# SPDX-License-Identifier: Apache-2.0
from types import TracebackType
from typing import Literal, TypeAlias, Union

from flambeau.runtime._device import device as _device_type

_Device: TypeAlias = Union[int, str, _device_type, "DeviceGuard", None]

def index_of(device: _Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The ordinal that a device argument means; -1 for the CPU if that is allowed.

    An int is passed through, negatives too. None and ``"cuda"`` mean the current device if
    `optional`, and then initialise CUDA.

    Raises
    ------
    ValueError
        A device of another type, or none where a number is needed.
    RuntimeError
        A string that is no device.
    TypeError
        Anything else, if `optional`.
    """

def current_device() -> int:
    """The calling thread's current device. Initialises CUDA."""

class DeviceGuard:
    """Context manager that makes a device current by its number."""

    idx: int
    prev_idx: int
    def __init__(self, index: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]: ...

class device(DeviceGuard):  # noqa: N801
    """Context manager that makes a device current, for the calling thread."""

    def __init__(self, device: _Device) -> None: ...

def count_devices() -> int:
    """How many devices the driver shows (``cuDeviceGetCount``). Starts the driver."""

def attribute(device: int, which: int) -> int:
    """A ``CUdevice_attribute`` by its number (``cuDeviceGetAttribute``)."""

def name(device: int) -> str:
    """``cuDeviceGetName``."""

def uuid(device: int) -> bytes:
    """The 16 bytes of ``cuDeviceGetUuid``."""

def total_memory(device: int) -> int:
    """Bytes of device memory (``cuDeviceTotalMem``)."""

def can_access_peer(device: int, peer: int) -> bool:
    """``cuDeviceCanAccessPeer``."""

def has_context(device: int) -> bool:
    """Whether the device's primary context is active (``cuDevicePrimaryCtxGetState``)."""

def device_total() -> int:
    """How many devices initialisation found; 0 before it."""

def epoch() -> int:
    """How often all handles became void, by a fork or another driver: what was asked is stale."""

def require_device(device: int) -> None:
    """Initialise CUDA, and raise error 101 unless there is such a device."""

def memory_info(device: int) -> tuple[int, int]:
    """Free and total bytes of a device (``cuMemGetInfo``)."""

def spin(cycles: int) -> None:
    """Keep the current stream busy for about this many clock cycles."""

def capture_status() -> int:
    """Of the current stream: 0 not capturing, 1 capturing, 2 the capture is invalid.

    A device without a context has no capture, and gets no context.
    """

def profiler_start() -> int:
    """The status of ``cuProfilerStart``."""

def profiler_stop() -> int:
    """The status of ``cuProfilerStop``."""

def host_register(pointer: int, size: int, flags: int) -> int:
    """The status of ``cuMemHostRegister``."""

def host_unregister(pointer: int) -> int:
    """The status of ``cuMemHostUnregister``."""

def stream_create(address: int) -> int:
    """Make a blocking stream, write its handle to `address`; the status."""

def stream_destroy(handle: int) -> int:
    """The status of ``cuStreamDestroy``."""
