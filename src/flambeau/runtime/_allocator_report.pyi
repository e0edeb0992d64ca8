# SPDX-License-Identifier: Apache-2.0
from typing import NoReturn

from flambeau.runtime.out_of_memory import Figures

def raise_failure(device: int, address: int) -> NoReturn:
    """Raise what an allocation failed with.

    Parameters
    ----------
    device
        The device that was asked.
    address
        Where the ``AllocationFailure`` is.
    """

def memory_balance(device: int) -> Figures:
    """Where the memory of a device is now."""
