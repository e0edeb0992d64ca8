# SPDX-License-Identifier: Apache-2.0
"""Checks of derivatives against finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A derivative is not what finite differences say."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    return [
        out for out in _tuple(func(*inputs)) if isinstance(out, Tensor) and out.dtype.category >= 2
    ]


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], of: Tensor, eps: float
) -> list[Tensor]:
    """For each output the Jacobian (elements of the input) x (elements of the output)."""
    flat = of.detach().view(-1)
    columns: list[list[Tensor]] = []
    with flambeau.no_grad():
        for k in range(flat.numel()):
            kept = flat[k].item()
            sides = []
            for shift in (eps, -eps):
                flat[k] = kept + shift
                sides.append([out.clone().reshape(-1) for out in _outputs(func, inputs)])
            flat[k] = kept
            columns.append([(high - low) / (2 * eps) for high, low in zip(*sides, strict=True)])
    return [flambeau.stack([column[j] for column in columns]) for j in range(len(columns[0]))]


def _analytical(out: Tensor, of: Tensor) -> Tensor:
    rows = []
    for k in range(out.numel()):
        seed = flambeau.zeros(out.shape, dtype=out.dtype, device=out.device)
        seed.reshape(-1)[k] = 1
        (found,) = flambeau.autograd.grad(out, of, seed, retain_graph=True, allow_unused=True)
        rows.append(
            flambeau.zeros(of.numel(), dtype=of.dtype, device=of.device)
            if found is None
            else found.reshape(-1)
        )
    found_rows: Tensor = (
        flambeau.stack(rows, 1) if rows else flambeau.zeros(of.numel(), 0, dtype=of.dtype)
    )
    return found_rows


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of a function with central differences.

    Parameters
    ----------
    func
        Takes the inputs and gives a tensor or several.
    inputs
        Those that require grad are varied; use float64. Contiguous, without overlaps.
    eps
        How far an element is moved.
    atol, rtol
        How far the two may be apart.
    raise_exception
        Whether to raise instead of giving False.
    nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, fast_mode
        Accepted; every element is compared.

    Returns
    -------
    bool
        Whether they agree.

    Raises
    ------
    GradcheckError
        They do not.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, x)
    True
    """
    given = _tuple(inputs)
    varied = [one for one in given if isinstance(one, Tensor) and one.requires_grad]
    if not varied:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    try:
        _compare(func, given, varied, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    varied: Sequence[Tensor],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    for number, one in enumerate(varied):
        numerical = _numerical(func, inputs, one, eps) if one.numel() else []
        for j, (out, expected) in enumerate(zip(_outputs(func, inputs), numerical, strict=False)):
            if not out.requires_grad:
                found = flambeau.zeros_like(expected)
            else:
                found = _analytical(out, one)
            if not flambeau.allclose(found, expected, rtol, atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {j} with respect to input {number},\n"
                    f"numerical:{expected}\nanalytical:{found}\n"
                )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Compare second derivatives with differences of the first; parameters as for `gradcheck`."""
    given = _tuple(inputs)
    outputs = [out for out in _outputs(func, given) if out.requires_grad]
    if grad_outputs is None:
        seeds = [
            flambeau.rand(out.shape, dtype=out.dtype, device=out.device).requires_grad_()
            for out in outputs
        ]
    else:
        seeds = list(_tuple(grad_outputs))
    count = len(given)

    def first(*args: Any) -> tuple[Tensor, ...]:
        with flambeau.enable_grad():
            values = list(args[:count])
            outs = [out for out in _outputs(func, values) if out.requires_grad]
            wanted = [a for a in values if isinstance(a, Tensor) and a.requires_grad]
            found: tuple[Tensor, ...] = flambeau.autograd.grad(
                outs,
                wanted,
                list(args[count:]),
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            return found

    return gradcheck(
        first, (*given, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception
    )
