# SPDX-License-Identifier: Apache-2.0
"""Virtual GPUs: turn them on, choose how their work is ordered, make things fail.

A virtual GPU executes the same kernels as a real one, on the CPU. Time on it is modelled, never
measured. ``FLAMBEAU_VIRTUAL=[MODEL][:N]`` in the environment, or `enable`, gives a process N of
them in the place of real GPUs; ``CUDA_VISIBLE_DEVICES`` chooses among them as usual.

Examples
--------
>>> import flambeau as torch
>>> torch.virtual.enable("h200", 2)
>>> torch.cuda.get_device_name(0)
'Virtual NVIDIA H200'
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Literal

from flambeau.driver.virtual.models import MODELS, DeviceModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flambeau.driver.virtual.checks import CheckError, CheckReport, Checks, CheckWarning

__all__ = [
    "CheckError",
    "CheckReport",
    "CheckWarning",
    "DeviceModel",
    "checks",
    "clear_faults",
    "clock",
    "enable",
    "inject",
    "is_enabled",
    "link_traffic",
    "lose_device",
    "models",
    "reset",
    "schedule",
    "set_progress",
    "set_schedule",
]

DeviceModel.__module__ = __name__


def checks(*names: str, mode: Literal["raise", "warn", "collect"] = "raise") -> Checks:
    """Watch each access to device memory inside a ``with`` block.

    Kernels run from separate, slower code meanwhile; outside they run as ever. Work that is pending
    when the block begins and ends is waited for.

    Parameters
    ----------
    *names
        ``"memory"``: accesses outside of tensors and to freed ones. ``"init"``: kernels that read
        what nobody has written. ``"race"``: accesses that nothing orders. ``"all"``, the default:
        all three.
    mode
        What becomes of reports when the block ends. ``"raise"``: `CheckError` with all of them.
        ``"warn"``: a `CheckWarning` for each. ``"collect"``: they are only kept.

    Returns
    -------
    Checks
        A context manager. It gives itself, with a list ``reports`` of `CheckReport`, and
        ``collect()`` to fill that before the block ends.

    Raises
    ------
    ValueError
        There is no such check or mode.
    RuntimeError
        This process uses real GPUs.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.virtual.checks("init", mode="collect") as found:
    ...     total = torch.empty(4, device="cuda").sum()
    >>> found.reports[0].problem
    'that nobody has written'
    """
    from flambeau import driver
    from flambeau.driver.virtual import checks as own
    from flambeau.driver.virtual import config
    from flambeau.driver.virtual.driver import VirtualDriver

    current = driver.peek()
    if current is not None and not isinstance(current, VirtualDriver):
        raise RuntimeError(
            "checks see the accesses of virtual GPUs, and this process uses real ones; "
            "run it with FLAMBEAU_VIRTUAL=1, or use NVIDIA's compute-sanitizer"
        )
    if mode not in {"raise", "warn", "collect"}:
        raise ValueError(f"mode is 'raise', 'warn' or 'collect', not {mode!r}")
    return own.Checks(config.parse_checks(",".join(names or ("all",))), mode)


def __getattr__(name: str) -> Any:
    if name in {"CheckError", "CheckReport", "CheckWarning"}:
        from flambeau.driver.virtual import checks as own

        return getattr(own, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def models() -> Mapping[str, DeviceModel]:
    """The device models that can be asked for by name.

    Returns
    -------
    Mapping of str to DeviceModel
        Name, such as ``"h200"``, to figures. ``dataclasses.replace`` makes a model of your own
        from one of them, and `enable` takes it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.virtual.models()["h200"].multiprocessors
    132
    """
    from types import MappingProxyType

    return MappingProxyType(MODELS)


def enable(model: str | DeviceModel = "h200", count: int = 1) -> None:
    """Use virtual GPUs in this process. Call it before the first CUDA call.

    Parameters
    ----------
    model
        A name out of `models`, or a model of your own.
    count
        How many devices, 1 to 64.

    Raises
    ------
    ValueError
        There is no such model, or the count is out of range.
    RuntimeError
        This process already uses other devices. `reset` gives up virtual ones.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.virtual.enable("h200", 2)
    >>> torch.cuda.device_count()
    2
    """
    from flambeau import driver
    from flambeau.driver.virtual import _machine, config
    from flambeau.driver.virtual import driver as virtual_driver

    kind = model if isinstance(model, DeviceModel) else config.find_model(model)
    plan = config.Plan((kind,) * config.check_count(count))
    current = driver.peek()
    if _machine.is_running() and isinstance(current, virtual_driver.VirtualDriver):
        if current.plan != plan:
            have = f"{len(current.plan.models)} x {current.plan.models[0].name}"
            raise RuntimeError(
                f"{count} x {kind.name} were asked for, but this process already runs on {have}. "
                f"Enable virtual GPUs before the first CUDA call, or call flambeau.virtual.reset()."
            )
        return
    driver.prefer_virtual()
    virtual_driver.request(plan)
    if current is not None:
        driver.replace(virtual_driver.VirtualDriver(plan))


def is_enabled() -> bool:
    """Whether CUDA calls of this process go, or will go, to virtual GPUs.

    Returns
    -------
    bool
        True after `enable`, and where ``FLAMBEAU_VIRTUAL`` is set.
    """
    from flambeau import driver
    from flambeau.driver.virtual.driver import VirtualDriver, requested_plan

    current = driver.peek()
    return isinstance(current, VirtualDriver) if current else requested_plan() is not None


def reset() -> None:
    """Give up the machine; the next CUDA call starts a fresh one, as if in a new process.

    The clock starts at 0, lost contexts and planned faults are gone, the schedule is again what
    ``FLAMBEAU_SCHEDULE`` says. Tensors, streams, events and modules of before must not be used any
    more, though dropping them is harmless, and no other thread may be in a CUDA call. It does
    nothing in a child that was forked from a process with a machine, and nothing if there is none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.virtual.reset()
    >>> torch.cuda.is_initialized()
    False
    """
    from flambeau import driver
    from flambeau.driver import _table
    from flambeau.driver.virtual import _machine
    from flambeau.driver.virtual import driver as virtual_driver

    _table.clear_faults()
    virtual_driver.request_schedule(None)
    _machine.set_progress(True)
    runtime = sys.modules.get("flambeau.runtime.lazy_init")
    if runtime is not None and _machine.is_running():
        runtime.forget()
    current = driver.peek()
    if isinstance(current, virtual_driver.VirtualDriver):
        _machine.reset(current.modules)
        driver.replace(virtual_driver.VirtualDriver())


def set_schedule(policy: str) -> None:
    """Choose the order in which virtual GPUs do work that may be done in several orders.

    Parameters
    ----------
    policy
        ``"fifo"``: as it was submitted. ``"random:SEED"``: any work that is ready, the same for the
        same seed. ``"adversarial"``: only what somebody waits for, the newest first, everything
        else as late as CUDA permits; a missing wait shows as a wrong result.

    Raises
    ------
    ValueError
        There is no such policy.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.virtual.set_schedule("fifo")
    """
    from flambeau.driver.virtual import config
    from flambeau.driver.virtual import driver as virtual_driver

    virtual_driver.request_schedule(config.parse_schedule(policy))


@contextlib.contextmanager
def schedule(policy: str) -> Iterator[None]:
    """Use a schedule policy inside a ``with`` block.

    Parameters
    ----------
    policy
        As for `set_schedule`.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.virtual.schedule("adversarial"):
    ...     total = torch.ones(4, device="cuda").sum().item()
    >>> total
    4.0
    """
    from flambeau.driver.virtual import driver as virtual_driver

    before = virtual_driver.requested_schedule()
    set_schedule(policy)
    try:
        yield
    finally:
        virtual_driver.request_schedule(before)


def set_progress(on: bool) -> None:
    """Whether work that nobody waits for starts by itself after 20 ms without a CUDA call.

    Parameters
    ----------
    on
        True, the default, lets a host that watches page-locked memory, or another process, always
        get on. False makes a test fully repeatable: only waits and queries run work.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.virtual.set_progress(True)
    """
    from flambeau.driver.virtual import _machine

    _machine.set_progress(bool(on))


def clock() -> int:
    """The host's modelled time.

    Returns
    -------
    int
        Nanoseconds since the machine started; 0 before that. CUDA calls move it on, and waits move
        it to the end of what was waited for. It has nothing to do with time on the wall.
    """
    from flambeau.driver.virtual import _machine

    return _machine.clock()


def link_traffic() -> dict[tuple[int, int], int]:
    """What collectives of this process have sent over the links between virtual GPUs.

    Returns
    -------
    dict
        Bytes since the process began, by the physical indices of the GPU that sent and the next in
        its ring.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(1000, device="cuda")
    >>> torch.cuda.nccl.all_reduce([x])
    >>> (0, 0) in torch.virtual.link_traffic()  # one GPU sends nothing
    False
    """
    from flambeau.driver.virtual import collectives

    return collectives.link_traffic()


def inject(entry: str, status: int, nth: int = 1, times: int = 1) -> None:
    """Make driver calls fail.

    Parameters
    ----------
    entry
        The Driver API's name, such as ``"cuMemAlloc"``, without a version suffix.
    status
        What the call answers, for example 2 for out of memory.
    nth
        The first call to fail, counted from 1 from now on.
    times
        How many calls fail from there on.

    Raises
    ------
    ValueError
        No entry has this name, or a count is below 1.
    """
    from flambeau import driver
    from flambeau.driver import _table

    driver.current()
    _table.inject(entry, status=status, nth=nth, times=times)


def clear_faults() -> None:
    """Forget the failures that `inject` planned. Lost devices stay lost."""
    from flambeau.driver import _table

    _table.clear_faults()


def lose_device(index: int, status: int = 999) -> None:
    """Lose a device, as if it had fallen off the bus: every later call on it fails.

    Parameters
    ----------
    index
        The device, as ``cuda:index``.
    status
        What its calls answer; by default ``CUDA_ERROR_UNKNOWN``.

    Raises
    ------
    AcceleratorError
        Error 3: the machine has not started. Error 101: it has no such device.
    """
    from flambeau.driver.virtual import _machine

    _machine.lose_device(index, status)
