# SPDX-License-Identifier: Apache-2.0
"""Draws by given probabilities, rates and weights, and random permutations."""

from __future__ import annotations

import functools
import math
import sys
from typing import TYPE_CHECKING, Any

from flambeau.ops import radix
from flambeau.ops.common import kernel, new_like, store_out
from flambeau.ops.random import FILLS, element_type, exponential_
from flambeau.ops.registry import inplace_method, public
from flambeau.runtime import _dtype, _factory, _random
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._generator import Generator

    Device = Any

_THREADS = 256
_CHOICE_THREADS = 128  # CHOICE_THREADS of random_sampling.cuh
_MOST_ROWS = 65535  # of a grid's second dimension
_MOST_CATEGORIES = 1 << 24
_MOST_FOR_24_BITS = 1 << 21  # keys of which an eighth share their high bits with another
_FLOAT32, _FLOAT64, _INT32, _INT64 = (
    _dtype.dtypes[name] for name in ("float32", "float64", "int32", "int64")
)


def _legacy(of: dtype) -> str:
    return _dtype.legacy_type_name(of)


def _launch(source: str, signature: str, device: int, threads: int, *arguments: object) -> None:
    made = kernel(source, "draw", signature, device)
    made(device, (math.ceil(threads / _THREADS), 1, 1), (_THREADS, 1, 1), 0, *arguments)


@functools.cache
def _source(parameters: str, call: str, threads: int = _THREADS) -> str:
    return f"""#include "random_sampling.cuh"
FLAMBEAU_KERNEL({threads}) draw({parameters}) {{
  FLAMBEAU_GRID_WAIT();
  {call};
}}
"""


# -- checks ---------------------------------------------------------------------------------------


def check_elements(values: Tensor, problem: str, least: float, greatest: float = math.inf) -> None:
    """Refuse elements outside a range; NaN is outside.

    On the host at once, on a CUDA device by an assertion there, which a later call reports.
    """
    if values.numel() == 0:
        return
    if values.device.type == "cpu":
        wide = values.to(_FLOAT64)  # the bounds are doubles
        if not bool(((wide >= least) & (wide <= greatest)).all()):
            raise RuntimeError(problem)
        return
    flat = values.contiguous()
    text = problem.replace('"', "'")
    source = _source(
        f"const {element_type(flat.dtype.code)} *values, int64 n, double least, double greatest",
        f'RANDOM_REQUIRE(in_range(values, n, least, greatest), "{text}")',
    )
    n = flat.numel()
    _launch(source, "Pqdd", flat.get_device(), n, flat, n, least, greatest)


# -- bernoulli ------------------------------------------------------------------------------------


def bernoulli_(
    self: Tensor, p: float | Tensor = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1 with probability `p`, else 0.

    Parameters
    ----------
    p
        A number, or a tensor with a probability per element.
    generator
        None is the default one of the tensor's device.

    Raises
    ------
    RuntimeError
        A probability is not in [0, 1]; elements of a CUDA tensor are checked on the device, and a
        later call reports them.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.empty(3, device="cuda").bernoulli_(1.0)
    tensor([1., 1., 1.], device='cuda:0')
    """
    if isinstance(p, Tensor):
        return _bernoulli_each(self, p, generator)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    if self.dtype.category == 3:
        raise NotImplementedError(f"\"bernoulli\" not implemented for '{_legacy(self.dtype)}'")
    return FILLS["bernoulli"](self, generator, float(p))


def _bernoulli_each(self: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    if p.dtype.category != 2:
        raise RuntimeError(
            f"expected probabilities tensor to have floating type, got {_legacy(p.dtype)}"
        )
    if p.device != self.device:
        if p.ndim or p.device.type != "cpu":
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{self.device} and {p.device}!"
            )
        p = p.to(self.device)
    if self.numel() == 0:
        return self
    out = self if self.is_contiguous() else new_like(self, self.shape)
    if self.device.type == "cpu":
        check_elements(p, "bernoulli_ expects p to be in [0, 1]: a probability is not", 0.0, 1.0)
        wide = _FLOAT64 if p.dtype.name == "float64" else _FLOAT32
        weights = p.to(wide).expand(self.shape).contiguous()
        _random.bernoulli_on_host(out, weights, generator)
    else:
        wide = _FLOAT64 if self.dtype.name == "float64" else _FLOAT32
        weights = p.to(wide).expand(self.shape).contiguous()
        _bernoulli_on_device(out, weights, generator)
    return self if out is self else self.copy_(out)


def _bernoulli_on_device(out: Tensor, p: Tensor, generator: Generator | None) -> None:
    kind, probability = element_type(out.dtype.code), element_type(p.dtype.code)
    source = _source(
        f"{kind} *out, const {probability} *p, const Philox philox, int64 n",
        "bernoulli_each(out, p, philox, n)",
    )
    n, device = out.numel(), out.get_device()
    philox = _random.draw(generator, device, 12)
    _launch(source, "PRBq", device, math.ceil(n / 4), out, p, philox, n)


@public()
def bernoulli(
    input: Tensor,
    p: float | Tensor | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Draw 1 or 0 for each element of a tensor.

    Parameters
    ----------
    input
        The probabilities of 1; with `p` only the shape, dtype and device count.
    p
        One probability for all.
    generator
        None is the default one of the device.
    out
        A tensor to resize and fill instead.
    """
    if out is None:
        made = _factory.empty_like(input)
    else:
        made = _factory.empty(tuple(input.shape), out=out)
    return bernoulli_(made, input if p is None else p, generator=generator)


# -- poisson --------------------------------------------------------------------------------------


@public(method=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw a number of events for each rate.

    Parameters
    ----------
    input
        The rates, not negative.
    generator
        None is the default one of the device.

    Returns
    -------
    Tensor
        Of the shape and dtype of the rates. Rates below 64 on CUDA give torch's numbers, greater
        ones numbers of the right distribution.

    Raises
    ------
    NotImplementedError
        The dtype is not floating-point.
    RuntimeError
        A rate is negative; on CUDA a later call reports it.
    """
    if input.dtype.category != 2:
        raise NotImplementedError(f"\"poisson\" not implemented for '{_legacy(input.dtype)}'")
    rates = input.contiguous()
    out = new_like(rates, rates.shape)
    n = rates.numel()
    if n == 0:
        return out
    if input.device.type == "cpu":
        check_elements(
            input, "invalid Poisson rate, expected rate to be non-negative", 0.0, sys.float_info.max
        )
        wide = new_like(rates, rates.shape, _FLOAT64)
        _random.poisson_on_host(wide, rates.to(_FLOAT64), generator)
        return out.copy_(wide)
    kind = element_type(rates.dtype.code)
    source = _source(
        f"{kind} *out, const {kind} *rates, const Philox philox, int64 n",
        "poisson_each(out, rates, philox, n)",
    )
    device = rates.get_device()
    philox = _random.draw(generator, device, 20)
    _launch(source, "PRBq", device, n, out, rates, philox, n)
    return out


# -- multinomial ----------------------------------------------------------------------------------


@public()
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Draw positions by weight from each row.

    Parameters
    ----------
    input
        Weights, not negative, of shape (categories) or (rows, categories); they need not add up
        to 1.
    num_samples
        How many positions per row.
    replacement
        Whether a position may be drawn again.
    generator
        None is the default one of the device.
    out
        An int64 tensor to resize and fill instead.

    Returns
    -------
    Tensor
        int64, of shape (num_samples) or (rows, num_samples).

    Raises
    ------
    RuntimeError
        Too many samples or categories, the wrong number of dimensions or dtype, or weights that
        are negative, not finite or all zero; on CUDA a later call reports the latter.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.multinomial(torch.tensor([0.0, 1.0], device="cuda"), 3, replacement=True)
    tensor([1, 1, 1], device='cuda:0')
    """
    _check_multinomial(input, num_samples, replacement, out)
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    if rows.numel() == 0:
        result = new_like(rows, (rows.shape[0], num_samples), _INT64)
    else:
        _check_weights(rows)
        if not replacement or num_samples == 1:
            result = _race(rows, num_samples, generator)
        elif rows.device.type == "cpu":
            result = _choose_on_host(rows, num_samples, generator)
        else:
            result = _choose_on_device(rows, num_samples, generator)
    return store_out(result if input.ndim == 2 else result.reshape(-1), out)


def _check_multinomial(
    input: Tensor, num_samples: int, replacement: bool, out: Tensor | None
) -> None:
    if out is not None and out.dtype.name != "int64":
        raise RuntimeError(f"multinomial expects Long tensor out, got: {_legacy(out.dtype)}")
    if input.ndim not in {1, 2}:
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {input.ndim} dims")
    if input.dtype.category != 2:
        raise RuntimeError(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{_legacy(input.dtype)}"
        )
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {num_samples}")
    categories = input.shape[-1]
    if not replacement and num_samples > categories:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"{num_samples} samples of {categories} categories"
        )
    if categories > _MOST_CATEGORIES:
        raise RuntimeError(f"number of categories cannot exceed 2^24, got {categories}")


def _check_weights(rows: Tensor) -> None:
    check_elements(
        rows,
        "probability tensor contains either `inf`, `nan` or element < 0",
        0.0,
        sys.float_info.max,
    )
    check_elements(
        rows.sum(-1),
        "invalid multinomial distribution (sum of probabilities <= 0)",
        math.ulp(0.0),
    )


def _race(rows: Tensor, num_samples: int, generator: Generator | None) -> Tensor:
    """Give each category an exponential arrival time, scaled by its weight; the first ones win."""
    quotient = rows / exponential_(_factory.empty_like(rows), generator=generator)
    first: Tensor
    if num_samples == 1:
        first = quotient.argmax(-1, keepdim=True)
    else:
        first = quotient.topk(num_samples, -1).indices
    return first


def _choose_on_host(rows: Tensor, num_samples: int, generator: Generator | None) -> Tensor:
    wide = _FLOAT64 if rows.dtype.name == "float64" else _FLOAT32
    result = new_like(rows, (rows.shape[0], num_samples), _INT64)
    return _random.choose_on_host(result, rows.to(wide).contiguous(), generator)


def _choose_on_device(rows: Tensor, num_samples: int, generator: Generator | None) -> Tensor:
    count, categories = rows.shape
    weights = (rows / rows.sum(-1, keepdim=True)).contiguous()
    sums = weights.cumsum(-1)
    result = new_like(rows, (count, num_samples), _INT64)
    kind, device = element_type(rows.dtype.code), rows.get_device()
    source = _source(
        f"int64 *out, const {kind} *sums, const {kind} *weights, const Philox philox, int64 rows, "
        "int64 categories, int64 samples",
        "choose_each(out, sums, weights, philox, rows, categories, samples)",
        _CHOICE_THREADS,
    )
    height = min(count, _MOST_ROWS)
    philox = _random.draw(generator, device, 4 * math.ceil(count / height))
    grid = (math.ceil(num_samples / _CHOICE_THREADS), height, 1)
    kernel(source, "draw", "PRRBqqq", device)(
        device, grid, (_CHOICE_THREADS, 1, 1), 0,
        result, sums, weights, philox, count, categories, num_samples,
    )  # fmt: skip
    return result


# -- randperm -------------------------------------------------------------------------------------


@public(method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Put the integers from 0 to ``n - 1`` into random order.

    Parameters
    ----------
    n
        How many.
    generator
        None is the default one of the device.
    out
        A tensor to resize and fill instead.
    dtype
        By default int64.
    layout
        Accepted: tensors are strided.
    device
        By default the default device.
    requires_grad
        Whether gradients shall be recorded for it.
    pin_memory
        Put a host tensor into pinned memory.

    Raises
    ------
    RuntimeError
        `n` is negative, or the dtype does not have all the integers.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.randperm(4, device="cuda").sort().values
    tensor([0, 1, 2, 3], device='cuda:0')
    """
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    of = dtype or (out.dtype if out is not None else _INT64)
    _check_reach(n, of)
    if out is not None:
        made = _factory.empty((n,), out=out)
    else:
        made = _factory.new_empty((n,), of, device, pin_memory)
    if n:
        if made.device.type == "cpu":
            made.copy_(_random.permute_on_host(n, generator))
        else:
            made.copy_(_permute_on_device(n, made, generator))
    return made.requires_grad_() if requires_grad else made


_MOST_INTEGERS = {
    "float16": 2049, "bfloat16": 257, "float32": (1 << 24) + 1, "float64": (1 << 53) + 1,
    "uint8": 256, "int8": 128, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63,
}  # fmt: skip


def _check_reach(n: int, of: dtype) -> None:
    if of.name not in _MOST_INTEGERS:
        raise NotImplementedError(f"\"randperm\" not implemented for '{_legacy(of)}'")
    most = _MOST_INTEGERS[of.name]
    if n > most:
        raise RuntimeError(f"n cannot be greater than {most} for {_legacy(of)} type.")


def _key_bits(n: int) -> int:
    """Bits of keys of which, for n of them, few are likely to be equal."""
    wanted = math.ceil(math.log2(n - (6 * n * n + 1) / (12 * math.log(0.9))))
    return min(64, wanted)


def _permute_on_device(n: int, like: Tensor, generator: Generator | None) -> Tensor:
    bits = _key_bits(n)
    short = bits <= 32
    keys = new_like(like, (n,), _INT32 if short else _INT64)
    low, high = (-(1 << 31), (1 << 31) - 1) if short else (-(1 << 63), (1 << 63) - 1)
    FILLS["random64"](keys, generator, 0.0, 0.0, high - low, low)
    if not short and radix.LEAST <= n <= radix.MOST:
        return _order_of_long_keys(keys, bits, generator)
    if bits not in {32, 64}:
        keys = keys & ((1 << bits) - 1)
    ordered, places = new_like(keys, (n,)), new_like(keys, (n,), _INT64)
    if radix.LEAST <= n <= radix.MOST:
        radix.sort_row(keys, False, ordered, places, None if bits in {32, 64} else bits)
    else:
        ordered, places = keys.sort(stable=True)
    source = _source(
        f"int64 *values, const {element_type(keys.dtype.code)} *keys, const Philox philox, int64 n",
        "shuffle_ties(values, keys, philox, n)",
    )
    device = like.get_device()
    philox = _random.draw(generator, device, n)
    _launch(source, "PRBq", device, n, places, ordered, philox, n)
    return places


def _order_of_long_keys(keys: Tensor, bits: int, generator: Generator | None) -> Tensor:
    """Positions in order of random keys, sorted by so many high bits that few are equal."""
    n, device = keys.numel(), keys.get_device()
    kept = 24 if n <= _MOST_FOR_24_BITS else 32
    high, ordered = (new_like(keys, (n,), _INT32) for _ in range(2))
    places = new_like(keys, (n,))
    source = _source(
        "int32 *high, const int64 *keys, int64 n, int bits, int kept",
        "high_bits(high, keys, n, bits, kept)",
    )
    _launch(source, "PRqii", device, n, high, keys, n, bits, kept)
    radix.sort_row(high, False, ordered, places, kept)
    source = _source(
        "int64 *values, const int32 *high, const int64 *keys, const Philox philox, int64 n, "
        "int bits",
        "settle_runs(values, high, keys, philox, n, bits)",
    )
    philox = _random.draw(generator, device, n)
    _launch(source, "PRRBqi", device, n, places, ordered, keys, philox, n, bits)
    return places


inplace_method("bernoulli_", bernoulli_)
