# SPDX-License-Identifier: Apache-2.0
"""What to profile and when: activities, schedules, options."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CuspyConfig",
    "DeviceType",
    "PerformanceMetricsConfig",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerActivityConfig",
    "schedule",
    "supported_activities",
]


class ProfilerActivity(enum.Enum):
    """What a profiler can watch."""

    CPU = 0
    """Operations, annotations and calls into CUDA on the host."""
    CUDA = 3
    """Kernels, copies and fills on GPUs, real or virtual."""


class ProfilerAction(enum.Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARMUP = 1
    """It collects, and throws away what it collected."""
    RECORD = 2
    RECORD_AND_SAVE = 3
    """It records, and hands the trace over when the step ends."""
    DEVICE_STOPPED = 4


class DeviceType(enum.Enum):
    """Where an event took place."""

    CPU = 0
    CUDA = 1


@dataclass
class CuspyConfig:
    """Options of what is collected of GPUs.

    Parameters
    ----------
    enable_cuda_sync_events
        Whether waits of the host and of streams get events of their own, of category
        ``cuda_sync``. Default False.
    enable_environment_counters, enable_graph_dependencies, enable_event_node_ids
        Accepted, without effect: node ids are always collected, the others never.
    """

    enable_cuda_sync_events: bool = False
    enable_environment_counters: bool = False
    enable_graph_dependencies: bool = False
    enable_event_node_ids: bool = False


@dataclass
class PerformanceMetricsConfig:
    """Hardware counters to sample. flambeau has none: a profiler that is given one says so.

    Parameters
    ----------
    metric_names
        Names as Nsight Compute has them.
    sampling_interval_ms, lookback_window_ms
        Milliseconds between samples, and how long they are kept.
    """

    metric_names: list[str]
    sampling_interval_ms: float | None = None
    lookback_window_ms: float | None = None


@dataclass
class ProfilerActivityConfig:
    """A finer choice for one `ProfilerActivity`.

    Parameters
    ----------
    activity_types
        Categories to keep, such as ``{"kernel", "gpu_memcpy"}``; None, the default, keeps all.
    profiler_configs
        `CuspyConfig` and the like.
    """

    activity_types: set[str] | None = None
    profiler_configs: list[object] = field(default_factory=list)


def supported_activities() -> set[ProfilerActivity]:
    """What can be collected here.

    Returns
    -------
    set of ProfilerActivity
        The CPU always; CUDA if there is a GPU, real or virtual, whose activity can be read.

    Examples
    --------
    >>> import flambeau as torch
    >>> sorted(a.name for a in torch.profiler.supported_activities())
    ['CPU', 'CUDA']
    """
    found = {ProfilerActivity.CPU}
    if not why_no_cuda():
        found.add(ProfilerActivity.CUDA)
    return found


def why_no_cuda() -> str:
    """Why GPU activity cannot be collected; empty if it can."""
    from flambeau import driver
    from flambeau.cuda import _availability

    if not _availability.is_available():
        return "CUDA is not available; flambeau.cuda.explain() says why"
    return driver.current().activity.unavailable()


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Make a function from the number of a step to what the profiler does in it.

    Parameters
    ----------
    wait, warmup, active
        Steps of a cycle in which it does nothing, collects for nothing, and records.
    repeat
        How many cycles; 0, the default, goes on for ever.
    skip_first
        Steps before the first cycle. Default 0.
    skip_first_wait
        If not 0, the first cycle has no `wait`. Default 0.

    Returns
    -------
    callable
        ``step -> ProfilerAction``; ValueError for a negative step.

    Raises
    ------
    AssertionError
        A number is negative, or `active` is 0.

    Warns
    -----
    UserWarning
        `warmup` is 0: the first recorded step includes what starting costs.

    Examples
    --------
    >>> import flambeau as torch
    >>> plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    _check_counts(
        active,
        wait=wait,
        warmup=warmup,
        repeat=repeat,
        skip_first=skip_first,
        skip_first_wait=skip_first_wait,
    )
    if warmup == 0:
        warnings.warn(
            "a profiler schedule without warmup records what the start of profiling costs",
            UserWarning,
            stacklevel=2,
        )
    cycle = wait + warmup + active
    shortened = wait if skip_first_wait else 0

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"steps are counted from 0, got {step}")
        place = step - skip_first
        if place < 0:
            return ProfilerAction.NONE
        place += shortened
        if repeat and place // cycle >= repeat:
            return ProfilerAction.NONE
        place %= cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == cycle - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def _check_counts(active: int, **counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise AssertionError(f"Invalid profiler schedule: {name} is {count}, it must be >= 0")
    if active <= 0:
        raise AssertionError(f"Invalid profiler schedule: active is {active}, it must be > 0")


for _class in (
    CuspyConfig,
    DeviceType,
    PerformanceMetricsConfig,
    ProfilerAction,
    ProfilerActivity,
    ProfilerActivityConfig,
):
    _class.__module__ = "flambeau.profiler"
schedule.__module__ = supported_activities.__module__ = "flambeau.profiler"
