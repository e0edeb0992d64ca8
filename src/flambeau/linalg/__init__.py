# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: ``torch.linalg`` on cuSOLVER and cuBLAS, on virtual GPUs and on the host.

Matrices are the last two dimensions, the others are batches. Results that are matrices lie
column-major in memory, as the solvers leave them.
"""

from __future__ import annotations

from flambeau.driver.errors import LinAlgError
from flambeau.linalg._factorizations import (
    cholesky,
    cholesky_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
)
from flambeau.linalg._norms import cond, matrix_norm, norm, vector_norm
from flambeau.linalg._orthogonal import householder_product, qr
from flambeau.linalg._products import (
    cross,
    diagonal,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    tensorinv,
    tensorsolve,
    vander,
    vecdot,
)
from flambeau.linalg._solving import (
    det,
    inv,
    inv_ex,
    lstsq,
    matrix_rank,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
)
from flambeau.linalg._spectral import eig, eigh, eigvals, eigvalsh, svd, svdvals

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

for _name in __all__:
    globals()[_name].__module__ = "flambeau.linalg"
