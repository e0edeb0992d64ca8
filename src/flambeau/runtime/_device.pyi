# SPDX-License-Identifier: Apache-2.0
from types import TracebackType
from typing import Any, overload

class device:  # noqa: N801
    """Where a tensor lives: ``device("cuda:1")``, ``device("cuda", 1)``, ``device(1)``.

    As a context manager it is the default device of the factory functions inside the block.
    """

    @overload
    def __init__(self, type: str | int | device) -> None: ...
    @overload
    def __init__(self, type: str, index: int | None = None) -> None: ...
    @property
    def type(self) -> str:
        """``"cpu"``, ``"cuda"`` or ``"meta"``."""
    @property
    def index(self) -> int | None:
        """None means the current device when it is used."""
    def __enter__(self) -> device: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,  # type: ignore[valid-type]
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def set_default_device(value: device | str | int | None) -> None:
    """Set this thread's default device of the factory functions; None goes back to the CPU."""

def get_default_device() -> device:
    """The calling thread's default device of the factory functions."""

def device_index(argument: Any = None) -> int:
    """-1 for the host, else the index of a CUDA device, which gets initialised.

    Parameters
    ----------
    argument
        What factories take as ``device=``: a device, a string, an int, or None for the default.

    Raises
    ------
    AcceleratorError
        Error 101: there is no CUDA device of this index.
    """
