# SPDX-License-Identifier: Apache-2.0
"""Green contexts of NVIDIA GPUs, by cuda-bindings."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

from flambeau.driver.contract import MultiprocessorSet
from flambeau.driver.errors import from_status
from flambeau.driver.nvidia import _nvidia

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.driver.contract import SplitRequest

__all__ = ["NvidiaGreenContexts"]

SPLIT_SINCE = 13010
"""The first driver that splits into unequal groups and has work queues."""
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, which the driver demands
_NON_BLOCKING = 1
_BACKFILL = 1  # CU_DEV_SM_RESOURCE_GROUP_BACKFILL
_SCOPES = {"device_ctx": "DEVICE_CTX", "balanced": "GREEN_CTX_BALANCED"}


@functools.cache
def _bindings() -> Any:
    from cuda.bindings import driver

    return driver


def _call(function: str, *arguments: Any) -> Any:
    """Call the driver; the results after the status."""
    status, *results = getattr(_bindings(), function)(*arguments)
    if int(status):
        raise from_status(int(status), f"The call was {function}.")
    return results[0] if len(results) == 1 else results


class NvidiaGreenContexts:
    """``cuGreenCtx*`` and ``cuDev*Resource*``."""

    def supports(self, what: Literal["split", "workqueues"]) -> bool:
        """Whether driver and bindings have a feature."""
        name = {"split": "cuDevSmResourceSplit", "workqueues": "CUdevWorkqueueConfigScope"}[what]
        return _nvidia.driver_version() >= SPLIT_SINCE and hasattr(_bindings(), name)

    def multiprocessors(self, device: int) -> MultiprocessorSet:
        """All of a device."""
        kind = _bindings().CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        return _set(device, _call("cuDeviceGetDevResource", device, kind))

    def split(
        self, whole: MultiprocessorSet, groups: Sequence[SplitRequest]
    ) -> tuple[list[MultiprocessorSet], MultiprocessorSet | None]:
        """Cut groups off; before driver 13.1 only equal ones."""
        if self.supports("split"):
            parts, rest = self._split_structured(whole, groups)
        else:
            parts, rest = self._split_equally(whole, groups)
        left = _set(whole.device, rest) if rest is not None else None
        return [_set(whole.device, part) for part in parts], left if left and left.count else None

    def _split_structured(self, whole: MultiprocessorSet, groups: Sequence[SplitRequest]) -> Any:
        wanted = []
        for group in groups:
            entry = _bindings().CU_DEV_SM_RESOURCE_GROUP_PARAMS()
            entry.smCount = group.count
            entry.coscheduledSmCount = group.coscheduled
            entry.preferredCoscheduledSmCount = group.preferred_coscheduled
            entry.flags = _BACKFILL if group.backfill else 0
            wanted.append(entry)
        return _call("cuDevSmResourceSplit", len(wanted), whole.handle, 0, wanted)

    def _split_equally(self, whole: MultiprocessorSet, groups: Sequence[SplitRequest]) -> Any:
        first = groups[0]
        plain = not (first.coscheduled or first.preferred_coscheduled or first.backfill)
        if any(group != first for group in groups) or not plain or first.count == 0:
            raise RuntimeError(
                "this driver splits multiprocessors into equal groups of a given size only; "
                "unequal ones, 0 for the largest, co-scheduling and backfill need driver 13.1 and "
                "cuda-bindings 13.1 or newer"
            )
        parts, made, rest = _call(
            "cuDevSmResourceSplitByCount", len(groups), whole.handle, 0, first.count
        )
        if made < len(groups):
            raise RuntimeError(
                f"{len(groups)} groups of {first.count} multiprocessors were asked for, but "
                f"{whole.count} give {made}"
            )
        return parts[:made], rest

    def workqueue_limit(self, device: int) -> int:
        """The most streams' work that a context's queues keep apart."""
        kind = _bindings().CUdevResourceType.CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG
        return int(_call("cuDeviceGetDevResource", device, kind).wqConfig.wqConcurrencyLimit)

    def create(
        self,
        device: int,
        partition: MultiprocessorSet | None,
        workqueues: tuple[str, int | None] | None,
    ) -> tuple[Any, MultiprocessorSet]:
        """A green context and what it got."""
        resources = []
        if partition is not None:
            resources.append(partition.handle)
        if workqueues is not None:
            resources.append(_workqueues(device, *workqueues))
        described = _call("cuDevResourceGenerateDesc", resources, len(resources))
        context = _call("cuGreenCtxCreate", described, device, _DEFAULT_STREAM)
        kind = _bindings().CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        return context, _set(device, _call("cuGreenCtxGetDevResource", context, kind))

    def stream(self, context: Any, priority: int) -> int:
        """A new stream of a green context."""
        return int(_call("cuGreenCtxStreamCreate", context, _NON_BLOCKING, priority))

    def destroy(self, context: Any) -> None:
        """Free a green context."""
        _call("cuGreenCtxDestroy", context)


def _set(device: int, resource: Any) -> MultiprocessorSet:
    about = resource.sm
    alignment = int(getattr(about, "smCoscheduledAlignment", 0))
    minimum = int(getattr(about, "minSmPartitionSize", 0))
    return MultiprocessorSet(device, int(about.smCount), alignment, minimum, resource)


def _workqueues(device: int, scope: str, limit: int | None) -> Any:
    driver = _bindings()
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG
    resource = _call("cuDeviceGetDevResource", device, kind)
    scopes = driver.CUdevWorkqueueConfigScope
    resource.wqConfig.sharingScope = getattr(scopes, f"CU_WORKQUEUE_SCOPE_{_SCOPES[scope]}")
    if limit is not None:
        resource.wqConfig.wqConcurrencyLimit = limit
    return resource
