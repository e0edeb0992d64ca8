# SPDX-License-Identifier: Apache-2.0
"""Frequencies, and spectra with the zero frequency in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.common import store_out, wrap_dim
from flambeau.ops.registry import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype as dtype_
    from flambeau.runtime._tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def _frequencies(
    n: int, d: float, first: int, last: int, out: Tensor | None, options: dict[str, Any]
) -> Tensor:
    from flambeau.ops.promotion import get_default_dtype
    from flambeau.ops.sequences import arange

    requires_grad = options.pop("requires_grad")
    if options["dtype"] is None:
        options["dtype"] = get_default_dtype()
    numbers = arange(first, last, **options)
    result = numbers * (1.0 / (n * d))
    return store_out(result.requires_grad_() if requires_grad else result, out)


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: dtype_ | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Give the frequencies of `fft`'s result, the negative ones last.

    Parameters
    ----------
    n
        The length of the transform.
    d
        The time between two samples; frequencies are in its inverse.
    out
        Where to store the result.
    dtype
        A floating-point dtype, the default one by default.
    layout
        ``torch.strided``, the only one.
    device
        The device, the default one by default.
    requires_grad
        Whether the result takes part in gradients.

    Returns
    -------
    Tensor
        (n).
    """
    options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    rising = _frequencies(n, d, -(n // 2), n - n // 2, None, options)
    return store_out(ifftshift(rising), out)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: dtype_ | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Give the frequencies of `rfft`'s result, (n // 2 + 1); parameters as for `fftfreq`."""
    options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return _frequencies(n, d, 0, n // 2 + 1, out, options)


def _shifted(input: Tensor, dim: int | Sequence[int] | None, back: bool) -> Tensor:
    if dim is None:
        dims = list(range(input.ndim))
    else:
        dims = [wrap_dim(d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    steps = [(input.shape[d] + 1) // 2 if back else input.shape[d] // 2 for d in dims]
    rolled: Tensor = FUNCTIONS["roll"](input, steps, dims)
    return rolled


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Move the zero frequency to the middle of these dimensions, all by default."""
    return _shifted(input, dim, False)


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Undo `fftshift`."""
    return _shifted(input, dim, True)
