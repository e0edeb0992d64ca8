# SPDX-License-Identifier: Apache-2.0
"""What a program does on the host and on its GPUs, and when.

`profile` collects operations, annotations, calls into CUDA, and what GPUs did: on virtual GPUs from
the modelled clock, on NVIDIA GPUs from CUPTI. Both give the same trace format. While no profiler
records, nothing is collected and nothing costs anything.
"""

from __future__ import annotations

from flambeau.profiler._annotation import record_function
from flambeau.profiler._events import EventList, FunctionEvent, FunctionEventAvg
from flambeau.profiler._execution_trace import ExecutionTraceObserver
from flambeau.profiler._profile import profile, tensorboard_trace_handler
from flambeau.profiler._settings import (
    CuspyConfig,
    DeviceType,
    PerformanceMetricsConfig,
    ProfilerAction,
    ProfilerActivity,
    ProfilerActivityConfig,
    schedule,
    supported_activities,
)

__all__ = [
    "CuspyConfig",
    "DeviceType",
    "EventList",
    "ExecutionTraceObserver",
    "FunctionEvent",
    "FunctionEventAvg",
    "PerformanceMetricsConfig",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerActivityConfig",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """Whether traces can be collected: always, though without Kineto.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.profiler.kineto_available()
    True
    """
    return True
