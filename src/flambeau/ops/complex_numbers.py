# SPDX-License-Identifier: Apache-2.0
"""Complex tensors and their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.common import store_out
from flambeau.ops.registry import METHODS, OPS, inplace_method, public
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

_BOOL = _dtype.dtypes["bool"]


def _check_parts(name: str, first: Tensor, second: Tensor, what: tuple[str, str]) -> None:
    if first.dtype.name not in {"float16", "float32", "float64"}:
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got "
            f"{_dtype.legacy_type_name(first.dtype)} and {_dtype.legacy_type_name(second.dtype)}"
        )
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {_dtype.legacy_type_name(first.dtype)} but got scalar "
            f"type {_dtype.legacy_type_name(second.dtype)} for second argument: {name}() takes "
            f"{what[0]} and {what[1]} of one dtype"
        )


def _joined(op: str, first: Tensor, second: Tensor, out: Tensor | None) -> Tensor:
    of = first.dtype.to_complex()
    return store_out(OPS[op](first.to(of), second.to(of)), out)


@public(method=False)
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Make complex numbers of their parts.

    Parameters
    ----------
    real, imag
        float32 or float64 tensors that broadcast together, of one dtype.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        complex64 or complex128.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.complex(torch.tensor([1.0]), torch.tensor([2.0]))
    tensor([1.+2.j])
    """
    _check_parts("complex", real, imag, ("real", "imag"))
    return _joined("_complex", real, imag, out)


@public(method=False)
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Make complex numbers of their lengths and angles (radians); otherwise like `complex`."""
    _check_parts("polar", abs, angle, ("abs", "angle"))
    return _joined("_polar", abs, angle, out)


@public(method=False)
def view_as_real(input: Tensor) -> Tensor:
    """View complex numbers as pairs of real ones.

    Parameters
    ----------
    input
        A complex tensor.

    Returns
    -------
    Tensor
        A view with one more dimension of size 2: real and imaginary part.
    """
    if not input.is_complex():
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, got {input.dtype!r}"
        )
    pairs: Tensor = input.unsqueeze(-1).view(input.dtype.to_real())
    return pairs


@public(method=False)
def view_as_complex(input: Tensor) -> Tensor:
    """View pairs of real numbers, the last dimension of size 2, as complex ones.

    Raises
    ------
    RuntimeError
        The dtype is not float16, float32 or float64, or the last dimension is not made of
        neighbours, or another stride is odd.
    """
    if input.dtype.name not in {"float16", "float32", "float64"}:
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {_dtype.legacy_type_name(input.dtype)}"
        )
    if input.ndim == 0:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input.stride(-1) != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    joined: Tensor = input.view(input.dtype.to_complex()).squeeze(-1)
    return joined


@public(method=False)
def real(input: Tensor) -> Tensor:
    """View the real parts; a real tensor is returned as it is."""
    return view_as_real(input).select(-1, 0) if input.is_complex() else input


@public(method=False)
def imag(input: Tensor) -> Tensor:
    """View the imaginary parts of a complex tensor."""
    if not input.is_complex():
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, got {input.dtype!r}"
        )
    return view_as_real(input).select(-1, 1)


def _set_real(self: Tensor, value: Any) -> None:
    real(self)[...] = value


def _set_imag(self: Tensor, value: Any) -> None:
    imag(self)[...] = value


METHODS["real"] = property(real, _set_real, doc="The real parts, a view.")  # type: ignore[assignment]
METHODS["imag"] = property(imag, _set_imag, doc="The imaginary parts, a view.")  # type: ignore[assignment]


@public()
def conj(input: Tensor) -> Tensor:
    """Turn the sign of the imaginary parts; a real tensor is returned as it is.

    The result of a complex tensor is a new one, never a lazy view.
    """
    return OPS["conj_physical"](input) if input.is_complex() else input


@public()
def resolve_conj(input: Tensor) -> Tensor:
    """Return the tensor: conjugates are always materialized."""
    return input


@public()
def resolve_neg(input: Tensor) -> Tensor:
    """Return the tensor: negatives are always materialized."""
    return input


@public()
def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part."""
    if input.is_complex():
        return OPS["eq"](imag(input), 0)
    made: Tensor = input.new_full(input.shape, True, dtype=_BOOL)
    return made


@public()
def adjoint(input: Tensor) -> Tensor:
    """Swap the last two dimensions and conjugate."""
    return conj(input.transpose(-2, -1))


def _matrix_adjoint(self: Tensor) -> Tensor:
    if self.ndim != 2:
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor."
        )
    return adjoint(self)


METHODS["H"] = property(_matrix_adjoint, doc="The conjugate transpose of a matrix.")  # type: ignore[assignment]
METHODS["mH"] = property(adjoint, doc="The conjugate transposes of the last two dimensions.")  # type: ignore[assignment]


def _conj_physical_(self: Tensor) -> Tensor:
    """Conjugate this tensor's elements and return it."""
    return OPS["conj_physical"].in_place(self)


inplace_method("conj_physical_", _conj_physical_)


@public()
def is_conj(input: Tensor) -> bool:
    """Return False: conjugates are always materialized."""
    return False


@public()
def is_neg(input: Tensor) -> bool:
    """Return False: negatives are always materialized."""
    return False
