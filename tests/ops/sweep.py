# SPDX-License-Identifier: Apache-2.0
"""The same expressions in flambeau and in torch, and where they disagree.

``python tests/ops/sweep.py run LIBRARY DEVICE FILE [DTYPES [LAYOUTS]]`` evaluates every expression
in one library's process and stores what came out; ``python tests/ops/sweep.py compare OURS THEIRS``
prints a Markdown table of the differences. The file imports only the library that it is told to.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

# Names: x, y two tensors of a dtype; m a mask; i indices along dim -1; k positive small integers;
# v, w vectors; a, b square matrices; s a number.
UNARY = """
abs absolute neg positive sign sgn square reciprocal exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma
sinc i0 deg2rad rad2deg floor ceil round trunc frac isnan isinf isfinite isposinf isneginf isreal
signbit logical_not relu nan_to_num angle conj real logit frexp bitwise_not
"""
BINARY = """
add sub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin eq ne lt le gt
ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift atan2 hypot copysign nextafter gcd lcm heaviside xlogy logaddexp logaddexp2
ldexp float_power
"""
REDUCTIONS = """
sum prod mean std var all any amax amin max min argmax argmin nansum nanmean median nanmedian mode
logsumexp norm cumsum cumprod cummax cummin logcumsumexp sort argsort count_nonzero aminmax msort
"""
EXPRESSIONS = """
torch.clamp(x, -1, 2)
torch.clamp(x, min=0)
torch.clamp(x, min=y)
torch.where(m, x, y)
torch.where(m, x, 0)
x.masked_fill(m, 1)
x.masked_select(m)
x.masked_scatter(m, y)
x.lerp(y, 0.25)
torch.addcmul(x, x, y, value=2)
torch.addcdiv(x, x, y, value=0.5)
torch.add(x, y, alpha=2)
torch.sub(x, y, alpha=2)
torch.div(x, y, rounding_mode='trunc')
torch.div(x, y, rounding_mode='floor')
x + 1
x + 1.5
x + True
2 - x
x * 2
x / 2
x // 2
x % 3
x ** 2
2.0 ** x
-x
x == 0.1
x > 0
torch.polygamma(2, x)
torch.mvlgamma(x.abs() + 3, 2)
torch.igamma(x.abs(), y.abs())
torch.igammac(x.abs(), y.abs())
x.to(torch.float32)
x.to(torch.int32)
x.to(torch.uint8)
x.to(torch.float16)
x.to(torch.complex64)
x.to(torch.bool)
x.sum(-1)
x.sum(0, keepdim=True)
x.sum((0, -1))
x.mean(-1)
x.prod(-1)
x.var(-1, unbiased=False)
x.std(-1, correction=2)
torch.var_mean(x, -1)
torch.std_mean(x, -1)
x.norm(1)
x.norm(float('inf'), -1)
x.amax((0, -1))
x.max(-1)
x.min(0)
x.argmax()
x.median()
x.kthvalue(1, -1)
x.topk(1, -1)
x.topk(1, -1, largest=False)
x.sort(-1, descending=True)
x.sort(0)
x.unique()
torch.unique(x, return_inverse=True, return_counts=True)
torch.unique(x, dim=0)
torch.unique_consecutive(x, return_counts=True)
torch.quantile(x, 0.3, -1)
torch.quantile(x, 0.3, interpolation='nearest')
torch.nanquantile(x, 0.6, -1, keepdim=True)
x.histc(5, -2, 2)
torch.bincount(k.reshape(-1), minlength=3)
torch.bincount(k.reshape(-1), x.reshape(-1))
torch.searchsorted(x.reshape(-1).sort()[0], y)
torch.bucketize(x, y.reshape(-1).sort()[0], right=True)
torch.isin(x, y)
x.nonzero()
torch.argwhere(x)
x.gather(-1, i)
torch.zeros_like(x).scatter(-1, i, x)
x.scatter_add(-1, i, y)
x.scatter_reduce(-1, i, y, 'sum')
x.scatter_reduce(-1, i, y, 'prod')
x.scatter_reduce(-1, i, y, 'amax', include_self=False)
x.scatter_reduce(-1, i, y, 'amin')
x.scatter_reduce(-1, i, y, 'mean')
x.index_select(-1, j)
x.index_add(-1, j, x.index_select(-1, j))
x.index_copy(-1, j[:1], x.index_select(-1, j[:1]))
x.index_fill(-1, j, 1)
x.index_reduce(-1, j, x.index_select(-1, j), 'amax')
x.take(k)
x.put(k.reshape(-1)[:1], y.reshape(-1)[:1])
x.take_along_dim(i, -1)
x[..., j]
x.flip(-1)
x.roll(1, -1)
x.roll(2)
torch.rot90(x)
x.tile(2, 1)
x.repeat(2, 1)
x.repeat_interleave(2, -1)
torch.cat([x, y], -1)
torch.stack([x, y])
torch.hstack([x, y])
torch.vstack([x, y])
torch.dstack([x, y])
torch.column_stack([x, y])
x.diff()
x.tril()
x.triu(1)
x.diagonal()
torch.diag_embed(x)
torch.diagflat(x)
torch.diag(x)
x.trace()
torch.block_diag(x, y)
torch.vander(v, 3)
x.unfold(-1, 1, 1)
torch.kron(v, w)
torch.outer(v, w)
torch.dot(v, w)
torch.vdot(v, w)
torch.inner(a, b)
a @ b
torch.mm(a, b)
torch.mv(a, v)
torch.addmm(a, a, b, beta=2, alpha=3)
torch.addmv(v, a, w)
torch.addr(a, v, w)
torch.baddbmm(a[None], a[None], b[None])
torch.addbmm(a, a[None], b[None])
torch.einsum('ij,jk->ik', a, b)
torch.einsum('ii->i', a)
torch.einsum('ij,kj', a, b)
torch.einsum('...i,...i->...', x, y)
torch.tensordot(a, b, 1)
torch.cross(a[:, :3], b[:, :3], dim=-1)
torch.chain_matmul(a, b, a)
torch.cdist(a, b)
torch.cdist(a, b, p=1)
torch.dist(x, y)
torch.renorm(a, 2, 0, 1.0)
torch.cov(a)
torch.corrcoef(a)
torch.trapezoid(x)
torch.cumulative_trapezoid(x)
torch.combinations(v)
torch.cartesian_prod(v, w)
torch.tensor_split(x, 2, -1)
x.view_as(y)
torch.equal(x, y)
torch.isclose(x, y)
torch.allclose(x, x)
torch.view_as_real(x)
torch.imag(x)
x.conj_physical()
torch.polar(x.abs(), y)
torch.complex(x, y)
torch.heaviside(x, y)
torch.select_scatter(x, x.select(0, 0), 0, 0)
torch.slice_scatter(x, x[:1], 0, 0, 1)
torch.diagonal_scatter(a, v)
x.clone().fill_diagonal_(1)
x.clone().fill_(1)
x.clone().zero_()
x.clone().mul_(y)
x.clone().add_(1)
x.clone().copy_(y)
x.clone().masked_fill_(m, 0)
x.clone().clamp_(0, 1)
x.clone().cumsum_(-1)
x.tolist()
""".strip().splitlines()
DTYPE_NAMES = """
bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 uint16
uint32 uint64 float8_e4m3fn float8_e5m2
"""
DTYPES = DTYPE_NAMES.split()
LAYOUTS = ("contiguous", "transposed", "stepped", "expanded", "empty", "scalar")
ALONG = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "logsumexp"}


def cases() -> list[str]:
    """All expressions."""
    made = [f"torch.{name}(x)" for name in UNARY.split()]
    made += [f"torch.{name}(x, y)" for name in BINARY.split()]
    made += [
        f"torch.{name}(x, -1)" if name in ALONG else f"torch.{name}(x)"
        for name in REDUCTIONS.split()
    ]
    return made + EXPRESSIONS


def numbers(dtype: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Values of a dtype as float64, complex128 or int64: the edges among ordinary ones."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(count) < 0.5
    if "int" in dtype:
        low = 0 if dtype.startswith("u") else -9
        values = random.integers(low, 10, count)
        if count > 4 and not dtype.startswith("u"):
            limit = np.iinfo(dtype)
            values[:2] = limit.max, limit.min
        return values
    values = np.round(random.normal(0, 2, count), 2)
    if count > 8 and seed % 2:
        values[:6] = np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0
    if "complex" in dtype:
        return values + 1j * np.round(random.normal(0, 2, count), 2)
    return values


def inputs(torch: Any, device: str, dtype: str, layout: str, special: bool) -> dict[str, Any]:
    """The names that expressions use."""
    of = getattr(torch, dtype)

    def made(count: int, seed: int) -> Any:
        values = numbers(dtype, count, 2 * seed + (1 if special else 0))
        wide = (
            torch.tensor(values.tolist(), device=device) if count else torch.empty(0, device=device)
        )
        return wide.to(of)

    def laid(seed: int) -> Any:
        base = made(24, seed)
        if layout == "transposed":
            return base.reshape(6, 4).t()
        if layout == "stepped":
            return base.reshape(4, 6)[:, ::2]
        if layout == "expanded":
            return base[:6].expand(4, 6)
        if layout == "empty":
            return base[:0].reshape(0, 4)
        return base[7] if layout == "scalar" else base.reshape(4, 6)

    x = laid(1)
    shape = tuple(x.shape)
    random = np.random.default_rng(3)
    last = shape[-1] if shape else 1
    index = torch.tensor(random.integers(0, max(last, 1), shape).tolist(), device=device)
    flat = max(1, int(np.prod(shape)))
    return {
        "torch": torch,
        "x": x,
        "y": laid(2),
        "m": torch.tensor((random.random(shape) < 0.5).tolist(), device=device)
        .to(torch.bool)
        .reshape(shape),
        "i": index.to(torch.int64).reshape(shape),
        "j": torch.tensor([0, last - 1, 0] if last else [], device=device).to(torch.int64),
        "k": torch.tensor(random.integers(0, flat, shape).tolist(), device=device)
        .to(torch.int64)
        .reshape(shape),
        "v": made(4, 5),
        "w": made(4, 6),
        "a": made(16, 7).reshape(4, 4),
        "b": made(16, 8).reshape(4, 4),
    }


def plain(torch: Any, value: Any) -> Any:
    """A result as dtype, shape and NumPy values, or a list of such."""
    if isinstance(value, torch.Tensor):
        host = value.detach().cpu()
        name = str(value.dtype).removeprefix("torch.")
        if "complex" in name:
            host = host.to(torch.complex128)
        elif "float" in name:
            host = host.to(torch.float64)
        elif name.startswith("uint") and name != "uint8":
            host = host.to(torch.int64)
        return (name, tuple(value.shape), np.array(host.tolist()).reshape(value.shape))
    if isinstance(value, (tuple, list)):
        return [plain(torch, part) for part in value]
    return value


def run(library: str, device: str, target: str, dtypes: list[str], layouts: list[str]) -> None:
    """Evaluate everything and store it."""
    torch = importlib.import_module(library)
    found: dict[tuple[str, str, str], Any] = {}
    end = time.monotonic() + float(os.environ.get("SWEEP_SECONDS", "inf"))
    for dtype in dtypes:
        for layout in layouts:
            for special in (False, True):
                if special and layout != "contiguous":
                    continue
                for case in cases():
                    if time.monotonic() > end:
                        break
                    names = inputs(torch, device, dtype, layout, special)
                    key = (case, dtype, layout + (" special" if special else ""))
                    try:
                        found[key] = plain(torch, eval(case, names))
                    except Exception as error:  # noqa: BLE001 - the error is the result
                        found[key] = (
                            type(error).__name__,
                            str(error).splitlines()[0][:150] if str(error) else "",
                        )
    Path(target).write_bytes(pickle.dumps(found))
    print(library, torch.__version__, len(found), "results")


_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-11,
              "complex64": 3e-5, "complex128": 1e-11}  # fmt: skip


def difference(ours: Any, theirs: Any) -> str:
    """What differs, in a word, or nothing."""
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return "count"
        return next(filter(None, map(difference, ours, theirs)), "")
    failed = [isinstance(part, tuple) and len(part) == 2 for part in (ours, theirs)]
    if all(failed):
        same = ours[0] == theirs[0]
        return "" if same else f"error {ours[0]} / {theirs[0]}: {ours[1]:.70} / {theirs[1]:.70}"
    if failed[0]:
        return f"only torch: {ours[0]}: {ours[1]:.90}"
    if failed[1]:
        return "only flambeau"
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return _tensor_difference(ours, theirs)
    return "" if str(ours) == str(theirs) else f"value {ours!r:.60} / {theirs!r:.60}"


def _tensor_difference(ours: Any, theirs: Any) -> str:
    for part, name in ((0, "dtype"), (1, "shape")):
        if ours[part] != theirs[part]:
            return f"{name} {ours[part]} / {theirs[part]}"
    left, right = ours[2], theirs[2]
    tolerance = _TOLERANCE.get(ours[0], 0)
    with np.errstate(all="ignore"):
        close = np.isclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True)
        if np.iscomplexobj(left):  # what infinities leave in the other part is nobody's concern
            close |= ~np.isfinite(left) & ~np.isfinite(right)
        if close.all():
            return ""
    return f"values {left.reshape(-1)[:4]} / {right.reshape(-1)[:4]}".replace("\n", " ")


def compare(ours_file: str, theirs_file: str) -> None:
    """Print a table of the differences, equal ones of several dtypes and layouts in one row."""
    ours, theirs = (pickle.loads(Path(name).read_bytes()) for name in (ours_file, theirs_file))
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    equal = both = 0
    for key, mine in ours.items():
        if key not in theirs:
            continue  # time was up in one of them
        both += 1
        what = difference(mine, theirs[key])
        equal += not what
        if what:
            kind = what if what.startswith(("only", "error", "dtype")) else what.split(" ")[0]
            rows[key[0], kind].append(f"{key[1]} {key[2]}" + ("" if kind == what else f" ({what})"))
    print(f"{equal} of {both} results agree.\n\n| expression | difference | for |\n|---|---|---|")
    for (case, kind), where in sorted(rows.items()):
        shown = "; ".join(where[:3]) + (f"; {len(where) - 3} more" if len(where) > 3 else "")
        print(f"| `{case}` | {kind} | {shown} |".replace("||", "|"))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        chosen = sys.argv[5].split(",") if len(sys.argv) > 5 else DTYPES
        places = sys.argv[6].split(",") if len(sys.argv) > 6 else list(LAYOUTS)
        run(sys.argv[2], sys.argv[3], sys.argv[4], chosen, places)
    else:
        compare(sys.argv[2], sys.argv[3])
