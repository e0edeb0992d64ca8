# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

from flambeau.runtime._tensor import Tensor

def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    shape: tuple[int, int, int, int],
    leading: tuple[int, int, int],
    strides: tuple[int, int, int],
    transpose_a: bool,
    transpose_b: bool,
    alpha: float = 1.0,
    beta: float = 0.0,
    compute: int = -1,
    workspace_bytes: int = 0,
    bias: Tensor | None = None,
) -> bool:
    """``c = alpha * op(a) @ op(b) + beta * c + bias`` on the current stream, `batch` times.

    Parameters
    ----------
    a, b, c
        CUDA tensors of one device and dtype; only their addresses are used.
    shape
        m, n, k and batch.
    leading
        Elements between rows of the stored matrices a, b, c.
    strides
        Elements between batches; 0 repeats a matrix.
    transpose_a, transpose_b
        Whether the stored matrix is the transpose.
    alpha, beta
        Factors; with ``beta=0`` c is not read.
    compute
        Bits of ``gemm_options.hpp``: 0 for the dtype's full precision, 1 for tf32; by default what
        `set_compute` was told.
    workspace_bytes
        Scratch memory that the library may use; 0 leaves it to `set_workspace_bytes`.
    bias
        n elements that are added to every row.

    Returns
    -------
    bool
        False if nothing was done: the library cannot add this bias.
    """

def get_workspace_bytes() -> int:
    """Scratch memory for a product that is worth it, but not large."""

def set_workspace_bytes(size: int) -> None:
    """Set `get_workspace_bytes`."""

def set_cublas_workspace_bytes(size: int) -> None:
    """Size of each kept workspace, and scratch memory of products that go to cuBLAS."""

def set_plain_cublaslt(on: bool) -> None:
    """Whether large products too get only the scratch memory of `set_workspace_bytes`."""

def clear_workspaces() -> None:
    """Give up the workspaces that ``TORCH_CUBLAS_WORKSPACE_CACHE=1`` keeps for threads and streams."""

def set_compute(scalar_type: int, compute: int) -> None:
    """How products of a scalar type are computed from now on, in bits of ``gemm_options.hpp``."""

def get_compute(scalar_type: int) -> int:
    """What `set_compute` was told; 0 before."""

def set_tuner(
    choose: Callable[[int, tuple[int, ...]], tuple[int, int] | None] | None,
) -> None:
    """Have a function choose the algorithms of products, None for nobody.

    It gets the device and the product (``libraries.GemmProblem``'s fields) and answers with an
    algorithm's number and scratch bytes, which are kept until `forget_tuned`; None: not settled.
    """

def forget_tuned() -> None:
    """Ask the tuner again for every product."""

def product(a: object, b: object, bias: object = None) -> Tensor | None:
    """Multiply two matrices on one CUDA device, if they are as simple as they mostly are.

    A bias (n) is added to every row.

    Returns
    -------
    Tensor or None
        None if anything about the operands needs a closer look: subclasses, other dtypes or
        dimensions, strides that a library does not take, empty matrices.
    """
