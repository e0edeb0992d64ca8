# SPDX-License-Identifier: Apache-2.0
"""The table of activation functions: each with its derivative, for device and host."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.ops.derivatives import differentiable
from flambeau.ops.elementwise import Row
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.registry import make_op

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._elementwise import ElementwiseOp
    from flambeau.runtime._tensor import Tensor

__all__ = ["ACTIVATIONS", "Activation", "backward", "forward"]


@dataclass(frozen=True, slots=True)
class Activation:
    """One activation function.

    Parameters
    ----------
    cuda, numpy
        The function of ``a`` and of the numbers ``s0``, ``s1``, …
    slope_cuda, slope_numpy
        Its derivative times ``a``, the gradient of the result; ``b`` is the function's argument.
    scalars
        How many numbers follow.
    """

    cuda: str
    numpy: str
    slope_cuda: str
    slope_numpy: str
    scalars: int = 0


_SIGMOID, _NP_SIGMOID = "sigmoid_of({0})", "1 / (1 + np.exp(-({0})))"
_BELL = "T(0.3989422804014327) * exp(T(-0.5) * b * b)"
_NP_BELL = "0.3989422804014327 * np.exp(-0.5 * b * b)"
# sqrt(2 / pi) * (x + 0.044715 x^3), and its derivative
_INNER = "T(0.7978845608028654) * ({0} + T(0.044715) * {0} * {0} * {0})"
_INNER_SLOPE = "T(0.7978845608028654) * (T(1) + T(0.134145) * b * b)"


def _np(cuda: str) -> str:
    """An expression without functions, for NumPy."""
    return cuda.replace("T(", "(")


def _polynomial(text: str, slope: str, scalars: int = 0) -> Activation:
    """One whose CUDA form without ``T`` is right for NumPy too; ``{if;x;y}`` is a choice."""
    return Activation(
        _choices(text, "({} ? {} : {})"), _np(_choices(text, "np.where({}, {}, {})")),
        _choices(slope, "({} ? {} : {})"), _np(_choices(slope, "np.where({}, {}, {})")), scalars,
    )  # fmt: skip


def _choices(text: str, form: str) -> str:
    while "{" in text:  # innermost first
        start = text.rindex("{")
        end = text.index("}", start)
        text = text[:start] + form.format(*text[start + 1 : end].split(";")) + text[end + 1 :]
    return text


_TANH = "tanh({0})"
ACTIVATIONS = {
    "gelu": Activation(
        "T(0.5) * a * (T(1) + erf(a * T(0.7071067811865476)))",
        "0.5 * a * (1 + host.erf(a * 0.7071067811865476))",
        f"a * (T(0.5) * (T(1) + erf(b * T(0.7071067811865476))) + b * {_BELL})",
        f"a * (0.5 * (1 + host.erf(b * 0.7071067811865476)) + b * {_NP_BELL})",
    ),
    "gelu_tanh": Activation(
        f"T(0.5) * a * (T(1) + tanh({_INNER.format('a')}))",
        _np(f"T(0.5) * a * (T(1) + np.tanh({_INNER.format('a')}))"),
        f"a * T(0.5) * (T(1) + tanh({_INNER.format('b')}) + b * {_INNER_SLOPE} * "
        f"(T(1) - tanh({_INNER.format('b')}) * tanh({_INNER.format('b')})))",
        _np(
            f"a * T(0.5) * (T(1) + np.tanh({_INNER.format('b')}) + b * {_INNER_SLOPE} * "
            f"(T(1) - np.tanh({_INNER.format('b')}) ** 2))"
        ),
    ),
    "silu": Activation(
        "a * sigmoid_of(a)",
        f"a * ({_NP_SIGMOID.format('a')})",
        "a * sigmoid_of(b) * (T(1) + b * (T(1) - sigmoid_of(b)))",
        f"a * ({_NP_SIGMOID.format('b')}) * (1 + b * (1 - {_NP_SIGMOID.format('b')}))",
    ),
    "mish": Activation(
        "a * tanh(log1p(exp(-absolute(a))) + larger_of(a, T(0)))",
        "a * np.tanh(np.logaddexp(a, a.dtype.type(0)))",
        "a * (tanh(log1p(exp(-absolute(b))) + larger_of(b, T(0))) + b * sigmoid_of(b) * (T(1) - "
        "tanh(log1p(exp(-absolute(b))) + larger_of(b, T(0))) * "
        "tanh(log1p(exp(-absolute(b))) + larger_of(b, T(0)))))",
        "a * (np.tanh(np.logaddexp(b, b.dtype.type(0))) + b * "
        f"({_NP_SIGMOID.format('b')}) * (1 - np.tanh(np.logaddexp(b, b.dtype.type(0))) ** 2))",
    ),
    # alpha, scale, input scale
    "elu": Activation(
        "(a > T(0) ? a * s1 : expm1(a * s2) * s0 * s1)",
        "np.where(a > 0, a * s1, np.expm1(a * s2) * s0 * s1)",
        "(b > T(0) ? a * s1 : a * s0 * s1 * s2 * exp(b * s2))",
        "np.where(b > 0, a * s1, a * s0 * s1 * s2 * np.exp(b * s2))",
        3,
    ),
    # beta, threshold
    "softplus": Activation(
        "(a * s0 > s1 ? a : log1p(exp(a * s0)) / s0)",
        "np.where(a * s0 > s1, a, np.log1p(np.exp(a * s0)) / s0)",
        "(b * s0 > s1 ? a : a * sigmoid_of(b * s0))",
        "np.where(b * s0 > s1, a, a / (1 + np.exp(-b * s0)))",
        2,
    ),
    "logsigmoid": Activation(
        "smaller_of(a, T(0)) - log1p(exp(-absolute(a)))",
        "np.minimum(a, 0) - np.log1p(np.exp(-np.abs(a)))",
        "a * sigmoid_of(-b)",
        f"a * ({_NP_SIGMOID.format('-b')})",
    ),
    "leaky_relu": _polynomial("{a > T(0);a;a * s0}", "{b > T(0);a;a * s0}", 1),
    "hardtanh": _polynomial("{a < s0;s0;{a > s1;s1;a}}", "{b <= s0;T(0);{b >= s1;T(0);a}}", 2),
    "hardswish": _polynomial(
        "{a <= T(-3);T(0);{a >= T(3);a;a * (a + T(3)) / T(6)}}",
        "{b <= T(-3);T(0);{b >= T(3);a;a * (b / T(3) + T(0.5))}}",
    ),
    "hardsigmoid": _polynomial(
        "{a <= T(-3);T(0);{a >= T(3);T(1);a / T(6) + T(0.5)}}",
        "{b <= T(-3);T(0);{b >= T(3);T(0);a / T(6)}}",
    ),
    "softshrink": _polynomial(
        "{a > s0;a - s0;{a < -s0;a + s0;a * T(0)}}", "{b > s0;a;{b < -s0;a;a * T(0)}}", 1
    ),
    "hardshrink": _polynomial(
        "{a > s0;a;{a < -s0;a;a * T(0)}}", "{b > s0;a;{b < -s0;a;a * T(0)}}", 1
    ),
    # threshold, value
    "threshold": _polynomial("{a <= s0;s1;a}", "{b <= s0;T(0);a}", 2),
}


@functools.cache
def _ops(name: str) -> tuple[ElementwiseOp, ElementwiseOp]:
    row = ACTIVATIONS[name]
    refuse = "" if name == "threshold" else "bi"
    return (
        make_op(Row(name, 1, row.cuda, row.numpy, refuse=refuse, scalars=row.scalars)),
        make_op(
            Row(f"{name}_backward", 2, row.slope_cuda, row.slope_numpy, refuse=refuse,
                scalars=row.scalars)
        ),
    )  # fmt: skip


def forward(name: str, input: Tensor, *numbers: float, inplace: bool = False) -> Tensor:
    """Compute an activation function, without a record for gradients.

    Parameters
    ----------
    name
        A row of `ACTIVATIONS`.
    input
        A floating-point tensor.
    numbers
        The row's numbers.
    inplace
        Write into the input, which is returned.
    """
    op = _ops(name)[0]
    if inplace:
        return op.in_place(input, scalars=numbers)
    return op(input, scalars=numbers)


def backward(name: str, grad: Tensor, input: Tensor, *numbers: float) -> Tensor:
    """Compute the gradient of the input of `forward` from that of its result."""
    refuse_second_derivative(f"{name}_backward", grad, input)
    return _ops(name)[1](grad, input, scalars=numbers)


@functools.cache
def _recorded(name: str) -> Callable[..., Tensor]:
    return differentiable(
        lambda x, numbers: forward(name, x, *numbers),
        {"x": lambda grad, x, numbers: backward(name, grad, x, *numbers)},
        name=name,
    )


def activation(name: str, input: Tensor, *numbers: float) -> Tensor:
    """Compute an activation function; `forward`, recorded for gradients."""
    return _recorded(name)(input, numbers)
