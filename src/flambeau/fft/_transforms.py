# SPDX-License-Identifier: Apache-2.0
"""The discrete Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.fft import _execution as execution
from flambeau.ops.common import store_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.runtime._tensor import Tensor

    Dims = Sequence[int] | None

_PARAMETERS = {
    "one": """
    Parameters
    ----------
    input
        {input}
    n
        The length along `dim`: the input is cut, or filled up with zeros. {length}
    dim
        The dimension.
    norm
        {norm}
    out
        Where to store the result.

    Returns
    -------
    Tensor
        {result}

    Raises
    ------
    RuntimeError
        There is no transform of this dtype, or the length is less than 1.
""",
    "many": """
    Parameters
    ----------
    input
        {input}
    s
        The lengths along `dim`; -1 keeps one. {length}
    dim
        The dimensions{dims}.
    norm
        {norm}
    out
        Where to store the result.

    Returns
    -------
    Tensor
        {result}

    Raises
    ------
    RuntimeError
        There is no transform of this dtype, or a length is less than 1.
""",
}
_FORWARD_NORM = (
    '``"backward"`` (default) does not scale, ``"ortho"`` divides by the root of the number of '
    'points, ``"forward"`` by that number.'
)
_BACKWARD_NORM = (
    '``"backward"`` (default) divides by the number of points, ``"ortho"`` by its root, '
    '``"forward"`` does not scale.'
)


def _one_complex(input: Tensor, n: int | None, dim: int, norm: str | None, forward: bool) -> Tensor:
    dim = execution.one_dim(input, dim)
    lengths = [input.shape[dim] if n is None else n]
    execution.check_lengths(lengths)
    scale = execution.scale_of(norm, forward, lengths)
    given = execution.resized(execution.promoted(input, True), (dim,), lengths)
    return execution.complex_to_complex(given, (dim,), forward, scale)


def _many_complex(input: Tensor, s: Dims, dim: Dims, norm: str | None, forward: bool) -> Tensor:
    dims, lengths = execution.dims_and_lengths(input, s, dim)
    execution.check_lengths(lengths)
    scale = execution.scale_of(norm, forward, lengths)
    given = execution.resized(execution.promoted(input, True), dims, lengths)
    return execution.complex_to_complex(given, dims, forward, scale)


def _to_half_spectrum(
    name: str,
    input: Tensor,
    dims: Sequence[int],
    lengths: Sequence[int],
    norm: str | None,
    forward: bool,
) -> Tensor:
    """Real input; conjugated and scaled as a backward transform unless `forward`."""
    given = execution.promoted(input, False)
    if given.is_complex():
        from flambeau.runtime import _dtype

        raise RuntimeError(
            f"{name} expects a real input tensor, but got {_dtype.legacy_type_name(input.dtype)}"
        )
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    execution.check_lengths(lengths)
    scale = execution.scale_of(norm, forward, lengths)
    result = execution.real_to_complex(execution.resized(given, dims, lengths), dims, scale)
    return result if forward else result.conj_physical()


def _from_half_spectrum(
    name: str,
    input: Tensor,
    dims: Sequence[int],
    lengths: list[int],
    norm: str | None,
    forward: bool,
) -> Tensor:
    """Complex input and real output of `lengths`."""
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    execution.check_lengths(lengths)
    scale = execution.scale_of(norm, forward, lengths)
    kept = [*lengths[:-1], lengths[-1] // 2 + 1]
    given = execution.resized(execution.promoted(input, True), dims, kept)
    if forward:
        given = given.conj_physical()
    return execution.complex_to_real(given, dims, lengths[-1], scale)


def _full_length(input: Tensor, dim: int, n: int | None) -> int:
    return 2 * (input.shape[dim] - 1) if n is None else n


def _full_lengths(input: Tensor, s: Dims, dim: Dims) -> tuple[list[int], list[int]]:
    dims, lengths = execution.dims_and_lengths(input, s, dim)
    if dims and (s is None or s[-1] == -1):
        lengths[-1] = _full_length(input, dims[-1], None)
    return dims, lengths


def fft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return store_out(_one_complex(input, n, dim, norm, True), out)


def ifft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return store_out(_one_complex(input, n, dim, norm, False), out)


def rfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dim = execution.one_dim(input, dim)
    lengths = [input.shape[dim] if n is None else n]
    return store_out(_to_half_spectrum("rfft", input, (dim,), lengths, norm, True), out)


def ihfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dim = execution.one_dim(input, dim)
    lengths = [input.shape[dim] if n is None else n]
    return store_out(_to_half_spectrum("ihfft", input, (dim,), lengths, norm, False), out)


def irfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dim = execution.one_dim(input, dim)
    lengths = [_full_length(input, dim, n)]
    return store_out(_from_half_spectrum("irfft", input, (dim,), lengths, norm, False), out)


def hfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dim = execution.one_dim(input, dim)
    lengths = [_full_length(input, dim, n)]
    return store_out(_from_half_spectrum("hfft", input, (dim,), lengths, norm, True), out)


def fftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return store_out(_many_complex(input, s, dim, norm, True), out)


def ifftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return store_out(_many_complex(input, s, dim, norm, False), out)


def rfftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dims, lengths = execution.dims_and_lengths(input, s, dim)
    return store_out(_to_half_spectrum("rfftn", input, dims, lengths, norm, True), out)


def ihfftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dims, lengths = execution.dims_and_lengths(input, s, dim)
    return store_out(_to_half_spectrum("ihfftn", input, dims, lengths, norm, False), out)


def irfftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dims, lengths = _full_lengths(input, s, dim)
    return store_out(_from_half_spectrum("irfftn", input, dims, lengths, norm, False), out)


def hfftn(
    input: Tensor,
    s: Dims = None,
    dim: Dims = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    dims, lengths = _full_lengths(input, s, dim)
    return store_out(_from_half_spectrum("hfftn", input, dims, lengths, norm, True), out)


def fft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return fftn(input, s, dim, norm, out=out)


def ifft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return ifftn(input, s, dim, norm, out=out)


def rfft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return rfftn(input, s, dim, norm, out=out)


def irfft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return irfftn(input, s, dim, norm, out=out)


def hfft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return hfftn(input, s, dim, norm, out=out)


def ihfft2(
    input: Tensor,
    s: Dims = None,
    dim: Dims = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    return ihfftn(input, s, dim, norm, out=out)


_ANY = "A real or complex tensor; integers become the default floating-point dtype."
_REAL = "A real tensor."
_HALF = "A complex tensor: the first n // 2 + 1 of n frequencies along the last of the dimensions."
# name: what it does, its input, its result, whether it goes forward
_FAMILIES = {
    "fft": ("Transform forward", _ANY, "Complex, all frequencies.", True),
    "ifft": ("Transform backward", _ANY, "Complex.", False),
    "rfft": ("Transform real numbers forward", _REAL, "Complex, half the frequencies.", True),
    "irfft": ("Transform half a spectrum back to real numbers", _HALF, "Real.", False),
    "hfft": ("Transform half of a Hermitian signal forward", _HALF, "Real.", True),
    "ihfft": ("Transform real numbers backward", _REAL, "Complex, the first half.", False),
}
_DIMS = {
    "": "",
    "2": ", the last two by default",
    "n": "; by default all, or as many of the last as `s` has",
}
_EXAMPLE = """
    Examples
    --------
    >>> import flambeau as torch
    >>> torch.fft.fft(torch.ones(4, device="cuda")).abs().tolist()
    [4.0, 0.0, 0.0, 0.0]
"""


def _document() -> None:
    """Give each transform its docstring: they differ only in what this table says."""
    for name, (verb, given, made, forward) in _FAMILIES.items():
        for suffix, how in (("", "one"), ("2", "many"), ("n", "many")):
            function: Callable[..., Tensor] = globals()[name + suffix]
            counted = {"": "one dimension", "2": "two dimensions", "n": "any dimensions"}[suffix]
            full = name in {"irfft", "hfft"}
            length = "By default twice the input's less 2." if full else "By default the input's."
            if full and how == "many":
                length = "By default the input's, and twice that less 2 for the last."
            function.__doc__ = f"{verb} along {counted} (cuFFT).\n" + _PARAMETERS[how].format(
                input=given,
                length=length,
                dims=_DIMS[suffix],
                norm=_FORWARD_NORM if forward else _BACKWARD_NORM,
                result=made,
            ) + (_EXAMPLE if name + suffix == "fft" else "")  # fmt: skip


_document()

__all__ = [name + suffix for name in _FAMILIES for suffix in ("", "2", "n")]
