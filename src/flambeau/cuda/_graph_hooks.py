# SPDX-License-Identifier: Apache-2.0
"""Lists of callbacks that hear of what happens to graphs."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["HookHandle", "HookList"]

_logger = logging.getLogger(__name__)
_ids = itertools.count(1)


class HookHandle:
    """What a registration gives: it takes the hook out again.

    As a context manager it does so at the end of the block.

    Attributes
    ----------
    id : int
        A number that no other handle has.
    """

    def __init__(self, hooks: HookList) -> None:
        self.id = next(_ids)
        self._hooks = hooks

    def remove(self) -> None:
        """Take the hook out; nothing if it is out already."""
        self._hooks.discard(self.id)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


class HookList:
    """Callbacks in the order of their registration.

    Parameters
    ----------
    changed
        Gives what to call after each change, or None: a weak reference to a method will do.
    """

    def __init__(self, changed: Callable[[], Callable[[], object] | None] | None = None) -> None:
        self._hooks: dict[int, Callable[..., object]] = {}
        self._changed = changed

    def __len__(self) -> int:
        return len(self._hooks)

    def add(self, hook: Callable[..., object]) -> HookHandle:
        """Register a callback."""
        handle = HookHandle(self)
        self._hooks[handle.id] = hook
        self._tell()
        return handle

    def discard(self, key: int) -> None:
        """Take out the callback of a handle's id, if it is there."""
        if self._hooks.pop(key, None) is not None:
            self._tell()

    def run(self, *arguments: object) -> None:
        """Call those that are registered now; what one raises stops the rest."""
        for hook in tuple(self._hooks.values()):
            hook(*arguments)

    def run_all(self, *arguments: object) -> None:
        """Call those that are registered now; what one raises is logged, and the next is called."""
        for hook in tuple(self._hooks.values()):
            try:
                hook(*arguments)
            except Exception:
                _logger.exception("a hook of a graph failed")

    def _tell(self) -> None:
        tell = None if self._changed is None else self._changed()
        if tell is not None:
            tell()
