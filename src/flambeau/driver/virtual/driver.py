# SPDX-License-Identifier: Apache-2.0
"""The virtual driver: the contract on a machine that executes PTX on the CPU."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from flambeau.driver.contract import CodeTarget
from flambeau.driver.virtual import _machine, config
from flambeau.driver.virtual.activity import VirtualActivity
from flambeau.driver.virtual.management import VirtualManagement
from flambeau.driver.virtual.modules import VirtualModules

if TYPE_CHECKING:
    from flambeau.driver.contract import Collectives, Feature, Files, GreenContexts
    from flambeau.driver.virtual.config import Plan
    from flambeau.driver.virtual.libraries import VirtualLibraries

__all__ = ["VirtualDriver"]

_FEATURES: frozenset[Feature] = frozenset(
    {
        "fault_details",
        "graph_node_ids",
        "green_contexts",
        "ipc_memory",
        "ipc_events",
        "virtual_memory",
    }
)


class VirtualDriver:
    """A driver whose devices are virtual.

    Parameters
    ----------
    plan
        The devices; by default what ``flambeau.virtual.enable`` or ``FLAMBEAU_VIRTUAL`` asked for,
        else one H200.
    """

    name = "virtual"

    def __init__(self, plan: Plan | None = None) -> None:
        plan = plan or requested_plan() or config.parse_plan("")
        if not _machine.is_running():
            _machine.configure(plan.models, os.cpu_count() or 1)
            schedule = _requested_schedule or config.environment_schedule()
            _machine.set_schedule(schedule.policy, schedule.seed)
            if os.environ.get("FLAMBEAU_CHECK", "").strip() and not _machine.checks():
                _check_all_along(os.environ["FLAMBEAU_CHECK"])
        self.plan = plan
        self.modules = VirtualModules()
        self.management = VirtualManagement(plan)
        self.activity = VirtualActivity()

    @functools.cached_property
    def collectives(self) -> Collectives:
        """Collectives over the modelled links."""
        from flambeau.driver.virtual.collectives import VirtualCollectives

        models = self.plan.models
        visible = self._visible()
        return VirtualCollectives([models[index].peer_bandwidth for index in visible], visible)

    @functools.cached_property
    def green_contexts(self) -> GreenContexts:
        """Contexts whose kernels take their part of a device's time."""
        from flambeau.driver.virtual.green_context import VirtualGreenContexts

        models = self.plan.models
        return VirtualGreenContexts([models[index].multiprocessors for index in self._visible()])

    @functools.cached_property
    def files(self) -> Files:
        """Real files, read and written from device memory."""
        from flambeau.driver.virtual.cufile import VirtualFiles

        return VirtualFiles()

    def _visible(self) -> list[int]:
        """The physical indices of the devices that this process sees, by ordinal."""
        models = self.plan.models
        uuids = [_machine.device_uuid(model.name, i) for i, model in enumerate(models)]
        return _machine.visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)

    def table(self) -> int:
        """The address of the machine's table of entries."""
        return _machine.table()

    @functools.cached_property
    def libraries(self) -> VirtualLibraries:
        """The math libraries, computed with NumPy and SciPy."""
        from flambeau.driver.virtual.libraries import VirtualLibraries

        return VirtualLibraries()

    def supports(self, feature: Feature) -> bool:
        """Whether virtual GPUs offer a feature."""
        if feature == "block_bounds":
            return _machine.checks() != 0
        return feature in _FEATURES

    def code_target(self, device: int) -> CodeTarget:
        """PTX for compute_80, whatever the model: its instructions are those that are executed."""
        return CodeTarget("ptx", "compute_80")

    def explain(self, status: int) -> str | None:
        """What is known of the last failure with this status: kernel, thread, address, stream."""
        return _machine.explain(status)

    def shutdown(self) -> None:
        """Stop the machine's thread; calls answer status 4 afterwards.

        What checks found and nobody asked for is written to stderr first.
        """
        if _machine.checks():
            from flambeau.driver.virtual import checks

            checks.print_summary()
        _machine.shutdown(self.modules)


def _check_all_along(text: str) -> None:
    """Turn on what ``FLAMBEAU_CHECK`` asks for."""
    from flambeau.driver.virtual import checks

    checks.turn(config.parse_checks(text))


_requested_plan: Plan | None = None
_requested_schedule: config.Schedule | None = None


def requested_plan() -> Plan | None:
    """The machine that was asked for by call or by environment; None if nobody did."""
    return _requested_plan or config.environment_plan()


def request(plan: Plan | None) -> None:
    """Remember what `flambeau.virtual.enable` was asked for."""
    global _requested_plan
    _requested_plan = plan


def requested_schedule() -> config.Schedule | None:
    """The policy that was asked for by call; None if nobody did."""
    return _requested_schedule


def request_schedule(schedule: config.Schedule | None) -> None:
    """Remember a policy, and apply it; None goes back to what ``FLAMBEAU_SCHEDULE`` says."""
    global _requested_schedule
    _requested_schedule = schedule
    applied = schedule or config.environment_schedule()
    _machine.set_schedule(applied.policy, applied.seed)
