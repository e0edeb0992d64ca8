# SPDX-License-Identifier: Apache-2.0
"""The arguments of a split of multiprocessors, each for all groups or one for each."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.driver.contract import SplitRequest

if TYPE_CHECKING:
    from flambeau.driver.contract import MultiprocessorSet

__all__ = ["split_requests"]


def split_requests(
    num_sms: Any,
    coscheduled: Any,
    preferred: Any,
    backfill: Any,
    domains: Any,
    whole: MultiprocessorSet,
    domain_count: int,
) -> list[SplitRequest]:
    """Make one request for each group.

    Raises
    ------
    ValueError
        Sequences of several lengths, an empty one, a negative number, or ``num_sms=0`` with
        backfill before the last group.
    RuntimeError
        More is asked for than there is, or a locality domain that there is not.
    """
    given = {
        "num_sms": num_sms,
        "coscheduled_sm_count": coscheduled,
        "preferred_coscheduled_sm_count": preferred,
        "backfill": backfill,
        "locality_domain_ids": domains,
    }
    count = _group_count(given)
    columns = {name: _spread(value, count) for name, value in given.items()}
    for name in ("num_sms", "coscheduled_sm_count", "preferred_coscheduled_sm_count"):
        columns[name] = [_number(name, value) for value in columns[name]]
    _check_domains(columns["locality_domain_ids"], domain_count)
    fills = [bool(value) for value in columns["backfill"]]
    wanted = columns["num_sms"]
    if any(size == 0 and fill for size, fill in list(zip(wanted, fills, strict=True))[:-1]):
        raise ValueError("num_sms=0 with backfill takes all that is left: only the last group may")
    if sum(wanted) > whole.count:
        raise RuntimeError(
            f"Invalid number of SMs requested for green context: {' + '.join(map(str, wanted))} = "
            f"{sum(wanted)} (there are {whole.count} SMs)"
        )
    return [
        SplitRequest(*values)
        for values in zip(
            wanted,
            columns["coscheduled_sm_count"],
            columns["preferred_coscheduled_sm_count"],
            fills,
            strict=True,
        )
    ]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _group_count(given: dict[str, Any]) -> int:
    lengths = {name: len(value) for name, value in given.items() if _is_sequence(value)}
    if not lengths:
        return 1
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"sequences must have the same length, one value for each group: {told}")
    count = next(iter(lengths.values()))
    if count == 0:
        raise ValueError("a split needs at least one group, but the sequences are empty")
    return count


def _spread(value: Any, count: int) -> list[Any]:
    return list(value) if _is_sequence(value) else [value] * count


def _number(name: str, value: Any) -> int:
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def _check_domains(domains: list[Any], count: int) -> None:
    for domain in domains:
        if domain is not None and not 0 <= operator.index(domain) < count:
            raise RuntimeError(
                f"locality domain {domain} was asked for, but the device has {count}, numbered "
                "from 0"
            )
