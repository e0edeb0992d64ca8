# SPDX-License-Identifier: Apache-2.0
"""Matrices on their way to a solver: checks, column-major copies, and what went wrong."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING

from flambeau.driver.errors import LinAlgError
from flambeau.ops import matmul
from flambeau.ops.common import broadcast_shapes, new_like
from flambeau.ops.library_call import LibraryCall
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.driver.libraries import Solver
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

INT32 = _dtype.dtypes["int32"]
_REAL = {"complex64": "float32", "complex128": "float64"}
_COMPLEX = {"float32": "complex64", "float64": "complex128"}


@functools.cache
def _host_solver() -> Solver:
    from flambeau.driver.host_libraries import HostSolver

    return HostSolver()


def solver_of(tensor: Tensor) -> Solver:
    """The factorizations for a tensor's device."""
    if tensor.device.type == "cpu":
        return _host_solver()
    from flambeau import driver

    return driver.current().libraries.solver


def call_on(tensor: Tensor) -> LibraryCall:
    """A library's call on a tensor's device."""
    return LibraryCall(tensor.get_device())


def real_dtype(of: dtype) -> dtype:
    """The dtype of absolute values."""
    return _dtype.dtypes[_REAL.get(of.name, of.name)]


def complex_dtype(of: dtype) -> dtype:
    """The dtype of eigenvalues."""
    return _dtype.dtypes[_COMPLEX.get(of.name, of.name)]


def conj(tensor: Tensor) -> Tensor:
    """Complex conjugates; the tensor itself if it is real."""
    return tensor.conj_physical() if tensor.is_complex() else tensor


def adjoint(tensor: Tensor) -> Tensor:
    """The conjugate transposes of matrices."""
    return conj(tensor.mT)


def full_product(a: Tensor, b: Tensor) -> Tensor:
    """Products of batches of matrices in their dtype's full precision, whatever is allowed."""
    m, n = a.shape[-2], b.shape[-1]
    batch = a.shape[:-2]
    left, right = (x.reshape(prod(batch), *x.shape[-2:]) for x in (a, b))
    return matmul.product_of_batches(left, right, full_precision=True).reshape(*batch, m, n)


# -- checks --------------------------------------------------------------------------------------


def check_float(name: str, tensor: Tensor, low_precision: bool = False) -> None:
    """Refuse integers and, unless they are fine, half types.

    Raises
    ------
    RuntimeError
        The dtype is not float32, float64, complex64 or complex128.
    """
    known = _dtype.legacy_type_name(tensor.dtype)
    if tensor.dtype.category < 2:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {known}"
        )
    if not low_precision and tensor.dtype.name not in {*_REAL, *_COMPLEX}:
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {known}. Convert with .float() first."
        )


def check_matrix(name: str, tensor: Tensor, argument: str = "A") -> None:
    """Refuse what is not a batch of matrices.

    Raises
    ------
    RuntimeError
        It has fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")


def check_square(name: str, tensor: Tensor, argument: str = "A") -> None:
    """Refuse what is not a batch of square matrices.

    Raises
    ------
    RuntimeError
        It has fewer than two dimensions, or rows and columns differ.
    """
    check_matrix(name, tensor, argument)
    rows, columns = tensor.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"{name}: {argument} must be batches of square matrices, but they are {rows} by "
            f"{columns} matrices"
        )


def check_pair(name: str, a: Tensor, b: Tensor) -> None:
    """Refuse two tensors of different dtypes or devices.

    Raises
    ------
    RuntimeError
        They differ.
    """
    from flambeau.ops.common import same_device

    same_device(a, b)
    if a.dtype != b.dtype:
        names = [_dtype.legacy_type_name(t.dtype) for t in (a, b)]
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {names[0]} and "
            f"B of type {names[1]} instead"
        )


def raise_failures(name: str, info: Tensor, problem: str) -> None:
    """Look at a solver's statuses; waits for the device.

    Parameters
    ----------
    name
        Of the function.
    info
        int32, one for each matrix.
    problem
        The sentence about a matrix, with ``{0}`` for its status.

    Raises
    ------
    LinAlgError
        One is not 0.
    """
    if not info.numel():
        return
    statuses = info.reshape(-1).tolist()
    if not any(statuses):
        return
    for element, status in enumerate(statuses):
        if status:
            where = f"(Batch element {element}): " if info.ndim else ""
            raise LinAlgError(f"{name}: {where}{problem.format(status)}")


# -- memory --------------------------------------------------------------------------------------


def batch_of(tensor: Tensor) -> int:
    """How many matrices."""
    return prod(tensor.shape[:-2])


def columns_of(tensor: Tensor) -> Tensor:
    """A copy of matrices whose own transposes are contiguous: column-major ones."""
    shape = (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2])
    return new_like(tensor, shape).copy_(tensor.mT)


def new_info(tensor: Tensor) -> Tensor:
    """Room for the status of each matrix, 0 for now."""
    return new_like(tensor, tensor.shape[:-2], INT32).fill_(0)


def broadcast_batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of matrices with the same leading dimensions."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def identity(like: Tensor, n: int, batch: Sequence[int] = ()) -> Tensor:
    """Unit matrices of a tensor's dtype on its device."""
    from flambeau.ops.creation import eye

    one = eye(n, dtype=like.dtype, device=like.device)
    return one.expand(*batch, n, n) if batch else one
