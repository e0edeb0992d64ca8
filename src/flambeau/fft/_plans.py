# SPDX-License-Identifier: Apache-2.0
"""Plans, kept for each device in the order of their last use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from flambeau.runtime import lazy_init

if TYPE_CHECKING:
    from flambeau.driver.libraries import Plan, Transform
    from flambeau.ops.library_call import LibraryCall

__all__ = ["DEFAULT_SIZE", "PlanCache", "cache_of"]

DEFAULT_SIZE = 4096


class PlanCache:
    """The plans of one device, of which the least recently used go first.

    A plan works on one stream at a time, so transforms of a device take turns to be queued.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[Transform, Plan] = OrderedDict()
        self._most = DEFAULT_SIZE
        self._lock = threading.RLock()

    @property
    def size(self) -> int:
        """How many plans are kept."""
        return len(self._plans)

    @property
    def max_size(self) -> int:
        """How many plans are kept at most; 0 keeps none."""
        return self._most

    @max_size.setter
    def max_size(self, most: int) -> None:
        if most < 0:
            raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {most}")
        with self._lock:
            self._most = most
            self._evict()

    def clear(self) -> None:
        """Give all plans back."""
        with self._lock:
            while self._plans:
                self._plans.popitem()[1].destroy()

    def forget(self) -> None:
        """Every handle is void."""
        self._plans.clear()

    def execute(
        self, transform: Transform, call: LibraryCall, input: int, output: int, forward: bool
    ) -> None:
        """Queue a transform, with a plan made now if there is none."""
        from flambeau import driver

        with self._lock:
            plan = self._plans.get(transform)
            if plan is None:
                plan = driver.current().libraries.fft.plan(transform)
                self._plans[transform] = plan
            self._plans.move_to_end(transform)
            try:
                plan.execute(call, input, output, forward)
            finally:
                self._evict()

    def _evict(self) -> None:
        while len(self._plans) > self._most:
            self._plans.popitem(last=False)[1].destroy()


_caches: dict[int, PlanCache] = {}


def cache_of(device: int) -> PlanCache:
    """The plans of a device."""
    return _caches.setdefault(device, PlanCache())


def _forget() -> None:
    for cache in _caches.values():
        cache.forget()


lazy_init.on_forget(_forget)
