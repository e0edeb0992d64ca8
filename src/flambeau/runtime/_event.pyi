# SPDX-License-Identifier: Apache-2.0
import ctypes
from typing import Any, Self

from flambeau.runtime._device import device as device_type
from flambeau.runtime._stream import BaseStream

class BaseEvent:
    def __new__(
        cls,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Self: ...
    @property
    def device(self) -> device_type | None: ...
    @property
    def event_id(self) -> int: ...
    @property
    def cuda_event(self) -> int: ...
    @property
    def _as_parameter_(self) -> ctypes.c_void_p: ...
    def record(self, stream: BaseStream | Any | None = None) -> None: ...
    def wait(self, stream: BaseStream | Any | None = None) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, other: BaseEvent) -> float: ...
    def ipc_handle(self) -> bytes: ...
    @classmethod
    def from_ipc_handle(cls, device: Any, ipc_handle: bytes) -> BaseEvent: ...

class Event(BaseEvent):
    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Self: ...
    def elapsed_time(self, end_event: BaseEvent) -> float: ...
    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event: ...

def set_up_generic(
    event: BaseEvent,
    device: Any = None,
    *,
    enable_timing: bool = False,
    blocking: bool = False,
    interprocess: bool = False,
    external: bool = False,
) -> None:
    """Finish making a `BaseEvent` that is not a `torch.cuda.Event`."""
