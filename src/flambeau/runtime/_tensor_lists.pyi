# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence

from flambeau.runtime._tensor import Tensor

def same_kind(lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether tensors can be done by one kernel, group by group.

    They must be on one CUDA device and of one floating-point dtype, take no part in gradients that
    are recorded, and those of a group have the same sizes and strides and no gaps.

    Parameters
    ----------
    lists
        The k-th tensors of all lists are a group.

    Raises
    ------
    ValueError
        The lists differ in length.
    """

def mark_all_written(tensors: Iterable[Tensor]) -> None:
    """Count an in-place write to each tensor."""

def tables(
    capacity: int,
    chunk: int,
    lists: Sequence[Sequence[Tensor]],
    addresses: Sequence[Sequence[int]],
    numbers: Sequence[Sequence[float]],
) -> list[tuple[bytes, int, int]]:
    """Make the ``TensorTable`` structs of ``foreach.cuh`` for the groups that are not empty.

    Parameters
    ----------
    capacity
        Groups in one table.
    chunk
        Elements that a block does.
    lists, addresses, numbers
        One list for each operand, address and number of a group.

    Returns
    -------
    list of tuple
        The struct, its groups and its blocks.
    """
