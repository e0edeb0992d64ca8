# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

def start() -> int:
    """Start the driver (``cuInit``) and return how many devices it has; `lazy_init` calls it."""

def finish() -> None:
    """Declare initialisation complete; `lazy_init` calls it."""

def forget() -> None:
    """Go back to the state before initialisation without a driver call.

    For a forked child and for a replaced driver: every handle known so far is void.
    """

def is_initialized() -> bool:
    """Whether initialisation is complete in this process."""

def has_context(device: int) -> bool:
    """Whether this process has retained the primary context of a device."""

def device_uuid(device: int) -> str:
    """``"GPU-"`` and 36 characters, as the management library writes it."""

def current_device() -> int:
    """The index of this thread's current device. Initialises CUDA."""

def set_device(device: int) -> None:
    """Make a device and its primary context current in this thread; nothing if negative.

    Raises
    ------
    AcceleratorError
        Error 101: there is no device of this index.
    """

def exchange_device(device: int) -> int:
    """Like `set_device`, and return the device that was current; -1 if `device` is negative."""

def maybe_exchange_device(device: int) -> int:
    """Like `exchange_device`, but create no context on `device` if it has none yet."""

def count_devices() -> int:
    """How many devices the driver shows. Initialises CUDA."""

def synchronize(device: int = -1) -> None:
    """Wait until all work on a device is done (``cuCtxSynchronize``); -1 is the current device.

    Other Python threads run meanwhile.
    """

def defer_call(call: Callable[[], object]) -> None:
    """Have the next runtime entry make this call; what finalizers use."""

def defer_error(error: BaseException) -> None:
    """Have the next runtime entry raise this error; what host callbacks use."""

def note_pending() -> None:
    """Make the deferred calls now, and raise the first deferred error."""

def captures_under_way() -> int:
    """How many stream captures graphs have under way in this process."""

def set_observed(on: bool) -> None:
    """Tell the compiled modules whether `observers.notify` wants to hear of calls."""

def set_sync_debug_mode(mode: int) -> None:
    """What to do when an operation waits for the device: 0 nothing, 1 warn, 2 raise."""

def get_sync_debug_mode() -> int:
    """The mode that `set_sync_debug_mode` set."""

def check_synchronizing(what: str) -> None:
    """Warn or raise, as the mode says: the operation `what` is about to wait for the device."""
