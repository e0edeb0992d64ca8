# SPDX-License-Identifier: Apache-2.0
"""Keeping gradients small."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from flambeau.ops import shapes
from flambeau.ops.foreach import FOREACH
from flambeau.ops.grad_mode import no_grad
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [parameter.grad for parameter in given if parameter.grad is not None]


def _alike(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors by device and dtype."""
    kinds: defaultdict[Any, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        kinds[tensor.get_device(), tensor.dtype].append(tensor.detach())
    return list(kinds.values())


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Compute the norm of several tensors as if they were one vector.

    Parameters
    ----------
    tensors
        One or several.
    norm_type
        The norm's order.
    error_if_nonfinite
        Whether to raise if it is infinite or NaN, which waits for the device.
    foreach
        Accepted; tensors of one kind are always done together.

    Raises
    ------
    RuntimeError
        It is not finite.
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not given:
        return empty((1,)).zero_().reshape(())
    with no_grad():
        norms: list[Tensor] = []
        for alike in _alike(given):
            norms += FOREACH["_foreach_norm"](alike, norm_type)
        first = norms[0]
        total: Tensor = shapes.stack([norm.to(first.device) for norm in norms]).norm(norm_type)
    if error_if_nonfinite and not bool(total.isfinite().item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Shorten gradients, in place, by what their norm is above `max_norm`."""
    with no_grad():
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for alike in _alike(_grads(parameters)):
            there = factor.to(device=alike[0].device, dtype=alike[0].dtype)
            FOREACH["_foreach_mul_"](alike, there)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Shorten the gradients of parameters, in place, so that their norm is at most `max_norm`.

    Parameters
    ----------
    parameters
        One or several.
    max_norm
        The greatest norm.
    norm_type, error_if_nonfinite, foreach
        As for `get_total_norm`.

    Returns
    -------
    Tensor
        The norm before, of all gradients as if they were one vector. Nothing waits for the device.

    Examples
    --------
    >>> import flambeau as torch
    >>> weight = torch.nn.Parameter(torch.zeros(2, device="cuda"))
    >>> weight.grad = torch.tensor([3.0, 4.0], device="cuda")
    >>> torch.nn.utils.clip_grad_norm_([weight], 1.0).item()
    5.0
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit the gradients' elements, in place, to ``-clip_value`` … ``clip_value``."""
    with no_grad():
        for alike in _alike(_grads(parameters)):
            FOREACH["_foreach_clamp_min_"](alike, -clip_value)
            FOREACH["_foreach_clamp_max_"](alike, clip_value)
