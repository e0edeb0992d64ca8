# SPDX-License-Identifier: Apache-2.0
"""Device arguments of the device-neutral functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.cuda._availability import is_available
from flambeau.cuda._utils import _get_device_index
from flambeau.runtime._device import device as device_type

if TYPE_CHECKING:
    from flambeau.cuda._utils import DeviceArgument

__all__ = ["index_of", "require_accelerator"]


def require_accelerator() -> None:
    """Refuse to go on without a GPU.

    Raises
    ------
    RuntimeError
        There is none.
    """
    if not is_available():
        raise RuntimeError(
            "Cannot access accelerator device when none is available. torch.cuda.explain() says "
            "why; FLAMBEAU_VIRTUAL=h200 gives a virtual GPU."
        )


def index_of(device: DeviceArgument, optional: bool = True) -> int:
    """The number that a device argument means; None and no number mean the current device.

    Raises
    ------
    RuntimeError
        There is no accelerator, or the string is no device.
    ValueError
        It is another kind of device, or has no number where one is needed.
    """
    require_accelerator()
    kind = device_type(device).type if isinstance(device, str) else getattr(device, "type", "cuda")
    if kind != "cuda":
        raise ValueError(
            f"Accelerator expected: {kind} doesn't match the current accelerator cuda, but got "
            f"{device!r}"
        )
    return _get_device_index(device, optional=optional)
