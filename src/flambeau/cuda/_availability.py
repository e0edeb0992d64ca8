# SPDX-License-Identifier: Apache-2.0
"""Whether there are devices, and how many, without starting the driver in this process.

Starting it would make every later fork useless for CUDA. So before initialisation the management
library is asked; where that cannot answer, a process of its own is.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import NamedTuple

from flambeau import driver
from flambeau.cuda import _visible_devices
from flambeau.driver.errors import DriverNotFoundError
from flambeau.runtime import _cuda_device, lazy_init

__all__ = ["device_count", "is_available"]

_PROBE = """
from flambeau import driver
from flambeau.driver.errors import AcceleratorError, DriverNotFoundError
from flambeau.runtime import _cuda_device
try:
    driver.current()
    print(_cuda_device.count_devices(), 0)
except AcceleratorError as error:
    print(0, error.error_code)
except DriverNotFoundError:
    print(0, 100)
"""
_NO_DEVICE = 100

_visible_at_init: list[str | None] = []


class Probe(NamedTuple):
    """What another process was told by the driver.

    Parameters
    ----------
    devices
        How many it shows.
    status
        The driver's status, 0 for success.
    """

    devices: int
    status: int


def device_count() -> int:
    """How many devices this process can use.

    Before CUDA is initialised each call counts afresh, follows ``CUDA_VISIBLE_DEVICES`` as it is
    then, makes no context and leaves the process fit to fork. Afterwards the number is fixed.

    Returns
    -------
    int
        0 without a driver or without devices; this never raises for their lack.

    Warns
    -----
    UserWarning
        ``CUDA_VISIBLE_DEVICES`` was changed after initialisation, when it has no effect any more.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.device_count() >= 1
    True
    """
    if lazy_init.is_initialized():
        _warn_if_changed()
        return _cuda_device.device_total()
    counted = _device_count_nvml()
    return counted if counted >= 0 else probe().devices


def is_available() -> bool:
    """Whether CUDA can be used here: there is a driver and it shows a device.

    Does not initialise CUDA and leaves the process fit to fork. `flambeau.cuda.explain` says why
    the answer is False.

    Returns
    -------
    bool
        With ``PYTORCH_NVML_BASED_CUDA_CHECK=1``: whether `device_count` is above 0.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.is_available()
    True
    """
    if lazy_init.is_initialized():
        return _cuda_device.device_total() > 0
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1":
        return device_count() > 0
    # The driver shows nothing for a prefix alone, although it begins the UUID of every GPU.
    if _visible_devices.is_bare_prefix(_visible_devices.read()):
        return False
    return device_count() > 0


def _device_count_nvml() -> int:
    """Devices by the management library and ``CUDA_VISIBLE_DEVICES``; -1 if it cannot tell."""
    value = _visible_devices.read()
    if _visible_devices.is_mig(_visible_devices.parse(value)):
        return -1
    try:
        management = driver.current().management
        found = management.device_count()
        return len(_visible_devices.resolve(value, found, management.uuid))
    except (DriverNotFoundError, ImportError):  # no driver or no management library
        return -1


def probe() -> Probe:
    """Ask the driver in another process; the answer is kept for this environment."""
    return _probe(_visible_devices.read(), os.environ.get("FLAMBEAU_VIRTUAL"))


@functools.lru_cache(maxsize=8)
def _probe(*_environment: str | None) -> Probe:
    try:
        driver.current()
    except DriverNotFoundError:
        return Probe(0, _NO_DEVICE)
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    words = done.stdout.split()
    return Probe(int(words[0]), int(words[1])) if len(words) == 2 else Probe(0, _NO_DEVICE)


def remember_visible_devices() -> None:
    """Called at initialisation: from here on the variable has no effect."""
    _visible_at_init[:] = [_visible_devices.read()]


def _warn_if_changed() -> None:
    now = _visible_devices.read()
    if _visible_at_init and _visible_at_init[0] != now:
        warnings.warn(
            f"{_visible_devices.VARIABLE} is {now!r} now and was {_visible_at_init[0]!r} when CUDA "
            "was initialised. The change has no effect in this process; set the variable before "
            "the first CUDA call.",
            stacklevel=3,
        )
        _visible_at_init.clear()
