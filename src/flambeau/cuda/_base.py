# SPDX-License-Identifier: Apache-2.0
"""What the top level offers of streams, events and device modules: kinds of device in general.

CUDA is the only kind that has them here, so the base classes act on CUDA devices.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from flambeau.runtime._device import device as device_type
from flambeau.runtime._event import BaseEvent as Event
from flambeau.runtime._stream import BaseStream as Stream

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Event", "Stream", "get_device_module"]


def get_device_module(device: device_type | str | None = None) -> ModuleType:
    """The module for a kind of device.

    Parameters
    ----------
    device
        A device or the name of its kind; None is CUDA.

    Returns
    -------
    module
        `flambeau.cuda`.

    Raises
    ------
    RuntimeError
        A kind of device that has no module.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.get_device_module("cuda:0") is torch.cuda
    True
    """
    kind = "cuda" if device is None else device_type(device).type
    if kind != "cuda":
        raise RuntimeError(
            f"Invalid device '{device}': no module for devices of the kind {kind!r} exists, "
            "only flambeau.cuda"
        )
    return importlib.import_module("flambeau.cuda")
