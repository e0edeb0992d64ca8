# SPDX-License-Identifier: Apache-2.0
"""Matrix products: one library call per product, whatever the strides, when they allow it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from flambeau.ops import small_products  # noqa: F401 - the compiled part asks it
from flambeau.ops.common import broadcast_shapes, new_like, same_device, store_out
from flambeau.ops.registry import METHODS, OPS, inplace_method, public
from flambeau.runtime import _dtype, _matmul

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

FULL_PRECISION, TF32, BF16X9 = 0, 1, 2  # GEMM_FULL and its kin in gemm_options.hpp
_AS_GIVEN, _KIND = 0x40, 0xF
_SINGLE = [_dtype.dtypes[name].code for name in ("float32", "complex64")]


def set_float32_compute(compute: int) -> None:
    """Choose how float32 products are computed: `FULL_PRECISION`, `TF32` or `BF16X9`."""
    for code in _SINGLE:
        _matmul.set_compute(code, compute)


def get_float32_compute() -> int:
    """How float32 products are computed."""
    return _matmul.get_compute(_SINGLE[0])


def _shape_text(*tensors: Tensor) -> str:
    return " and ".join("x".join(str(n) for n in t.shape) for t in tensors)


def _check_operands(name: str, *tensors: Tensor) -> None:
    same_device(*tensors)
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            raise RuntimeError(
                f"{name}: expected m1 and m2 to have the same dtype, but got: "
                f"{_dtype.legacy_type_name(first.dtype)} != {_dtype.legacy_type_name(other.dtype)}"
            )
    if first.device.type != "cpu" and (first.dtype.category < 2 or first.dtype.itemsize == 1):
        raise NotImplementedError(
            f"\"{name}_cuda\" not implemented for '{_dtype.legacy_type_name(first.dtype)}': CUDA "
            "devices multiply floating-point matrices; convert with .float() or .double()"
        )


def _stored(matrix: Tensor) -> tuple[Tensor, bool, int]:
    """A matrix (last two dims) as the library wants it: whether transposed, and leading dim."""
    rows, columns = matrix.shape[-2:]
    row_step, column_step = matrix.stride()[-2:]
    if (column_step == 1 or columns == 1) and row_step >= max(1, columns):
        return matrix, False, row_step
    if (row_step == 1 or rows == 1) and column_step >= max(1, rows):
        return matrix, True, column_step
    matrix = matrix.contiguous()
    return matrix, False, max(1, columns)


def _run(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    alpha: float,
    beta: float,
    compute: int = -1,
    bias: Tensor | None = None,
) -> bool:
    """``c = alpha * a @ b + beta * c + bias`` with 3-d tensors; c has contiguous rows.

    Returns
    -------
    bool
        False if nothing was done because the library cannot add this bias.
    """
    batch, m, n = c.shape
    k = a.shape[-1]
    if c.numel() == 0:
        return True
    if k == 0:
        OPS["mul"].in_place(c, beta) if beta else c.fill_(0)
        return True
    if c.device.type == "cpu":
        from flambeau.ops import host_matmul

        host_matmul.run(a, b, c, alpha, beta)
        return True
    a, transpose_a, lda = _stored(a)
    b, transpose_b, ldb = _stored(b)
    steps = (0 if batch == 1 else a.stride(0), 0 if batch == 1 else b.stride(0))
    return _matmul.gemm(
        a,
        b,
        c,
        (m, n, k, batch),
        (lda, ldb, max(1, c.stride(1))),
        (*steps, 0 if batch == 1 else c.stride(0)),
        transpose_a,
        transpose_b,
        alpha,
        beta,
        compute,
        0,
        bias,
    )


def _into(result: Tensor, out: Tensor | None) -> Tensor:
    """The result, in the caller's `out`, whose dtype products do not convert to."""
    if out is not None and out.dtype != result.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead"
        )
    return store_out(result, out)


def _product(a: Tensor, b: Tensor, compute: int = -1) -> Tensor:
    """Product of two 3-d tensors whose batches broadcast."""
    batch = max(a.shape[0], b.shape[0]) if a.shape[0] and b.shape[0] else 0
    c = new_like(a, (batch, a.shape[1], b.shape[2]))
    if batch:
        a, b = a.expand(batch, -1, -1), b.expand(batch, -1, -1)
    _run(a, b, c, 1.0, 0.0, compute)
    return c


def product_of_batches(a: Tensor, b: Tensor, full_precision: bool = False) -> Tensor:
    """Multiply two 3-d tensors of one dtype; in full precision even where less is allowed."""
    return _product(a, b, _AS_GIVEN | FULL_PRECISION if full_precision else -1)


def _check_2d(a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_shape_text(a, b)})")


@public()
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply two matrices.

    Parameters
    ----------
    input
        (n, m).
    mat2
        (m, p), of the same dtype and device.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        (n, p). On CUDA the dtype must be a floating-point one (cuBLAS).
    """
    simple = _matmul.product(input, mat2) if out is None and input.ndim == 2 else None
    if simple is not None:
        return simple
    for position, matrix in enumerate((input, mat2)):
        if matrix.ndim != 2:
            name = ("self", "mat2")[position]
            raise RuntimeError(f"{name} must be a matrix, got {matrix.ndim} dimensions")
    _check_2d(input, mat2)
    _check_operands("mm", input, mat2)
    return _into(_product(input.unsqueeze(0), mat2.unsqueeze(0)).squeeze(0), out)


@public()
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply batches of matrices: (b, n, m) by (b, m, p)."""
    simple = _matmul.product(input, mat2) if out is None and input.ndim == 3 else None
    if simple is not None:
        return simple
    if input.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError(
            f"batch1 and batch2 must be 3D tensors, got {input.ndim} and {mat2.ndim} dimensions"
        )
    if input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        expected = [input.shape[0], input.shape[2]]
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {expected} but got: "
            f"{list(mat2.shape[:2])}."
        )
    _check_operands("bmm", input, mat2)
    return _into(_product(input, mat2), out)


@public()
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply a matrix (n, m) by a vector (m)."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {vec.ndim} dimensions"
        )
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({_shape_text(input)}), "
            f"vec ({vec.shape[0]})"
        )
    _check_operands("addmv_impl", input, vec)
    return _into(_product(input.unsqueeze(0), vec.reshape(1, -1, 1), _AS_GIVEN).reshape(-1), out)


@public()
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply two vectors of one length."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype != tensor.dtype:
        names = [_dtype.legacy_type_name(t.dtype) for t in (input, tensor)]
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {names[0]} and {names[1]}"
        )
    if input.shape[0] != tensor.shape[0]:
        raise RuntimeError(
            "inconsistent tensor size, expected tensor "
            f"[{input.shape[0]}] and src [{tensor.shape[0]}] to have the same number of elements"
        )
    _check_operands("dot", input, tensor)
    return _into(
        _product(input.reshape(1, 1, -1), tensor.reshape(1, -1, 1), _AS_GIVEN).reshape(()), out
    )


@public()
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply matrices, vectors and batches of matrices.

    Parameters
    ----------
    input, other
        Vectors or matrices; leading dimensions are batches and broadcast. A vector on the left is a
        row, on the right a column, and that dimension is dropped from the result.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        Of the operands' dtype, which must agree. On CUDA a floating-point one (cuBLAS).

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(2, 3, device="cuda")
    >>> (x @ torch.ones(3, device="cuda")).tolist()
    [3.0, 3.0]
    """
    simple = _matmul.product(input, other) if out is None else None
    if simple is not None:
        return simple
    if input.ndim == 0 or other.ndim == 0:
        raise RuntimeError(
            "both arguments to matmul need to be at least 1D, but they are "
            f"{input.ndim}D and {other.ndim}D"
        )
    if input.ndim == 1 and other.ndim == 1:
        return dot(input, other, out=out)
    a = input.unsqueeze(0) if input.ndim == 1 else input
    b = other.unsqueeze(1) if other.ndim == 1 else other
    _check_2d(a, b)
    _check_operands("addmm" if a.ndim == 2 and b.ndim == 2 else "baddbmm", a, b)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    # A matrix times a vector keeps the dtype's precision, and is not tuned.
    compute = _AS_GIVEN if 1 in {input.ndim, other.ndim} else -1
    result = _batched(a, b, batch, compute)
    if input.ndim == 1:
        result = result.squeeze(-2)
    if other.ndim == 1:
        result = result.squeeze(-1)
    return _into(result, out)


def _batched(a: Tensor, b: Tensor, batch: tuple[int, ...], compute: int = -1) -> Tensor:
    m, n = a.shape[-2], b.shape[-1]
    if b.ndim == 2 and a.ndim > 2 and a.is_contiguous():
        # One matrix for all batches: a single tall product.
        tall = a.reshape(prod(a.shape[:-1]), a.shape[-1])
        return _product(tall.unsqueeze(0), b.unsqueeze(0), compute).reshape(*a.shape[:-1], n)
    a, b = (_flat_batch(matrix, batch) for matrix in (a, b))
    return _product(a, b, compute).reshape(*batch, m, n)


def _flat_batch(matrix: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Leading dims broadcast to `batch` and merged into one; a single matrix stays single."""
    if prod(matrix.shape[:-2]) == 1 and prod(batch) != 0:
        return matrix.reshape(1, *matrix.shape[-2:])
    full = matrix.expand(*batch, *matrix.shape[-2:])
    return full.reshape(prod(batch), *matrix.shape[-2:])


def _blended(input: Tensor, product: Tensor, beta: complex, alpha: complex) -> Tensor:
    """``beta * input + alpha * product`` with complex factors, which the libraries' calls lack."""
    if not product.is_complex():
        raise RuntimeError(
            f"value cannot be converted to type {product.dtype} without overflow: "
            f"beta={beta} and alpha={alpha} need complex tensors"
        )
    scaled: Tensor = product * alpha
    return OPS["_add"](scaled, input * beta) if beta else scaled


def _accumulated(
    input: Tensor, a: Tensor, b: Tensor, shape: tuple[int, ...], beta: complex, alpha: complex
) -> Tensor:
    if complex in (type(alpha), type(beta)):
        return _blended(input, _product(a, b).reshape(shape), beta, alpha)
    if beta == 1 and input.ndim == 1 and len(shape) == 2:
        made = _with_bias(a, b, input, alpha.real)
        if made is not None:
            return made
    result = new_like(a, shape)
    if beta:
        result.copy_(input.expand(shape))
    as_3d = result if result.ndim == 3 else result.unsqueeze(0)
    _run(a, b, as_3d, float(alpha.real), float(beta.real))
    return result


@public()
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``beta * input + alpha * mat1 @ mat2``.

    Parameters
    ----------
    input
        Broadcasts to (n, p); not read if `beta` is 0.
    mat1, mat2
        (n, m) and (m, p).
    beta, alpha
        Factors.
    out
        Where to store the result.
    """
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix, got {matrix.ndim}-D tensor")
    _check_2d(mat1, mat2)
    _check_operands("addmm", mat1, mat2, input)
    shape = (mat1.shape[0], mat2.shape[1])
    a, b = mat1.unsqueeze(0), mat2.unsqueeze(0)
    return _into(_accumulated(input, a, b, shape, beta, alpha), out)


@public()
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``beta * input + alpha * batch1 @ batch2`` for batches of matrices."""
    if batch1.ndim != 3 or batch2.ndim != 3 or batch1.shape[0] != batch2.shape[0]:
        raise RuntimeError(
            "batch1 and batch2 must be 3D tensors with one batch size, got "
            f"{_shape_text(batch1, batch2)}"
        )
    _check_2d(batch1, batch2)
    _check_operands("baddbmm", batch1, batch2, input)
    shape = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    return _into(_accumulated(input, batch1, batch2, shape, beta, alpha), out)


def _with_bias(a: Tensor, b: Tensor, bias: Tensor, alpha: float = 1.0) -> Tensor | None:
    """Multiply two 3-d tensors, adding a vector to each row; None if no library call does it all.

    It is rounded once, after the addition.
    """
    _, m, k = a.shape
    n = b.shape[-1]
    if (
        bias.shape != (n,)
        or a.device.type == "cpu"
        or min(m, n, k) < 2
        or not bias.is_contiguous()
        or bias.data_ptr() % 16  # the library reads 16 bytes at a time
        or bias.dtype != a.dtype
        or not a.dtype.is_floating_point
        or _matmul.get_compute(a.dtype.code) & _KIND > TF32
    ):
        return None
    result = new_like(a, (m, n))
    done = _run(a, b, result.unsqueeze(0), float(alpha), 0.0, -1, bias)
    return result if done else None


def affine(input: Tensor, mat2: Tensor, bias: Tensor) -> Tensor:
    """Compute ``input @ mat2 + bias``, in one library call where there is one.

    Parameters
    ----------
    input, mat2
        What `matmul` takes.
    bias
        Added to every row.
    """
    simple = _matmul.product(input, mat2, bias)
    if simple is not None:
        return simple
    if (
        (input.ndim, mat2.ndim) == (2, 2)
        and input.shape[1] == mat2.shape[0]
        and input.device == mat2.device == bias.device
        and input.dtype == mat2.dtype
    ):
        made = _with_bias(input.unsqueeze(0), mat2.unsqueeze(0), bias)
        if made is not None:
            return made
    return OPS["_add"].in_place(matmul(input, mat2), bias)


@public()
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply every element of one vector with every element of another."""
    return OPS["mul"](input.unsqueeze(1), vec2.unsqueeze(0), out=out)


def _addmm_(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Compute `addmm` with this tensor as input, in place."""
    return self.copy_(addmm(self, mat1, mat2, beta=beta, alpha=alpha))


inplace_method("addmm_", _addmm_)
METHODS["ger"] = outer
