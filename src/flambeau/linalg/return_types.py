# SPDX-License-Identifier: Apache-2.0
"""Named tuples that matrix functions with several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops.return_types import _Shown

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "geqrf",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_eigh",
    "linalg_inv_ex",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor",
    "linalg_lu_factor_ex",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve_ex",
    "linalg_svd",
    "svd",
    "triangular_solve",
]


class _LU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class _Packed(NamedTuple):
    LU: Tensor
    pivots: Tensor


class _PackedInfo(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


class _Cholesky(NamedTuple):
    L: Tensor
    info: Tensor


class _QR(NamedTuple):
    Q: Tensor
    R: Tensor


class _SVD(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class _OldSVD(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


class _Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class _Inverse(NamedTuple):
    inverse: Tensor
    info: Tensor


class _Solution(NamedTuple):
    result: Tensor
    info: Tensor


class _LeastSquares(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class _LogDeterminant(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class _Reflectors(NamedTuple):
    a: Tensor
    tau: Tensor


class _Triangular(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


class geqrf(_Shown, _Reflectors):  # noqa: N801 - torch's names
    """R and Householder vectors, and their factors."""


class triangular_solve(_Shown, _Triangular):  # noqa: N801
    """Solutions, and a copy of the triangles."""


class linalg_lu(_Shown, _LU):  # noqa: N801 - torch's names
    """Factors of ``P @ L @ U``."""


class linalg_lu_factor(_Shown, _Packed):  # noqa: N801
    """Packed factors and row exchanges."""


class linalg_lu_factor_ex(_Shown, _PackedInfo):  # noqa: N801
    """Packed factors, row exchanges and statuses."""


class linalg_cholesky_ex(_Shown, _Cholesky):  # noqa: N801
    """Factors and statuses."""


class linalg_qr(_Shown, _QR):  # noqa: N801
    """Factors of ``Q @ R``."""


class linalg_svd(_Shown, _SVD):  # noqa: N801
    """Factors of ``U @ diag(S) @ Vh``."""


class svd(_Shown, _OldSVD):  # noqa: N801
    """Factors of ``U @ diag(S) @ V.mH``."""


class linalg_eigh(_Shown, _Eigen):  # noqa: N801
    """Real eigenvalues, ascending, and orthonormal eigenvectors in columns."""


class linalg_eig(_Shown, _Eigen):  # noqa: N801
    """Complex eigenvalues and eigenvectors in columns."""


class linalg_inv_ex(_Shown, _Inverse):  # noqa: N801
    """Inverses and statuses."""


class linalg_solve_ex(_Shown, _Solution):  # noqa: N801
    """Solutions and statuses."""


class linalg_lstsq(_Shown, _LeastSquares):  # noqa: N801
    """Solutions, squared residuals, ranks and singular values; what was not computed is empty."""


class linalg_slogdet(_Shown, _LogDeterminant):  # noqa: N801
    """Signs and logarithms of absolute values."""
