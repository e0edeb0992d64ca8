# SPDX-License-Identifier: Apache-2.0
"""Green contexts: streams whose kernels run on a part of a GPU's multiprocessors (SMs).

Kernels on streams of two contexts with disjoint parts run side by side and do not take
multiprocessors from each other. `GreenContext` with ``num_sms`` takes the first ones of a device;
`SMPartition.split` and `GreenContext.split` make disjoint parts.
"""

from __future__ import annotations

import operator
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from flambeau import driver
from flambeau.cuda._device import _existing
from flambeau.cuda._green_arguments import split_requests
from flambeau.driver.contract import MultiprocessorSet, SplitRequest
from flambeau.runtime import lazy_init
from flambeau.runtime._cuda_device import device as on_device
from flambeau.runtime._stream import ExternalStream, current_stream, set_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.cuda._utils import DeviceArgument
    from flambeau.driver.contract import GreenContexts
    from flambeau.runtime._stream import Stream

__all__ = [
    "GreenContext",
    "SMPartition",
    "get_num_locality_domains",
    "is_localization_supported",
]

STREAMS = 32
"""How many streams a green context hands out before the first comes again."""
_SCOPES = ("device_ctx", "balanced")

_abandoned: list[tuple[GreenContexts, Any]] = []


def _contexts() -> GreenContexts:
    """The driver's green contexts, after those are freed that nobody has any more."""
    lazy_init.lazy_init()
    current = driver.current()
    if not current.supports("green_contexts"):
        raise RuntimeError("green contexts need an NVIDIA driver of CUDA 12.8 or newer")
    while _abandoned:
        owner, handle = _abandoned.pop()
        if owner is current.green_contexts:
            owner.destroy(handle)
    return current.green_contexts


class SMPartition:
    """A set of multiprocessors of one GPU. `from_device` and `split` make them.

    Parameters
    ----------
    _resource, _device_id, _owner
        What the driver knows it by; its device; what must live as long.

    Examples
    --------
    >>> import flambeau as torch
    >>> whole = torch.cuda.green_contexts.SMPartition.from_device(0)
    >>> (left, right), rest = whole.split(num_sms=[64, 64])
    >>> left.sm_count, right.sm_count
    (64, 64)
    """

    def __init__(
        self, _resource: MultiprocessorSet, _device_id: int, _owner: object = None
    ) -> None:
        if not isinstance(_resource, MultiprocessorSet):
            raise TypeError("an SMPartition is made by SMPartition.from_device and split")
        self._resource = _resource
        self._device_id = _device_id
        self._owner = _owner

    @classmethod
    def from_device(cls, device_id: DeviceArgument = None) -> SMPartition:
        """Every multiprocessor of a GPU; None is the current one (``cuDeviceGetDevResource``)."""
        device = _existing(device_id)
        return cls(_contexts().multiprocessors(device), device)

    @property
    def device_id(self) -> int:
        """The number of the GPU."""
        return self._device_id

    @property
    def sm_count(self) -> int:
        """How many multiprocessors it has."""
        return self._resource.count

    @property
    def coscheduled_sm_count(self) -> int:
        """The driver schedules multiprocessors together in groups of so many."""
        return self._resource.alignment

    @property
    def locality_domain_id(self) -> int | None:
        """The locality domain it lies in; None if it is not kept to one."""
        return None

    def split(
        self,
        *,
        num_sms: int | Sequence[int] = 0,
        coscheduled_sm_count: int | Sequence[int] = 0,
        preferred_coscheduled_sm_count: int | Sequence[int] = 0,
        backfill: bool | Sequence[bool] = False,
        locality_domain_ids: int | Sequence[int | None] | None = None,
    ) -> tuple[tuple[SMPartition, ...], SMPartition | None]:
        """Cut it into disjoint groups (``cuDevSmResourceSplit``).

        Each argument is for all groups, or a sequence with a value for each.

        Parameters
        ----------
        num_sms
            Multiprocessors of each group; 0 for as many as can be had. Drivers round up to the
            groups that they schedule together; ``sm_count`` says what was granted.
        coscheduled_sm_count, preferred_coscheduled_sm_count
            How many must, and should, be schedulable together.
        backfill
            Take multiprocessors that fit no such group, too. With ``num_sms=0`` only for the last.
        locality_domain_ids
            The domain of each group; None for any.

        Returns
        -------
        tuple
            The groups, and what is left over or None.

        Raises
        ------
        ValueError
            The sequences differ in length, or a number is negative.
        RuntimeError
            The groups do not fit, or the driver cannot split so. Before driver 13.1 groups are
            equal and of a given size.

        Examples
        --------
        >>> import flambeau as torch
        >>> whole = torch.cuda.green_contexts.SMPartition.from_device(0)
        >>> groups, rest = whole.split(num_sms=[32, 32])
        >>> sum(group.sm_count for group in groups) + rest.sm_count == whole.sm_count
        True
        """
        requests = split_requests(
            num_sms,
            coscheduled_sm_count,
            preferred_coscheduled_sm_count,
            backfill,
            locality_domain_ids,
            self._resource,
            get_num_locality_domains(self._device_id),
        )
        parts, rest = _contexts().split(self._resource, requests)
        made = tuple(SMPartition(part, self._device_id, self) for part in parts)
        return made, None if rest is None else SMPartition(rest, self._device_id, self)

    def __repr__(self) -> str:
        return f"<torch.cuda.SMPartition device={self._device_id} sm_count={self.sm_count}>"


class GreenContext:
    """A context on a part of a GPU's multiprocessors or work queues (``cuGreenCtxCreate``).

    Its streams, from `Stream`, run kernels there; nothing orders them with other streams.

    Parameters
    ----------
    num_sms
        How many multiprocessors. The driver may round up; `sm_count` is what was granted. Two
        contexts made so have multiprocessors in common: split a partition for disjoint ones.
    sm_partition
        Which multiprocessors, instead of `num_sms`.
    workqueue_scope
        ``"device_ctx"`` or ``"balanced"``: whether it shares the device's work queues or has its
        own where possible. Needs driver 13.1.
    workqueue_concurrency_limit
        How many streams' work the queues should keep apart; needs `workqueue_scope`.
    device_id
        The GPU; by default the partition's, else the current one.

    Raises
    ------
    RuntimeError
        Nothing was asked for, the device has fewer multiprocessors, or the driver is too old.
    ValueError
        Both `num_sms` and `sm_partition` are given, or a scope that there is not.

    Examples
    --------
    >>> import flambeau as torch
    >>> context = torch.cuda.GreenContext(num_sms=64, device_id=0)
    >>> context.sm_count
    64
    >>> with torch.cuda.stream(context.Stream()):
    ...     x = torch.ones(3, device="cuda") + 1
    >>> torch.cuda.synchronize()
    """

    def __init__(
        self,
        *,
        num_sms: int | None = None,
        sm_partition: SMPartition | None = None,
        workqueue_scope: str | None = None,
        workqueue_concurrency_limit: int | None = None,
        device_id: DeviceArgument = None,
    ) -> None:
        if num_sms is not None and sm_partition is not None:
            raise ValueError("num_sms and sm_partition were both given; give one of them")
        if num_sms is None and sm_partition is None and workqueue_scope is None:
            raise RuntimeError(
                "a green context needs num_sms, sm_partition or workqueue_scope; none was given"
            )
        device = _device_for(sm_partition, device_id)
        contexts = _contexts()
        queues = _checked_queues(contexts, device, workqueue_scope, workqueue_concurrency_limit)
        if sm_partition is not None:
            partition: MultiprocessorSet | None = sm_partition._resource
        else:
            partition = None if num_sms is None else _take(contexts, device, num_sms)
        self._device = device
        self._asked = partition.count if partition and num_sms is None else num_sms
        with on_device(device):
            self._handle, self._granted = contexts.create(device, partition, queues)
        self._owner = sm_partition
        self._contexts = contexts
        self._streams: list[int] = []
        self._handed_out = 0
        self._before: Stream | None = None
        weakref.finalize(self, _abandoned.append, (contexts, self._handle)).atexit = False

    @staticmethod
    def create(
        *,
        num_sms: int | None = None,
        sm_partition: SMPartition | None = None,
        workqueue_scope: str | None = None,
        workqueue_concurrency_limit: int | None = None,
        device_id: DeviceArgument = None,
    ) -> GreenContext:
        """Make one; the same as the constructor, for older programs."""
        return GreenContext(
            num_sms=num_sms,
            sm_partition=sm_partition,
            workqueue_scope=workqueue_scope,
            workqueue_concurrency_limit=workqueue_concurrency_limit,
            device_id=device_id,
        )

    @staticmethod
    def split(
        *,
        num_sms: int | Sequence[int] = 0,
        coscheduled_sm_count: int | Sequence[int] = 0,
        preferred_coscheduled_sm_count: int | Sequence[int] = 0,
        backfill: bool | Sequence[bool] = False,
        locality_domain_ids: int | Sequence[int | None] | None = None,
        workqueue_scope: str | None = None,
        workqueue_concurrency_limit: int | None = None,
        device_id: DeviceArgument = None,
    ) -> tuple[GreenContext, ...]:
        """Contexts with disjoint multiprocessors of a whole device, one for each group.

        Parameters
        ----------
        num_sms, coscheduled_sm_count, preferred_coscheduled_sm_count
            As for `SMPartition.split`.
        backfill, locality_domain_ids
            As for `SMPartition.split`.
        workqueue_scope, workqueue_concurrency_limit, device_id
            As for `GreenContext`.

        Examples
        --------
        >>> import flambeau as torch
        >>> a, b = torch.cuda.GreenContext.split(num_sms=[64, 64], device_id=0)
        >>> a.sm_count + b.sm_count
        128
        """
        parts, _ = SMPartition.from_device(device_id).split(
            num_sms=num_sms,
            coscheduled_sm_count=coscheduled_sm_count,
            preferred_coscheduled_sm_count=preferred_coscheduled_sm_count,
            backfill=backfill,
            locality_domain_ids=locality_domain_ids,
        )
        return tuple(
            GreenContext(
                sm_partition=part,
                workqueue_scope=workqueue_scope,
                workqueue_concurrency_limit=workqueue_concurrency_limit,
            )
            for part in parts
        )

    @staticmethod
    def max_workqueue_concurrency(device_id: DeviceArgument = None) -> int:
        """The largest ``workqueue_concurrency_limit`` of a device; needs driver 13.1."""
        device = _existing(device_id)
        contexts = _contexts()
        _require_queues(contexts)
        return contexts.workqueue_limit(device)

    @property
    def device_id(self) -> int:
        """The number of the GPU."""
        return self._device

    @property
    def sm_count(self) -> int:
        """How many multiprocessors were granted."""
        return self._granted.count

    @property
    def requested_sm_count(self) -> int | None:
        """How many were asked for; None if only work queues were."""
        return self._asked

    @property
    def sm_partition(self) -> SMPartition:
        """The multiprocessors, which can be split further."""
        return SMPartition(self._granted, self._device, self)

    @property
    def locality_domain_id(self) -> int | None:
        """The locality domain of the multiprocessors; None if they are not kept to one."""
        return None if self._owner is None else self._owner.locality_domain_id

    def Stream(self) -> ExternalStream:  # noqa: N802 - torch's name
        """A stream whose kernels run in this context; 32 are handed out in turn.

        The context lives for as long as a stream that was handed out.

        Examples
        --------
        >>> import flambeau as torch
        >>> context = torch.cuda.GreenContext(num_sms=64, device_id=0)
        >>> streams = [context.Stream() for _ in range(33)]
        >>> streams[32] == streams[0]
        True
        """
        turn = self._handed_out % STREAMS
        if turn == len(self._streams):
            with on_device(self._device):
                self._streams.append(self._contexts.stream(self._handle, 0))
        self._handed_out += 1
        stream = ExternalStream(self._streams[turn], device=self._device)
        weakref.finalize(stream, _nothing, self).atexit = False
        return stream

    def set_context(self) -> None:
        """Make a stream of this context the thread's current one, until `pop_context`.

        Deprecated: use ``with torch.cuda.stream(context.Stream())``. Work so far is waited for by
        what follows.

        Raises
        ------
        RuntimeError
            It is set already.
        """
        _warn_deprecated("set_context")
        if self._before is not None:
            raise RuntimeError("this green context is set already; call pop_context first")
        before = current_stream(self._device)
        stream = self.Stream()
        stream.wait_stream(before)
        set_stream(stream)
        self._before = before

    def pop_context(self) -> None:
        """Go back to the stream that was current before `set_context`, and wait on it. Deprecated.

        Raises
        ------
        RuntimeError
            `set_context` was not called before.
        """
        _warn_deprecated("pop_context")
        if self._before is None:
            raise RuntimeError("this green context is not set; call set_context first")
        before, self._before = self._before, None
        before.wait_stream(current_stream(self._device))
        set_stream(before)

    def __repr__(self) -> str:
        return (
            f"<torch.cuda.GreenContext device={self._device} sm_count={self.sm_count} "
            f"(asked for {self._asked})>"
        )


def _nothing(_context: GreenContext) -> None:
    """Do nothing; that this may be called keeps the argument alive."""


def _warn_deprecated(name: str) -> None:
    warnings.warn(
        f"GreenContext.{name} is deprecated; use torch.cuda.stream(context.Stream())",
        FutureWarning,
        stacklevel=3,
    )


def _device_for(partition: SMPartition | None, device_id: DeviceArgument) -> int:
    if partition is None:
        return _existing(device_id)
    if not isinstance(partition, SMPartition):
        raise TypeError(f"sm_partition is an SMPartition, not a {type(partition).__name__}")
    if device_id is not None and _existing(device_id) != partition.device_id:
        raise ValueError(
            f"sm_partition is of device {partition.device_id}, but device_id={device_id} was given"
        )
    return partition.device_id


def _take(contexts: GreenContexts, device: int, num_sms: int) -> MultiprocessorSet:
    """The first multiprocessors of a device, rounded up as the driver must."""
    count, whole = operator.index(num_sms), contexts.multiprocessors(device)
    if not 1 <= count <= whole.count:
        raise RuntimeError(
            f"Invalid number of SMs requested for green context: {count} (device has "
            f"{whole.count} SMs)"
        )
    unit = max(1, whole.alignment)
    rounded = max(-(-count // unit) * unit, whole.minimum)
    if count == whole.count or rounded > whole.count:
        return whole
    return contexts.split(whole, [SplitRequest(count)])[0][0]


def _require_queues(contexts: GreenContexts) -> None:
    if not contexts.supports("workqueues"):
        raise RuntimeError("work queues need an NVIDIA driver and cuda-bindings of 13.1 or newer")


def _checked_queues(
    contexts: GreenContexts, device: int, scope: str | None, limit: int | None
) -> tuple[str, int | None] | None:
    if scope is None:
        if limit is not None:
            raise RuntimeError(
                f"workqueue_concurrency_limit={limit} needs a workqueue_scope: "
                f"{' or '.join(map(repr, _SCOPES))}"
            )
        return None
    if scope not in _SCOPES:
        raise ValueError(f"workqueue_scope is {' or '.join(map(repr, _SCOPES))}, not {scope!r}")
    _require_queues(contexts)
    if limit is not None:
        most = contexts.workqueue_limit(device)
        if not 1 <= operator.index(limit) <= most:
            raise RuntimeError(
                f"workqueue_concurrency_limit={limit} is not from 1 to {most}, the device's most"
            )
    return scope, limit


def get_num_locality_domains(device_id: DeviceArgument = None) -> int:
    """How many locality domains a GPU has: 1 where the driver knows of none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.green_contexts.get_num_locality_domains(0)
    1
    """
    _existing(device_id)
    return 1


def is_localization_supported(device_id: DeviceArgument = None) -> bool:
    """Whether a GPU has more than one locality domain.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.green_contexts.is_localization_supported(0)
    False
    """
    return get_num_locality_domains(device_id) > 1
