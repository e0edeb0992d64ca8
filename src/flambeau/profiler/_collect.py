# SPDX-License-Identifier: Apache-2.0
"""One recording: the host's recorder and the driver's activities, begun and ended as one."""

from __future__ import annotations

import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from flambeau import driver
from flambeau.driver.activity import Activities
from flambeau.driver.errors import DriverNotFoundError, MissingExtraError
from flambeau.profiler._recorder import Recorder
from flambeau.profiler._timeline import Timeline, join

if TYPE_CHECKING:
    from flambeau.driver.activity import Activity

__all__ = ["Session", "versions"]

_collecting: weakref.ref[Session] | None = None
"""Who collects GPU activity, of which there can be one."""
_SECOND = 10**9
_LARGE = 1000 * _SECOND  # above it microseconds as floats begin to lose nanoseconds


class Session:
    """Collects until it is stopped.

    Parameters
    ----------
    cpu, cuda
        Whether the host's operations and GPUs' activity are collected.
    shapes, memory, stacks
        As for `Recorder`.
    """

    def __init__(self, *, cpu: bool, cuda: bool, shapes: bool, memory: bool, stacks: bool) -> None:
        self._activity = _activity()
        self._cpu, self._cuda = cpu, cuda
        self._collecting = False
        self._earlier = Activities()
        self._begin = 0
        now = time.time_ns if self._activity is None else self._activity.now
        number = _no_number if self._activity is None else self._activity.stream_number
        self.recorder = Recorder(now, number, shapes=shapes, memory=memory, stacks=stacks)

    def start(self) -> None:
        """Begin."""
        if self._cuda:
            from flambeau.runtime import lazy_init

            lazy_init.lazy_init()
            self.toggle_cuda(True)
        self._begin = self.recorder.now()
        self.recorder.start(quiet=not self._cpu)
        weakref.finalize(self, self.recorder.abandon)

    def toggle_cpu(self, on: bool) -> None:
        """Hear of operations, or do not."""
        self.recorder.quiet = not on

    def toggle_cuda(self, on: bool) -> None:
        """Collect GPU activity, or do not."""
        global _collecting
        if self._activity is None or on == self._collecting:
            return
        if on:
            other = _collecting() if _collecting is not None else None
            if other is not None and other is not self:
                raise RuntimeError(
                    "another profiler is recording GPU activity; stop it first, or profile "
                    "activities=[ProfilerActivity.CPU] inside it"
                )
            self._activity.start()
            self._collecting = True
            _collecting = weakref.ref(self)
        else:
            self._collecting = False
            _collecting = None
            found = self._activity.stop()
            self._earlier.work += found.work
            self._earlier.calls += found.calls
            self._earlier.dropped += found.dropped

    def stop(self) -> Timeline:
        """Wait for the devices, end, and put everything together."""
        from flambeau import cuda
        from flambeau.cuda.graph_annotations import get_kernel_annotations
        from flambeau.runtime import _state

        self.recorder.stop()
        if self._collecting and not _state.captures_under_way():
            for device in range(cuda.device_count()):
                if _state.has_context(device):
                    _finish(device)
        end = self.recorder.now()
        self.toggle_cuda(False)
        epoch = 0 if self._activity is None else self._activity.epoch()
        found = self._earlier
        if not self._cpu:
            found.calls = [c for c in found.calls if _submits(found, c.correlation)]
        timeline = join(self.recorder, found, self._begin, end, epoch, get_kernel_annotations())
        if self._begin > _LARGE:
            timeline.rebase(self._begin // _SECOND * _SECOND)
        timeline.devices = _devices() if self._cuda else []
        return timeline


def _finish(device: int) -> None:
    """Wait for a device. If it is lost, what it did before is still worth seeing."""
    from flambeau.driver.errors import AcceleratorError
    from flambeau.runtime import _state

    try:
        _state.synchronize(device)
    except AcceleratorError as error:
        warnings.warn(f"the recording ends early: {error}", RuntimeWarning, stacklevel=4)


def _submits(found: Activities, correlation: int) -> bool:
    return any(work.correlation == correlation for work in found.work)


def _no_number(stream: int, device: int) -> int:
    return 0


def _activity() -> Activity | None:
    try:
        return driver.current().activity
    except (DriverNotFoundError, MissingExtraError):
        return None


def _devices() -> list[dict[str, Any]]:
    """What the trace's header says of the devices."""
    from flambeau import cuda

    found = []
    for index in range(cuda.device_count()):
        of = cuda.get_device_properties(index)
        found.append(
            {
                "id": index,
                "name": of.name,
                "totalGlobalMem": of.total_memory,
                "computeMajor": of.major,
                "computeMinor": of.minor,
                "maxThreadsPerBlock": of.max_threads_per_block,
                "maxThreadsPerMultiprocessor": of.max_threads_per_multi_processor,
                "warpSize": of.warp_size,
                "numSms": of.multi_processor_count,
            }
        )
    return found


def versions() -> dict[str, int]:
    """The driver's version, as the trace's header has it; empty without a driver."""
    from flambeau import cuda

    if not cuda.is_available():
        return {}
    version = driver.current().activity.driver_version()
    return {"cuda_driver_version": version, "cuda_runtime_version": version}
