# SPDX-License-Identifier: Apache-2.0
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
    compute: int = 0,
) -> None:
    """``c = alpha * op(a) @ op(b) + beta * c`` on the current stream, `batch` times.

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
        0 for the dtype's full precision, 1 for tf32.
    """

def product(a: object, b: object, compute: int = 0) -> Tensor | None:
    """Multiply two matrices on one CUDA device, if they are as simple as they mostly are.

    Returns
    -------
    Tensor or None
        None if anything about the operands needs a closer look: subclasses, other dtypes or
        dimensions, strides that a library does not take, empty matrices.
    """
