# SPDX-License-Identifier: Apache-2.0
"""Collectives between GPUs, on NVIDIA's communication library NCCL.

With a list of tensors, one on each GPU, one process works on all of them. With `unique_id` and
`init_rank` each process, on this machine or others, is one rank: it passes its one tensor and its
communicator (``comms=[comm]``).

Collectives return at once and are ordered with the work on the streams that they are given, by
default the current ones. They can be captured into graphs. A rank that does not come, or ends, is
an error after ``FLAMBEAU_NCCL_TIMEOUT`` seconds (default 600), not a wait for ever.
"""

from __future__ import annotations

import operator
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any

from flambeau import driver
from flambeau.cuda._device import current_device
from flambeau.cuda._nccl_checks import (
    SUM,
    check_communicators,
    check_lists,
    check_operation,
    check_outputs,
    check_root,
    check_sequence,
    streams_for,
    type_number,
)
from flambeau.driver.errors import CollectiveError, DriverNotFoundError, MissingExtraError
from flambeau.runtime import lazy_init
from flambeau.runtime._cuda_device import device as on_device
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flambeau.cuda._nccl_checks import OutputShape
    from flambeau.driver.contract import Collectives, Communicator
    from flambeau.runtime._stream import BaseStream

__all__ = [
    "all_gather",
    "all_reduce",
    "broadcast",
    "init_rank",
    "is_available",
    "reduce",
    "reduce_scatter",
    "unique_id",
    "version",
]

_UNIQUE_ID_BYTES = 128
_DEFAULT_TIMEOUT = 600.0

_lock = threading.Lock()
_made: dict[tuple[int, ...], Sequence[Communicator]] = {}
_made_by: Collectives | None = None
_missing_in: Collectives | None = None


def _library() -> Collectives:
    lazy_init.lazy_init()
    return driver.current().collectives


def _timeout() -> float:
    text = os.environ.get("FLAMBEAU_NCCL_TIMEOUT", "").strip()
    if not text:
        return _DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"FLAMBEAU_NCCL_TIMEOUT={text!r} is not a number of seconds above 0")
    return seconds


# -- the library and its communicators -------------------------------------------------------------


def version() -> tuple[int, ...]:
    """The version of NCCL: major, minor and patch. Initialises nothing.

    Raises
    ------
    MissingExtraError
        NCCL or its package for Python is not installed.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nccl.version() >= (2, 18)
    True
    """
    return driver.current().collectives.version()


def is_available(tensors: Iterable[Tensor]) -> bool:
    """Whether NCCL is there and can work on these tensors together.

    Parameters
    ----------
    tensors
        What is asked about.

    Returns
    -------
    bool
        True if all are dense, contiguous CUDA tensors on different devices; also for none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nccl.is_available([torch.ones(2, device="cuda:0")])
    True
    >>> torch.cuda.nccl.is_available([torch.ones(2)])
    False
    """
    seen = set()
    for tensor in tensors:
        if not (isinstance(tensor, Tensor) and tensor.is_cuda and tensor.is_contiguous()):
            return False
        if tensor.get_device() in seen:
            return False
        seen.add(tensor.get_device())
    return _is_installed()


def _is_installed() -> bool:
    """Whether the library can be used; that it is missing is found out once."""
    global _missing_in
    try:
        library = driver.current().collectives
        if library is not _missing_in:
            library.version()
            return True
    except DriverNotFoundError:
        return False
    except MissingExtraError:
        _missing_in = library
    return False


def unique_id() -> bytes:
    """128 fresh bytes that name a communicator (``ncclGetUniqueId``).

    One rank makes them; all ranks pass them to `init_rank`. Initialises nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> len(torch.cuda.nccl.unique_id())
    128
    """
    return driver.current().collectives.unique_id()


def init_rank(num_ranks: int, uid: bytes, rank: int) -> Communicator:
    """Become one rank of a communicator, on the current device (``ncclCommInitRank``).

    It returns when all ranks have called it, from whichever threads, processes and machines.

    Parameters
    ----------
    num_ranks
        How many ranks there are.
    uid
        What `unique_id` gave to one of them.
    rank
        The number of this one, from 0.

    Returns
    -------
    Communicator
        For the argument ``comms``. It has ``rank``, ``ranks``, ``device``, ``failure()``,
        ``abort()`` and ``destroy()``.

    Raises
    ------
    CollectiveError
        Other ranks did not come within ``FLAMBEAU_NCCL_TIMEOUT`` seconds, or NCCL refused.
    RuntimeError
        The id is not 128 bytes, or the rank is none of `num_ranks`.

    Examples
    --------
    >>> import flambeau as torch
    >>> comm = torch.cuda.nccl.init_rank(1, torch.cuda.nccl.unique_id(), 0)
    >>> x = torch.ones(2, device="cuda")
    >>> torch.cuda.nccl.all_reduce([x], comms=[comm])
    >>> x.tolist()
    [1.0, 1.0]
    """
    library = _library()
    ranks, number = operator.index(num_ranks), operator.index(rank)
    if not isinstance(uid, (bytes, bytearray)):
        raise TypeError(f"uid is the bytes of unique_id(), not a {type(uid).__name__}")
    if len(uid) != _UNIQUE_ID_BYTES:
        raise RuntimeError(f"uid must have 128 bytes, as unique_id() gives, but has {len(uid)}")
    if ranks < 1:
        raise RuntimeError(f"invalid num_ranks {ranks}: a communicator has at least one rank")
    if not 0 <= number < ranks:
        raise RuntimeError(
            f"invalid rank {number}: with num_ranks={ranks} they are 0 to {ranks - 1}"
        )
    device = current_device()
    with on_device(device):
        return library.join(ranks, bytes(uid), number, device, _timeout())


def _communicators(inputs: Sequence[Tensor]) -> Sequence[Communicator]:
    """The communicator of these devices, made at its first use."""
    global _made_by
    library = _library()
    devices = tuple(tensor.get_device() for tensor in inputs)
    with _lock:
        if library is not _made_by:
            _made.clear()
            _made_by = library
        found = _made.get(devices)
        if found is None or any(comm.failure() is not None for comm in found):
            found = _made[devices] = library.join_all(devices, _timeout())
        return found


# -- collectives -----------------------------------------------------------------------------------


class _Collective:
    """The checked arguments that all collectives share."""

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shape: OutputShape | None,
        streams: Sequence[Any] | None,
        comms: Sequence[Communicator] | None,
    ) -> None:
        check_lists(inputs, outputs)
        self.type = type_number(inputs[0].dtype)
        self.streams: list[BaseStream] = streams_for(inputs, streams)
        self.ranks = len(inputs) if comms is None else check_communicators(inputs, comms)
        if shape is not None:
            check_outputs(inputs, outputs, self.ranks, shape)
        self.comms = _communicators(inputs) if comms is None else comms
        for comm in self.comms:
            failure = comm.failure()
            if failure is not None:
                raise CollectiveError(f"this communicator cannot be used any more: {failure}")
        self.inputs, self.outputs = inputs, outputs

    def run(self, name: str, count: int, *more: int) -> None:
        """Call a collective on every communicator of this process."""
        with _library().group():
            for comm, source, target, stream in zip(
                self.comms, self.inputs, self.outputs, self.streams, strict=True
            ):
                with on_device(comm.device):
                    getattr(comm, name)(
                        source.data_ptr(),
                        target.data_ptr(),
                        count,
                        self.type,
                        *more,
                        stream.cuda_stream,
                    )


def all_reduce(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor] | None = None,
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Sequence[Communicator] | None = None,
) -> None:
    """Combine tensors of all ranks and give the result to each (``ncclAllReduce``).

    Parameters
    ----------
    inputs
        One tensor on each GPU, all of one dtype and size. With `comms`, this process's.
    outputs
        Where the results go; by default into `inputs`.
    op
        0 sum, 1 product, 2 maximum, 3 minimum, 4 average. For truth values sum means or, product
        and.
    streams
        For each input the stream to work on; None is its device's current one.
    comms
        For each input its communicator; by default one over the inputs' devices is made and kept.

    Raises
    ------
    TypeError
        `inputs` is not a collection of tensors.
    RuntimeError
        The tensors do not fit each other, or NCCL has no such type or operation.
    CollectiveError
        The communicator has failed.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.arange(3, device="cuda:0")
    >>> torch.cuda.nccl.all_reduce([x])
    >>> x.tolist()
    [0, 1, 2]
    """
    sources = check_sequence(inputs)
    targets = sources if outputs is None else check_sequence(outputs)
    if not sources:
        raise RuntimeError("input sequence can't be empty")
    number = check_operation(op, sources[0].dtype)
    work = _Collective(sources, targets, "alike", streams, comms)
    work.run("all_reduce", sources[0].numel(), number)


def reduce(
    inputs: Sequence[Tensor],
    output: Tensor | Sequence[Tensor] | None = None,
    root: int = 0,
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Sequence[Communicator] | None = None,
    *,
    outputs: Sequence[Tensor] | None = None,
) -> None:
    """Combine tensors of all ranks on the root's GPU (``ncclReduce``).

    Parameters
    ----------
    inputs, op, streams, comms
        As for `all_reduce`.
    output
        Where the result goes, on the root's device; by default into the root's input. A list is
        deprecated, its element `root` is taken.
    root
        The rank that gets it; without `comms`, its place in `inputs`.
    outputs
        Deprecated: as a list for `output`.

    Raises
    ------
    TypeError, RuntimeError, CollectiveError
        As for `all_reduce`; also for a root that there is not.
    ValueError
        Both `output` and `outputs` are given.

    Examples
    --------
    >>> import flambeau as torch
    >>> x, total = torch.ones(3, device="cuda:0"), torch.empty(3, device="cuda:0")
    >>> torch.cuda.nccl.reduce([x], total)
    >>> total.tolist()
    [1.0, 1.0, 1.0]
    """
    sources = check_sequence(inputs)
    if not sources:
        raise RuntimeError("input sequence can't be empty")
    chosen = check_root(root, comms[0].ranks if comms else len(sources))
    result = _reduce_output(output, outputs, chosen)
    targets = list(sources)
    own = [comm.rank for comm in comms] if comms else list(range(len(sources)))
    if result is not None and chosen in own:
        targets[own.index(chosen)] = result
    number = check_operation(op, sources[0].dtype)
    work = _Collective(sources, targets, "alike", streams, comms)
    work.run("reduce", sources[0].numel(), number, chosen)


def _reduce_output(
    output: Tensor | Sequence[Tensor] | None, outputs: Sequence[Tensor] | None, root: int
) -> Tensor | None:
    if outputs is not None and output is not None:
        raise ValueError(
            "'output' and 'outputs' can not be both specified: 'outputs' is the deprecated form "
            "of 'output'"
        )
    several = outputs if outputs is not None else output
    if several is None or isinstance(several, Tensor):
        return several
    warnings.warn(
        "nccl.reduce with an output tensor list is deprecated; give the root's tensor as 'output'",
        FutureWarning,
        stacklevel=3,
    )
    listed = check_sequence(several)
    if root >= len(listed):
        raise RuntimeError(f"invalid root {root}: there are {len(listed)} outputs")
    return listed[root]


def broadcast(
    inputs: Sequence[Tensor],
    root: int = 0,
    streams: Sequence[Any] | None = None,
    comms: Sequence[Communicator] | None = None,
) -> None:
    """Copy the root's tensor into those of all ranks (``ncclBroadcast``).

    Parameters
    ----------
    inputs, streams, comms
        As for `all_reduce`.
    root
        The rank whose values all get; without `comms`, its place in `inputs`.

    Raises
    ------
    TypeError, RuntimeError, CollectiveError
        As for `all_reduce`; also for a root that there is not.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nccl.broadcast([torch.ones(2, device="cuda:0")])
    """
    sources = check_sequence(inputs)
    if not sources:
        raise RuntimeError("input sequence can't be empty")
    chosen = check_root(root, comms[0].ranks if comms else len(sources))
    work = _Collective(sources, sources, "alike", streams, comms)
    work.run("broadcast", sources[0].numel(), chosen)


def all_gather(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    streams: Sequence[Any] | None = None,
    comms: Sequence[Communicator] | None = None,
) -> None:
    """Join the tensors of all ranks on each (``ncclAllGather``).

    Parameters
    ----------
    inputs, streams, comms
        As for `all_reduce`.
    outputs
        One on each GPU, with as many elements as all ranks' inputs together.

    Raises
    ------
    TypeError, RuntimeError, CollectiveError
        As for `all_reduce`.

    Examples
    --------
    >>> import flambeau as torch
    >>> x, joined = torch.ones(2, device="cuda:0"), torch.empty(2, device="cuda:0")
    >>> torch.cuda.nccl.all_gather([x], [joined])
    >>> joined.tolist()
    [1.0, 1.0]
    """
    sources, targets = check_sequence(inputs), check_sequence(outputs)
    work = _Collective(sources, targets, "all", streams, comms)
    work.run("all_gather", sources[0].numel())


def reduce_scatter(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Sequence[Communicator] | None = None,
) -> None:
    """Combine the tensors of all ranks and give each its part (``ncclReduceScatter``).

    Parameters
    ----------
    inputs, op, streams, comms
        As for `all_reduce`.
    outputs
        One on each GPU, with an input's elements divided by the number of ranks.

    Raises
    ------
    TypeError, RuntimeError, CollectiveError
        As for `all_reduce`; also if the inputs cannot be divided equally.

    Examples
    --------
    >>> import flambeau as torch
    >>> x, part = torch.ones(2, device="cuda:0"), torch.empty(2, device="cuda:0")
    >>> torch.cuda.nccl.reduce_scatter([x], [part])
    >>> part.tolist()
    [1.0, 1.0]
    """
    sources, targets = check_sequence(inputs), check_sequence(outputs)
    if not sources:
        raise RuntimeError("input sequence can't be empty")
    number = check_operation(op, sources[0].dtype)
    work = _Collective(sources, targets, "slice", streams, comms)
    work.run("reduce_scatter", targets[0].numel(), number)
