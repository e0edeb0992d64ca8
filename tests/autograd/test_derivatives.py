# SPDX-License-Identifier: Apache-2.0
"""Every derivative against finite differences in float64, first and second ones."""

import operator
from typing import Any

import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck

S = tuple[tuple[int, ...], float, float]


def R(*shape: int, lo: float = 0.3, hi: float = 1.7) -> S:  # noqa: N802 - random numbers, as a spec
    """Say that an input has this shape and random numbers between two bounds."""
    return shape, lo, hi


def made(spec: S, device: str) -> torch.Tensor:
    shape, low, high = spec
    values = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    return values.to(device).requires_grad_()


class _Fixed:
    """Indices and masks, on the device under test."""

    def __getattr__(self, name: str) -> Any:
        values = {
            "i": [[0, 2], [1, 0]],
            "iv": [2, 0, 2],
            "two": [2, 0],
            "m": [[True, False, True], [False, True, True]],
        }
        return torch.tensor(values[name], device=self.device)

    device = "cpu"


F = _Fixed()


def set_item(whole: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    whole[index] = value
    return whole


def parts(values: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs; others as they are."""
    return torch.view_as_real(values) if values.is_complex() else values


def written(whole: torch.Tensor, write: Any) -> torch.Tensor:
    write(whole)
    return whole


UNARY = [
    "neg",
    "positive",
    "abs",
    "sign",
    "reciprocal",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "asin",
    "acos",
    "atan",
    "atanh",
    "sigmoid",
    "erf",
    "erfc",
    "erfinv",
    "deg2rad",
    "rad2deg",
    "floor",
    "ceil",
    "trunc",
    "frac",
    "relu",
    "square",
    "lgamma",
    "sinc",
    "logit",
    "nan_to_num",
    "round",
    "i0",
    "digamma",
    "sgn",
    "angle",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "remainder",
    "fmod",
    "pow",
    "hypot",
    "atan2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "copysign",
    "xlogy",
    "logaddexp",
    "logaddexp2",
    "nextafter",
]

CASES: dict[str, tuple[Any, tuple[S, ...]]] = {
    **{name: (getattr(torch, name), (R(2, 3, lo=0.1, hi=0.9),)) for name in UNARY},
    **{name: (getattr(torch, name), (R(2, 3), R(3))) for name in BINARY},
    "acosh": (torch.acosh, (R(3, lo=1.2, hi=3),)),
    "add of a multiple": (lambda a, b: torch.add(a, b, alpha=3), (R(2, 3), R(2, 1))),
    "3 - a": (lambda a: 3 - a, (R(3),)),
    "3 / a": (lambda a: 3 / a, (R(3),)),
    "2.5 ** a": (lambda a: 2.5**a, (R(3),)),
    "a ** 2": (lambda a: a**2, (R(3),)),
    "a ** -1.5": (lambda a: a**-1.5, (R(3),)),
    "lerp": (torch.lerp, (R(3), R(3), R(3))),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=2.0), (R(3), R(3), R(2, 3))),
    "addcdiv": (lambda a, b, c: torch.addcdiv(a, b, c, value=2.0), (R(3), R(3), R(2, 3))),
    "clamp": (lambda a: a.clamp(0.5, 1.2), (R(9),)),
    "clamp by tensors": (torch.clamp, (R(9), R(9, lo=0.3, hi=0.9), R(9, lo=1.0, hi=1.5))),
    "clamp from below": (lambda a: a.clamp(min=0.8), (R(5),)),
    "where": (lambda a, b: torch.where(F.m, a, b), (R(2, 3), R(3))),
    "masked_fill": (lambda a, b: a.masked_fill(F.m, b), (R(2, 3), R())),
    "trigamma": (lambda a: a.polygamma(1), (R(3),)),
    "polygamma": (lambda a: torch.polygamma(3, a), (R(3),)),
    "igamma": (lambda a: torch.igamma(torch.tensor(1.5).to(a), a), (R(3),)),
    "igammac": (lambda a: torch.igammac(torch.tensor(0.7).to(a), a), (R(3),)),
    "frexp": (lambda a: torch.frexp(a).mantissa, (R(3),)),
    "div rounded down": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (R(3), R(3))),
    "div rounded to 0": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (R(3), R(3))),
    "complex": (lambda a, b: parts(torch.complex(a, b) ** 2), (R(2, 3), R(3))),
    "polar": (lambda a, b: parts(torch.polar(a, b)), (R(2, 3), R(3))),
    "view_as_complex": (lambda a: parts(torch.view_as_complex(a).exp()), (R(3, 2),)),
    "prelu of a number": (torch.nn.functional.prelu, (R(), R(1))),
    # views
    "view": (lambda a: a.view(3, 2) * 2, (R(2, 3),)),
    "reshape": (lambda a: a.t().reshape(-1), (R(2, 3),)),
    "transpose": (lambda a: a.transpose(0, 1), (R(2, 3),)),
    "T": (lambda a: a.T, (R(2, 3),)),
    "mT": (lambda a: a.mT, (R(2, 3),)),
    "permute": (lambda a: a.permute(2, 0, 1), (R(2, 3, 2),)),
    "movedim": (lambda a: a.movedim(0, 2), (R(2, 3, 2),)),
    "squeeze": (lambda a: a.squeeze(), (R(2, 1, 3),)),
    "unsqueeze": (lambda a: a.unsqueeze(1), (R(2, 3),)),
    "expand": (lambda a: a.expand(4, 2, 3), (R(2, 1),)),
    "expand_as": (lambda a: a.expand_as(F.m), (R(3),)),
    "narrow": (lambda a: a.narrow(1, 1, 2), (R(2, 3),)),
    "select": (lambda a: a.select(1, 1), (R(2, 3),)),
    "a[1]": (lambda a: a[1], (R(2, 3),)),
    "a[:, ::2]": (lambda a: a[:, ::2], (R(2, 3),)),
    "a[None, ..., 1]": (lambda a: a[None, ..., 1], (R(2, 3),)),
    "diagonal": (lambda a: a.diagonal(), (R(3, 3),)),
    "unfold": (lambda a: a.unfold(0, 3, 1), (R(5),)),
    "as_strided": (lambda a: a.as_strided((3, 3), (1, 1)), (R(5),)),
    "split": (lambda a: a.split(2), (R(5, 2),)),
    "one part of split": (lambda a: a.split([1, 3], 1)[1], (R(2, 4),)),
    "chunk": (lambda a: a.chunk(3)[2], (R(5, 2),)),
    "unbind": (lambda a: a.unbind(1)[1], (R(2, 3),)),
    "tensor_split": (lambda a: torch.tensor_split(a, 3)[1], (R(5),)),
    # joined and rearranged
    "cat": (lambda a, b: torch.cat([a, b], 1), (R(2, 3), R(2, 1))),
    "stack": (lambda a, b: torch.stack([a, b], 1), (R(2, 3), R(2, 3))),
    "vstack": (lambda a, b: torch.vstack([a, b]), (R(3), R(3))),
    "repeat": (lambda a: a.repeat(2, 1, 2), (R(2, 3),)),
    "tile": (lambda a: a.tile(2), (R(3),)),
    "repeat_interleave": (lambda a: a.repeat_interleave(2, 0), (R(2, 3),)),
    "flip": (lambda a: a.flip(0, 1), (R(2, 3),)),
    "roll": (lambda a: a.roll(1, 0), (R(3, 2),)),
    "roll of all": (lambda a: a.roll(1), (R(3, 2),)),
    "rot90": (torch.rot90, (R(2, 3),)),
    "tril": (torch.tril, (R(3, 3),)),
    "triu": (torch.triu, (R(3, 3),)),
    "diag": (torch.diag, (R(3),)),
    "trace": (torch.trace, (R(3, 3),)),
    "diff": (torch.diff, (R(4),)),
    "meshgrid": (torch.meshgrid, (R(2), R(3))),
    "cartesian_prod": (torch.cartesian_prod, (R(2), R(3))),
    "contiguous": (lambda a: a.t().contiguous(), (R(2, 3),)),
    "clone": (lambda a: a.clone(), (R(3),)),
    # reductions
    "sum": (torch.sum, (R(2, 3),)),
    "sum along": (lambda a: a.sum((0, 2), keepdim=True), (R(2, 3, 2),)),
    "mean": (torch.mean, (R(2, 3),)),
    "mean along": (lambda a: a.mean(0), (R(2, 3),)),
    "prod": (torch.prod, (R(2, 3),)),
    "prod along": (lambda a: a.prod(1), (R(2, 3),)),
    "prod with a zero": (
        lambda a: (a * torch.tensor([0.0, 1, 2], device=a.device)).prod(),
        (R(3),),
    ),
    "nansum": (torch.nansum, (R(3),)),
    "nanmean": (torch.nanmean, (R(3),)),
    "var": (torch.var, (R(5),)),
    "var along": (lambda a: a.var(1, correction=0, keepdim=True), (R(2, 3),)),
    "std": (lambda a: a.std(0), (R(3, 2),)),
    "var_mean": (torch.var_mean, (R(5),)),
    "norm": (torch.norm, (R(2, 3),)),
    "norm of order 1": (lambda a: a.norm(1, 1), (R(2, 3),)),
    "norm of order 3": (lambda a: a.norm(3, 0), (R(2, 3),)),
    "norm of order inf": (lambda a: a.norm(float("inf")), (R(2, 3),)),
    "logsumexp": (lambda a: a.logsumexp(1), (R(2, 3),)),
    "max": (torch.max, (R(2, 3),)),
    "max along": (lambda a: a.max(1).values, (R(2, 3),)),
    "max of two": (torch.max, (R(3), R(3))),
    "min along": (lambda a: a.min(0, keepdim=True).values, (R(2, 3),)),
    "amax": (lambda a: a.amax(1), (R(2, 3),)),
    "aminmax": (lambda a: tuple(a.aminmax(dim=1)), (R(2, 3),)),
    "median": (torch.median, (R(5),)),
    "median along": (lambda a: a.median(1).values, (R(2, 3),)),
    "sort": (lambda a: a.sort(1, descending=True).values, (R(2, 3),)),
    "msort": (torch.msort, (R(3, 2),)),
    "topk": (lambda a: a.topk(2).values, (R(2, 4),)),
    "kthvalue": (lambda a: a.kthvalue(2).values, (R(2, 4),)),
    "cumsum": (lambda a: a.cumsum(1), (R(2, 3),)),
    "cumprod": (lambda a: a.cumprod(1), (R(2, 3),)),
    "logcumsumexp": (lambda a: a.logcumsumexp(1), (R(2, 3),)),
    "cov": (lambda a, b: torch.cov(a, aweights=b), (R(2, 4), R(4))),
    "corrcoef": (lambda a: torch.corrcoef(a)[0, 1], (R(2, 4),)),
    # products
    "mm": (torch.mm, (R(2, 3), R(3, 4))),
    "a @ b.t()": (lambda a, b: a @ b.t(), (R(2, 3), R(4, 3))),
    "bmm": (torch.bmm, (R(2, 2, 3), R(2, 3, 2))),
    "mv": (torch.mv, (R(2, 3), R(3))),
    "dot": (torch.dot, (R(3), R(3))),
    "vector @ matrix": (torch.matmul, (R(3), R(3, 2))),
    "batch @ matrix": (torch.matmul, (R(2, 2, 3), R(3, 2))),
    "batch @ vector": (torch.matmul, (R(2, 2, 3), R(3))),
    "batches that broadcast": (torch.matmul, (R(2, 1, 2, 3), R(3, 3, 2))),
    "addmm": (
        lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2),
        (R(4), R(2, 3), R(3, 4)),
    ),
    "baddbmm": (torch.baddbmm, (R(2, 2, 2), R(2, 2, 3), R(2, 3, 2))),
    "outer": (torch.outer, (R(2), R(3))),
    # indices
    "a[indices]": (lambda a: a[F.iv], (R(3, 2),)),
    "a[:, indices]": (lambda a: a[:, F.iv], (R(2, 3),)),
    "a[mask]": (lambda a: a[F.m], (R(2, 3),)),
    "a[lists]": (lambda a: a[[0, 1, 1], [2, 0, 0]], (R(2, 3),)),
    "index_select": (lambda a: a.index_select(0, F.iv), (R(3, 2),)),
    "gather": (lambda a: a.gather(1, F.i), (R(2, 3),)),
    "take": (lambda a: a.take(F.i), (R(2, 3),)),
    "take_along_dim": (lambda a: torch.take_along_dim(a, F.i, 1), (R(2, 3),)),
    "scatter": (lambda a, b: a.scatter(1, F.i, b), (R(2, 3), R(2, 2))),
    "scatter_add": (lambda a, b: a.scatter_add(1, F.i, b), (R(2, 3), R(2, 2))),
    "index_add": (lambda a, b: a.index_add(0, F.iv, b, alpha=2), (R(3, 2), R(3, 2))),
    "index_copy": (lambda a, b: a.index_copy(0, F.two, b), (R(3, 2), R(2, 2))),
    "index_fill": (lambda a: a.index_fill(0, F.iv, 3.0), (R(3, 2),)),
    "index_fill by a tensor": (lambda a, b: a.index_fill(0, F.iv, b), (R(3, 2), R())),
    "scatter_reduce": (
        lambda a, b: a.scatter_reduce(1, F.i, b, "mean", include_self=False),
        (R(2, 3), R(2, 2)),
    ),
    **{
        f"scatter_reduce, {way}": (
            lambda a, b, way=way: a.scatter_reduce(1, F.i, b, way),
            (R(2, 3), R(2, 2)),
        )
        for way in ("amax", "amin", "prod")
    },
    "scatter_reduce, prod with zeros": (
        lambda a, b: (a * torch.arange(3, device=a.device)).scatter_reduce(
            1, F.i, b * torch.arange(2, device=a.device), "prod"
        ),
        (R(2, 3), R(2, 2)),
    ),
    "scatter_reduce, amax without the target": (
        lambda a, b: a.scatter_reduce(1, F.i, b, "amax", include_self=False),
        (R(2, 3), R(2, 2)),
    ),
    **{
        f"index_reduce, {way}": (
            lambda a, b, way=way: a.index_reduce(0, F.iv, b, way, include_self=way != "prod"),
            (R(3, 2), R(3, 2)),
        )
        for way in ("mean", "amax", "amin", "prod")
    },
    "index_select of a number": (
        lambda a: a.index_select(0, torch.zeros(1, dtype=torch.int64, device=a.device)),
        (R(),),
    ),
    "unfold of a number": (lambda a: a.unfold(0, 1, 1), (R(),)),
    "no combinations": (lambda a: torch.combinations(a, 4) + a.sum(), (R(3),)),
    "stack of a tensor": (torch.stack, (R(2, 3),)),
    "fmax of a number": (lambda a: torch.fmax(a, torch.tensor(0.5).to(a)), (R(3),)),
    "einsum": (lambda a, b: torch.einsum("bij,bj->b", a, b), (R(2, 3, 2), R(2, 2))),
    "det": (torch.det, (R(3, 3),)),
    "softmax": (lambda a: a.softmax(1), (R(2, 3),)),
    "index_put": (lambda a, b: a.index_put((F.two,), b), (R(3, 2), R(2, 2))),
    "index_put that adds": (
        lambda a, b: a.index_put((F.iv,), b, accumulate=True),
        (R(3, 2), R(3, 2)),
    ),
    "put": (lambda a, b: a.put(F.two, b), (R(3, 2), R(2))),
    "masked_select": (lambda a: a.masked_select(F.m), (R(2, 3),)),
    # in place
    "add_": (lambda a, b: (a * 1).add_(b), (R(3), R(3))),
    "+=": (lambda a, b: operator.iadd(a * 1, b), (R(3), R(3))),
    "mul_": (lambda a, b: (a * 1).mul_(b), (R(3), R(3))),
    "div_": (lambda a, b: (a * 1).div_(b), (R(3), R(3))),
    "pow_": (lambda a: (a * 1).pow_(3), (R(3),)),
    "exp_": (lambda a: (a * 1).exp_(), (R(3),)),
    "clamp_": (lambda a: (a * 1).clamp_(0.5, 1.0), (R(5),)),
    "copy_": (lambda a, b: (a * 1).copy_(b), (R(2, 3), R(3))),
    "zero_": (lambda a: (a * 1).zero_() + a, (R(3),)),
    "fill_": (lambda a, b: (a * 1).fill_(b), (R(3), R())),
    "cumsum_": (lambda a: (a * 1).cumsum_(0), (R(3),)),
    "masked_fill_": (lambda a: (a * 1).masked_fill_(F.m, 2.0), (R(2, 3),)),
    "masked_scatter_": (lambda a, b: (a * 1).masked_scatter_(F.m, b), (R(2, 3), R(6))),
    "scatter_": (lambda a, b: (a * 1).scatter_(1, F.i, b), (R(2, 3), R(2, 2))),
    "index_add_": (lambda a, b: (a * 1).index_add_(0, F.iv, b), (R(3, 2), R(3, 2))),
    "tril_": (lambda a: (a * 1).tril_(), (R(3, 3),)),
    "a row multiplied in place": (
        lambda a, b: written(a * 1, lambda x: x[1].mul_(b)),
        (R(2, 3), R(3)),
    ),
    "a row set to zero": (lambda a: written(a * 1, lambda x: x[0].zero_()), (R(2, 3),)),
    "a[1] = b": (lambda a, b: set_item(a * 1, 1, b), (R(2, 3), R(3))),
    "a[indices] = b": (lambda a, b: set_item(a * 1, F.two, b), (R(3, 2), R(2, 2))),
    "constant[1] = b": (
        lambda b: set_item(torch.zeros(2, 3, dtype=b.dtype, device=b.device), 1, b),
        (R(3),),
    ),
}


COMPLEX_UNARY = [
    "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "abs", "conj", "cos", "cosh",
    "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "neg", "reciprocal", "rsqrt",
    "sgn", "sigmoid", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "real", "imag",
]  # fmt: skip
COMPLEX_BINARY = ["add", "sub", "mul", "div", "pow"]
MATRIX, OTHER = R(3, 3, 2), R(3, 3, 2)


def of_complex(function: Any) -> Any:
    """A function of complex numbers as one of their parts."""
    return lambda *pairs: parts(function(*(torch.view_as_complex(pair) for pair in pairs)))


COMPLEX: dict[str, tuple[Any, tuple[S, ...]]] = {
    **{n: (getattr(torch, n), (R(2, 3, 2, lo=0.2, hi=0.8),)) for n in COMPLEX_UNARY},
    **{n: (getattr(torch, n), (R(2, 3, 2), R(3, 2))) for n in COMPLEX_BINARY},
    "2j * a": (lambda a: 2j * a, (R(3, 2),)),
    "a ** 2.5": (lambda a: a**2.5, (R(3, 2),)),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=2j), (R(3, 2), R(3, 2))),
    "matmul": (torch.matmul, (MATRIX, OTHER)),
    "matrix @ vector": (torch.matmul, (MATRIX, R(3, 2))),
    "bmm": (torch.bmm, (R(2, 2, 3, 2), R(2, 3, 2, 2))),
    "addmm": (lambda a, b: torch.addmm(a, a, b, alpha=2), (MATRIX, OTHER)),
    "mv": (torch.mv, (MATRIX, R(3, 2))),
    "dot": (torch.dot, (R(3, 2), R(3, 2))),
    "vdot": (torch.vdot, (R(3, 2), R(3, 2))),
    "linear": (torch.nn.functional.linear, (MATRIX, OTHER, R(3, 2))),
    "sum": (torch.sum, (MATRIX,)),
    "mean": (torch.mean, (MATRIX,)),
    "prod": (torch.prod, (R(3, 2),)),
    "cumprod": (lambda a: a.cumprod(0), (R(3, 2),)),
    "cumsum": (lambda a: a.cumsum(0), (R(3, 2),)),
    "var": (torch.var, (R(4, 2),)),
    "norm": (torch.norm, (R(4, 2),)),
    "norm of order 1": (lambda a: a.norm(1), (R(4, 2),)),
    "norm of order inf": (lambda a: a.norm(float("inf")), (R(4, 2),)),
    "a[indices]": (lambda a: a[F.iv], (MATRIX,)),
    "cat": (lambda a, b: torch.cat([a, b]), (MATRIX, OTHER)),
    "mH": (lambda a: a.mH, (MATRIX,)),
    "det": (torch.det, (MATRIX,)),
    "inverse": (torch.inverse, (MATRIX,)),
    "fft": (torch.fft.fft, (R(4, 2),)),
}


def check(name: str, device: str, cases: dict[str, tuple[Any, tuple[S, ...]]] = CASES) -> None:
    torch.manual_seed(3)
    function, specs = cases[name]
    if cases is COMPLEX:
        function = of_complex(function)
    inputs = [made(spec, device) for spec in specs]
    F.device = device
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name: str) -> None:
    check(name, "cpu")


@pytest.mark.parametrize("name", COMPLEX)
def test_of_complex_numbers(name: str) -> None:
    check(name, "cpu", COMPLEX)


@pytest.mark.parametrize("name", ["mul", "matmul", "abs", "sgn"])
def test_of_complex_numbers_on_a_device(name: str, gpu: Any) -> None:
    check(name, "cuda", COMPLEX)


ON_THE_DEVICE = [
    "mul", "pow", "tanh", "where", "a[:, ::2]", "cat", "sum along", "mean", "max along",
    "a @ b.t()", "batch @ matrix", "a[indices]", "a row multiplied in place", "a[1] = b",
    "i0", "logcumsumexp", "scatter_reduce, prod", "index_reduce, amax",
]  # fmt: skip


@pytest.mark.parametrize("name", ON_THE_DEVICE)
def test_on_a_device(name: str, gpu: Any) -> None:
    check(name, "cuda")


def test_a_view_follows_its_base() -> None:
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    whole = a * 1
    row = whole[0]
    whole.mul_(3)
    (row * row).sum().backward()
    assert a.grad.tolist() == [[18.0, 36.0], [0.0, 0.0]]


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, float("inf"), -1])
def test_norms_at_zero_have_finite_gradients(order: float) -> None:
    for values in ([0.0, 0.0], [0.0, 2.0]):
        x = torch.tensor(values, requires_grad=True)
        x.norm(order).backward()
        assert torch.isfinite(x.grad).all()


def has_none(name: str) -> Any:
    return pytest.raises(NotImplementedError, match=f"derivative for '{name}' is not implemented")


def test_what_has_no_derivative_says_so() -> None:
    x = torch.ones(3, requires_grad=True)
    for name, made in {
        "heaviside: input": torch.heaviside(x, torch.ones(3)),
        "floor_divide: input": x // 2,
        "igamma: input": torch.igamma(x, torch.ones(3)),
    }.items():
        assert made.requires_grad
        with has_none(name):
            made.sum().backward()
    with torch.no_grad():
        assert not torch.heaviside(x, x).requires_grad


def test_mean_and_scale_of_rows_are_figures() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    out, mean, scale = torch.native_layer_norm(x, (3,), None, bias, 1e-5)
    assert [t.requires_grad for t in (out, mean, scale)] == [True, False, False]
    out.sum().backward()
    assert bias.grad.tolist() == [2, 2, 2]


def test_results_without_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    for made in (x > 0, x.argmax(), torch.zeros_like(x), x.isnan(), x.sort()[1]):
        assert not made.requires_grad
