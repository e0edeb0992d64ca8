# SPDX-License-Identifier: Apache-2.0
from types import TracebackType
from typing import Any, Literal

from flambeau.runtime._stream import BaseStream

class StreamContext:
    def __init__(self, stream: BaseStream | Any | None) -> None: ...
    @property
    def stream(self) -> BaseStream | None: ...
    @property
    def idx(self) -> int: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]: ...
    def is_of_this_thread(self) -> bool:
        """Whether the calling thread is the one that entered."""

def stream(stream: BaseStream | Any | None) -> StreamContext: ...
