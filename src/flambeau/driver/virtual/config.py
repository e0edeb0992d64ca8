# SPDX-License-Identifier: Apache-2.0
"""What virtual machine was asked for: by environment or by call, and what that means."""

from __future__ import annotations

import os
from typing import NamedTuple

from flambeau.driver.virtual.models import MODELS, DeviceModel

__all__ = [
    "CHECKS",
    "DEFAULT_MODEL",
    "MAX_DEVICES",
    "Plan",
    "Schedule",
    "parse_checks",
    "parse_plan",
    "parse_schedule",
]

DEFAULT_MODEL = "h200"
MAX_DEVICES = 64
CHECKS = ("memory", "init", "race")
_POLICIES = "fifo, random:SEED, adversarial"
_GRAMMAR = "[MODEL][:N]"


class Plan(NamedTuple):
    """Which devices a machine has.

    Parameters
    ----------
    models
        One per device.
    """

    models: tuple[DeviceModel, ...]


class Schedule(NamedTuple):
    """In which order ready work runs.

    Parameters
    ----------
    policy
        ``"fifo"``, ``"random"`` or ``"adversarial"``.
    seed
        For ``"random"``.
    """

    policy: str
    seed: int = 0

    def __str__(self) -> str:
        return f"random:{self.seed}" if self.policy == "random" else self.policy


def find_model(name: str, models: dict[str, DeviceModel] = MODELS) -> DeviceModel:
    """The model of this name, in any case."""
    found = models.get(name.strip().lower())
    if found is None:
        raise ValueError(
            f"there is no device model {name!r}; there are {', '.join(sorted(models))}"
        )
    return found


def check_count(count: int) -> int:
    """A number of devices that a machine can have."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"a virtual machine has 1 to {MAX_DEVICES} devices, not {count!r}")
    return count


def parse_plan(text: str) -> Plan:
    """Read the grammar of ``FLAMBEAU_VIRTUAL``.

    Parameters
    ----------
    text
        ``[MODEL][:N]``: ``"h200:2"``, ``"l4"``, ``":4"``; a number alone is a count. Nothing, or
        ``"1"``, is one H200.

    Returns
    -------
    Plan
        The devices.

    Raises
    ------
    ValueError
        An unknown model or a count out of range.
    """
    name, colon, number = text.strip().partition(":")
    if not colon and name.isdigit():
        name, number = "", name
    elif colon and not number:
        raise ValueError(
            f"{text!r} ends after its colon; virtual devices are asked for as {_GRAMMAR}"
        )
    if number and not number.strip().isdigit():
        raise ValueError(
            f"{number!r} in {text!r} is not a number of devices; they are asked for as {_GRAMMAR}"
        )
    count = check_count(int(number)) if number else 1
    return Plan((find_model(name or DEFAULT_MODEL),) * count)


def parse_schedule(text: str) -> Schedule:
    """Read ``fifo``, ``random:SEED`` or ``adversarial``."""
    policy, colon, seed = text.strip().lower().partition(":")
    if policy in {"fifo", "adversarial"} and not colon:
        return Schedule(policy)
    if policy == "random" and seed.isdigit() and int(seed) < 1 << 64:
        return Schedule(policy, int(seed))
    if policy == "random":
        raise ValueError(f"{text!r} needs a seed of 0 to 2**64 - 1, such as 'random:7'")
    raise ValueError(f"there is no schedule policy {text!r}; there are {_POLICIES}")


def parse_checks(text: str) -> int:
    """Read ``memory,init,race`` or ``all``, as ``FLAMBEAU_CHECK`` has it; the bits of the checks.

    Raises
    ------
    ValueError
        There is no such check.
    """
    bits = 0
    for word in text.lower().replace(" ", "").split(","):
        if word == "all":
            bits |= (1 << len(CHECKS)) - 1
        elif word in CHECKS:
            bits |= 1 << CHECKS.index(word)
        elif word:
            raise ValueError(f"there is no check {word!r}; there are {', '.join(CHECKS)} and all")
    return bits


def environment_plan() -> Plan | None:
    """The machine that ``FLAMBEAU_VIRTUAL`` asks for; None if it is unset or empty."""
    text = os.environ.get("FLAMBEAU_VIRTUAL", "")
    return parse_plan(text) if text.strip() else None


def environment_schedule() -> Schedule:
    """The policy that ``FLAMBEAU_SCHEDULE`` names; fifo if it is unset or empty."""
    text = os.environ.get("FLAMBEAU_SCHEDULE", "")
    return parse_schedule(text) if text.strip() else Schedule("fifo")
