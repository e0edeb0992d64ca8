# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Any

recording: tuple[int, int, int] | None
recording_host: tuple[int, int, int] | None

def follow(device: int) -> None:
    """Have the new allocator of a device record as all others do."""

def record(
    context: str | None,
    most: int,
    skip_actions: Iterable[str] = (),
    *,
    clear: bool = False,
    cuda: bool = True,
    host: bool = False,
) -> None:
    """Start recording what the allocators do, or change how.

    Parameters
    ----------
    context
        Whose Python stacks to keep: None, ``"state"`` (of blocks that are held), ``"alloc"`` (of
        allocations in the trace too) or ``"all"`` (of frees too).
    most
        How many entries to keep for each device; the newest stay.
    skip_actions
        Actions of which no entry is made.
    clear
        Whether to forget what was recorded so far.
    cuda, host
        Whether device memory and pinned memory are meant.
    """

def stop(*, cuda: bool = True) -> None:
    """Stop recording and forget the traces. Blocks keep the stacks that they have."""

def tell_host() -> None:
    """Have the pinned cache, if there is one, record as it should."""

def clear_traces() -> None:
    """Forget what was recorded so far."""

def traces(known: dict[Any, Any]) -> list[list[dict[str, Any]]]:
    """What each device's allocator did, oldest first; equal stacks share objects by `known`.

    It makes an entry itself, which shows next time.
    """

def host_traces(known: dict[Any, Any]) -> list[dict[str, Any]]:
    """What the pinned cache did, oldest first."""

def traceback_of(address: int) -> list[dict[str, Any]] | None:
    """The stack of who allocated the block that starts at an address, innermost frame first."""

def annotate(storage: int, text: str) -> None:
    """Make an entry about the block behind a storage, which is given by its own address.

    Raises
    ------
    RuntimeError
        The memory is not the caching allocator's.
    """

def set_metadata(text: str) -> None:
    """What entries of histories that this thread makes carry."""

def get_metadata() -> str:
    """What `set_metadata` set in this thread."""
