# SPDX-License-Identifier: Apache-2.0
"""The table of elementwise operations: one row is everything that is particular to one.

``cuda`` is an expression of the operands ``a``, ``b``, ``c`` and the extra scalars ``s0``, ``s1``,
in the type ``T`` that arithmetic is done in (float for half and bfloat16). ``numpy`` says the same
for host tensors. ``derivative`` gives, per operand, the gradient in terms of ``grad``, the operands
and ``out``. How the dtypes follow is ``kind``:

=========  ==================================================================
promote    computed in and returned as the operands' common dtype
float      the same, after integers became the default floating-point dtype
compare    computed in the common dtype, returned as bool
bool       the same; Python numbers are not rounded to the tensor's dtype first
first      the first operand's dtype decides alone
copy       computed as the operand is, stored as whatever the output is
branches   the first operand is a condition; the others' common dtype
real       promote, but complex numbers give real ones
float_real float, but complex numbers give real ones
=========  ==================================================================
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ROWS", "Kind", "Row"]

Kind = Literal[
    "promote", "float", "compare", "bool", "first", "copy", "branches", "real", "float_real"
]


class Row(NamedTuple):
    """One elementwise operation.

    Parameters
    ----------
    name
        Its name in the namespace; an internal one begins with an underscore.
    arity
        How many operands.
    cuda, numpy
        The expression for device and host.
    kind
        How dtypes follow from those of the operands.
    refuse
        Categories it is not defined for: letters of ``b`` (bool), ``i``, ``f``, ``c`` (complex) and
        ``8`` (the eight-bit floats). `_COMPLEX` and `_FLOAT8` add the last two.
    scalars
        How many extra numbers follow the operands.
    aliases
        More names.
    inplace, method
        Whether there is a form with a trailing underscore, and whether it is a tensor method.
    derivative
        Per operand, for differentiable operations.
    header
        A ``.cuh`` that the expression needs beside ``elementwise.cuh``.
    """

    name: str
    arity: int
    cuda: str
    numpy: str
    kind: Kind = "promote"
    refuse: str = ""
    scalars: int = 0
    aliases: tuple[str, ...] = ()
    inplace: bool = True
    method: bool = True
    derivative: tuple[str, ...] = ()
    header: str = ""


def _unary(name: str, cuda: str, numpy: str, **more: object) -> Row:
    return Row(name, 1, cuda, numpy, **more)  # type: ignore[arg-type]


def _binary(name: str, cuda: str, numpy: str, **more: object) -> Row:
    return Row(name, 2, cuda, numpy, **more)  # type: ignore[arg-type]


def _float(name: str, numpy: str = "", derivative: str = "", cuda: str = "", **more: object) -> Row:
    """A function of one floating-point number that CUDA and (mostly) NumPy know by name."""
    return _unary(
        name,
        cuda or f"{name}(a)",
        numpy or f"np.{name}(a)",
        kind="float",
        derivative=(derivative,) if derivative else (),
        **more,
    )


_ARITHMETIC = (
    _binary("_add", "plus(a, b)", "np.add(a, b)", derivative=("grad", "grad")),
    _binary("_sub", "minus(a, b)", "np.subtract(a, b)", refuse="b", derivative=("grad", "-grad")),
    _binary("mul", "times(a, b)", "np.multiply(a, b)", aliases=("multiply",),
            derivative=("grad * b", "grad * a")),
    _binary("_div", "a / b", "np.divide(a, b)", kind="float",
            derivative=("grad / b", "-grad * out / b")),
    _binary("floor_divide", "floor_divide(a, b)", "host.floor_divide(a, b)", refuse="b"),
    _binary("_div_floor", "floor_divide(a, b)", "host.floor_divide(a, b)", refuse="b",
            derivative=("grad * 0", "grad * 0")),
    _binary("_div_trunc", "truncate_divide(a, b)", "host.truncate_divide(a, b)", refuse="b",
            derivative=("grad * 0", "grad * 0")),
    _binary("remainder", "floored_remainder(a, b)", "host.remainder(a, b)", refuse="b",
            derivative=("grad", "-grad * (a / b).floor()")),
    _binary("fmod", "truncated_remainder(a, b)", "host.fmod(a, b)", refuse="b",
            derivative=("grad", "-grad * (a / b).trunc()")),
    _binary("_pow", "power(a, b)", "host.power(a, b)", refuse="b",
            derivative=("power_base(grad, a, b)", "power_exponent(grad, a, b, out)")),
    Row("_add_scaled", 2, "plus(a, times(b, s0))", "a + b * s0", scalars=1,
        derivative=("grad", "grad * s0")),
    Row("_sub_scaled", 2, "minus(a, times(b, s0))", "a - b * s0", refuse="b", scalars=1,
        derivative=("grad", "-grad * s0")),
    _unary("neg", "negated(a)", "np.negative(a)", refuse="b", aliases=("negative",),
           derivative=("-grad",)),
    _unary("positive", "a", "a", refuse="b", inplace=False, derivative=("grad",)),
    _unary("abs", "absolute(a)", "np.abs(a)", kind="real", aliases=("absolute",),
           derivative=("grad * a.sgn()",)),
    _unary("sign", "sign_of(a)", "host.sign(a)", derivative=("grad * 0",)),
    _unary("sgn", "sign_of(a)", "host.sgn(a)", derivative=("sign_slope(grad, a, out)",)),
    _unary("_square", "times(a, a)", "a * a", derivative=("2 * grad * a",)),
    _float("reciprocal", "1 / a", "-grad * out * out", "T(1) / a"),
    Row("lerp", 3, "lerp_of(a, b, c)", "host.lerp(a, b, c)", refuse="bi",
        derivative=("grad * (1 - c)", "grad * c", "grad * (b - a)")),
    Row("addcmul", 3, "plus(a, times(s0, times(b, c)))", "a + s0 * (b * c)", scalars=1,
        derivative=("grad", "grad * s0 * c", "grad * s0 * b")),
    Row("addcdiv", 3, "a + s0 * (b / c)", "a + s0 * (b / c)", scalars=1, refuse="bi",
        derivative=("grad", "grad * s0 / c", "-grad * s0 * b / (c * c)")),
    _binary("hypot", "hypot(a, b)", "np.hypot(a, b)", refuse="bi",
            derivative=("grad * a / out", "grad * b / out")),
    _binary("copysign", "copysign(a, b)", "np.copysign(a, b)", kind="float",
            derivative=("grad * (a.sign() * out.sign())", "grad * 0")),
)  # fmt: skip

_COMPARISON = tuple(
    _binary(name, f"a {sign} b", f"np.{numpy}(a, b)", kind="compare", aliases=(alias,))
    for name, sign, numpy, alias in (
        ("eq", "==", "equal", ""),
        ("ne", "!=", "not_equal", "not_equal"),
        ("lt", "<", "less", "less"),
        ("le", "<=", "less_equal", "less_equal"),
        ("gt", ">", "greater", "greater"),
        ("ge", ">=", "greater_equal", "greater_equal"),
    )
)

_LOGIC = (
    _binary("logical_and", "a != T(0) && b != T(0)", "np.logical_and(a, b)", kind="bool"),
    _binary("logical_or", "a != T(0) || b != T(0)", "np.logical_or(a, b)", kind="bool"),
    _binary("logical_xor", "(a != T(0)) != (b != T(0))", "np.logical_xor(a, b)", kind="bool"),
    _unary("logical_not", "a == T(0)", "np.logical_not(a)", kind="bool"),
    _binary("bitwise_and", "T(a & b)", "np.bitwise_and(a, b)", refuse="f"),
    _binary("bitwise_or", "T(a | b)", "np.bitwise_or(a, b)", refuse="f"),
    _binary("bitwise_xor", "T(a ^ b)", "np.bitwise_xor(a, b)", refuse="f"),
    _unary("bitwise_not", "same<T, bool>::value ? T(!a) : T(~a)", "np.invert(a)", refuse="f"),
    _binary("bitwise_left_shift", "shift_left(a, b)", "host.shift_left(a, b)", refuse="bf"),
    _binary("bitwise_right_shift", "shift_right(a, b)", "host.shift_right(a, b)", refuse="bf"),
    _unary("isnan", "is_nan(a)", "np.isnan(a)", kind="bool", inplace=False),
    _unary("isinf", "is_infinite(a)", "np.isinf(a)", kind="bool", inplace=False),
    _unary("isfinite", "!is_nan(a) && !is_infinite(a)", "np.isfinite(a)", kind="bool",
           inplace=False),
    _unary("isposinf", "is_infinite(a) && a > T(0)", "np.isinf(a) & (a > 0)", kind="bool",
           inplace=False),
    _unary("isneginf", "is_infinite(a) && a < T(0)", "np.isinf(a) & (a < 0)", kind="bool",
           inplace=False),
    _unary("signbit", "has_sign(a)", "host.signbit(a)",
           kind="bool", inplace=False),
)  # fmt: skip

_CHOICE = (
    _binary("maximum", "maximum_of(a, b)", "np.maximum(a, b)", inplace=False,
            derivative=("shared(grad, a, b, True)", "shared(grad, b, a, True)")),
    _binary("minimum", "minimum_of(a, b)", "np.minimum(a, b)", inplace=False,
            derivative=("shared(grad, a, b, False)", "shared(grad, b, a, False)")),
    _binary("fmax", "larger_of(a, b)", "np.fmax(a, b)", inplace=False,
            derivative=("chosen((a >= b) | (b != b), grad)",
                        "chosen((a >= b) | (b != b), grad * 0, grad)")),
    _binary("fmin", "smaller_of(a, b)", "np.fmin(a, b)", inplace=False,
            derivative=("chosen((a <= b) | (b != b), grad)",
                        "chosen((a <= b) | (b != b), grad * 0, grad)")),
    Row("_clamp", 3, "clamp_of(a, b, c)", "np.minimum(np.maximum(a, b), c)",
        derivative=(
            "chosen((a >= b) & (a <= c), grad)",
            "chosen((a < b) & (b < c), grad)",
            "chosen((a > c) | (b > c), grad)",
        )),
    _binary("_clamp_min", "maximum_of(a, b)", "np.maximum(a, b)",
            derivative=("chosen(a >= b, grad)", "chosen(a < b, grad)")),
    _binary("_clamp_max", "minimum_of(a, b)", "np.minimum(a, b)",
            derivative=("chosen(a <= b, grad)", "chosen(a > b, grad)")),
    Row("_where", 3, "a != T(0) ? b : c", "np.where(a, b, c)", kind="branches",
        derivative=("", "chosen(wanted(a), grad)", "chosen(wanted(a), grad * 0, grad)")),
    Row("_masked_fill", 3, "b != T(0) ? c : a", "np.where(b, c, a)", kind="first",
        derivative=("chosen(wanted(b), grad * 0, grad)", "", "chosen(wanted(b), grad)")),
    _unary("relu", "maximum_of(a, T(0))", "np.maximum(a, a.dtype.type(0))", refuse="b",
           derivative=("chosen(out > 0, grad)",)),
    Row("_nan_to_num", 1, "is_nan(a) ? s0 : a == highest<T>() ? s1 : a == lowest<T>() ? s2 : a",
        "host.nan_to_num(a, s0, s1, s2)", scalars=3, refuse="bi",
        derivative=("chosen(a.isfinite(), grad)",)),
)  # fmt: skip

_ROUNDING = (
    _unary("floor", "round_down(a)", "host.floor(a)", refuse="b", derivative=("grad * 0",)),
    _unary("ceil", "round_up(a)", "host.ceil(a)", refuse="b", derivative=("grad * 0",)),
    _unary("_round", "round_even(a)", "host.round(a)", refuse="b", derivative=("grad * 0",)),
    _unary("trunc", "round_to_zero(a)", "host.trunc(a)", refuse="b", derivative=("grad * 0",),
           aliases=("fix",)),
    _unary("frac", "a - trunc(a)", "a - np.trunc(a)", refuse="bi", derivative=("grad",)),
)  # fmt: skip

_FUNCTIONS = (
    _float("exp", "", "grad * out"),
    _float("exp2", "", "grad * out * 0.6931471805599453"),
    _float("expm1", "", "grad * (out + 1)"),
    _float("log", "", "grad / a"),
    _float("log2", "", "grad / (a * 0.6931471805599453)"),
    _float("log10", "", "grad / (a * 2.302585092994046)"),
    _float("log1p", "", "grad / (a + 1)"),
    _float("sqrt", "", "grad / (2 * out)"),
    _float("rsqrt", "1 / np.sqrt(a)", "-0.5 * grad * out * out * out"),
    _float("sin", "", "grad * a.cos()"),
    _float("cos", "", "-grad * a.sin()"),
    _float("tan", "", "grad * (1 + out * out)"),
    _float("asin", "np.arcsin(a)", "grad / (1 - a * a).sqrt()", aliases=("arcsin",)),
    _float("acos", "np.arccos(a)", "-grad / (1 - a * a).sqrt()", aliases=("arccos",)),
    _float("atan", "np.arctan(a)", "grad / (1 + a * a)", aliases=("arctan",)),
    _float("sinh", "", "grad * a.cosh()"),
    _float("cosh", "", "grad * a.sinh()"),
    _float("tanh", "", "grad * (1 - out * out)"),
    _float("asinh", "np.arcsinh(a)", "grad / (a * a + 1).sqrt()", aliases=("arcsinh",)),
    _float("acosh", "np.arccosh(a)", "grad / (a * a - 1).sqrt()", aliases=("arccosh",)),
    _float("atanh", "np.arctanh(a)", "grad / (1 - a * a)", aliases=("arctanh",)),
    _float("sigmoid", "1 / (1 + np.exp(-a))", "grad * out * (1 - out)", "sigmoid_of(a)"),
    _float("erf", "host.erf(a)", "grad * 1.1283791670955126 * (-a * a).exp()"),
    _float("erfc", "host.erfc(a)", "-grad * 1.1283791670955126 * (-a * a).exp()"),
    _float("deg2rad", "a * (np.pi / 180)", "grad * 0.017453292519943295",
           "a * T(0.017453292519943295)"),
    _float("rad2deg", "a * (180 / np.pi)", "grad * 57.29577951308232", "a * T(57.29577951308232)"),
    _binary("atan2", "atan2(a, b)", "np.arctan2(a, b)", kind="float", aliases=("arctan2",),
            derivative=("grad * b / (a * a + b * b)", "-grad * a / (a * a + b * b)")),
)  # fmt: skip

_SPECIAL = tuple(
    row._replace(header="special.cuh")
    for row in (
        _float("lgamma", "host.special('lgamma', a)", "grad * a.digamma()"),
        _float("digamma", "host.special('digamma', a)", "grad * a.polygamma(1)", "digamma_of(a)",
               aliases=("psi",)),
        _float("erfinv", "host.special('erfinv', a)",
               "grad * 0.886226925452758 * (out * out).exp()"),
        _float("_trigamma", "host.special('trigamma', a)", "grad * a.polygamma(2)",
               "trigamma_of(a)"),
        _float("_logit", "np.log(a / (1 - a))", "grad / (a * (1 - a))", "log(a / (T(1) - a))"),
        _float("sinc", "np.sinc(a)", "grad * sinc_slope(a, out)", "sinc_of(a)"),
        _float("i0", "host.i0(a)", "grad * bessel_i1(a)", "bessel_i0(a)"),
        _float("_i1", "host.special('i1', a)", "grad * bessel_i1_slope(a, out)", "bessel_i1(a)"),
        _binary("xlogy", "xlogy_of(a, b)", "host.xlogy(a, b)", kind="float",
                derivative=("grad * logarithm(b)", "grad * a / b")),
        _binary("_zeta", "zeta_of(a, b)", "host.special('zeta', a, b)", kind="float",
                derivative=("missing('zeta: input')", "grad * zeta_slope(a, b)")),
        _binary("igamma", "igamma_of(a, b)", "host.special('igamma', a, b)", refuse="bi",
                derivative=("missing('igamma: input')", "grad * gamma_density(a, b)")),
        _binary("igammac", "igammac_of(a, b)", "host.special('igammac', a, b)", refuse="bi",
                derivative=("missing('igammac: input')", "-grad * gamma_density(a, b)")),
        _binary("logaddexp", "log_of_sum(a, b, T(1))", "np.logaddexp(a, b)", refuse="bi",
                inplace=False, derivative=("grad * (a - out).exp()", "grad * (b - out).exp()")),
        _binary("logaddexp2", "log_of_sum(a * T(0.6931471805599453), b * T(0.6931471805599453), "
                "T(1)) / T(0.6931471805599453)", "np.logaddexp2(a, b)", refuse="bi",
                inplace=False, derivative=("grad * (a - out).exp2()", "grad * (b - out).exp2()")),
        _binary("nextafter", "nextafter(a, b)", "np.nextafter(a, b)", refuse="bi",
                derivative=("grad", "grad * 0")),
        _binary("gcd", "greatest_divisor(a, b)", "np.gcd(a, b)", refuse="bf"),
        _binary("lcm", "least_multiple(a, b)", "host.lcm(a, b)", refuse="bf"),
        _binary("heaviside", "step_at(a, b)", "host.heaviside(a, b)"),
        _unary("_frexp_mantissa", "mantissa_of(a)", "np.frexp(a)[0]", refuse="bi",
               derivative=("grad * power_of_exponent(a)",)),
        _unary("_frexp_exponent", "exponent_of(a)", "np.frexp(a)[1].astype(a.dtype)", refuse="bi"),
    )
)  # fmt: skip

_PARTS = (
    _unary("angle", "angle_of(a)", "host.angle(a)", kind="float_real", inplace=False,
           derivative=("angle_slope(grad, a)",)),
    _unary("conj_physical", "conjugate(a)", "np.conjugate(a)", derivative=("grad.conj()",)),
    Row("_complex", 2, "T{a.re, b.re}", "host.joined(a, b)", refuse="bif",
        derivative=("grad.real", "grad.imag")),
    Row("_polar", 2, "T{a.re * cos(b.re), a.re * sin(b.re)}", "host.polar(a, b)", refuse="bif",
        derivative=("polar_length(grad, b)", "grad.imag * out.real - grad.real * out.imag")),
)  # fmt: skip

_INTERNAL = (_unary("_copy", "a", "a", kind="copy"),)

_COMPLEX_NAMES = """
_add _sub mul _div _pow _add_scaled _sub_scaled neg positive abs sgn _square reciprocal lerp addcmul
addcdiv eq ne logical_and logical_or logical_xor logical_not isnan isinf isfinite _where
_masked_fill exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh
tanh asinh acosh atanh sigmoid sinc angle conj_physical _complex _polar _copy
"""
_FLOAT8_NAMES = "abs eq ne isnan isinf isfinite positive _where _masked_fill _copy"
_COMPLEX = frozenset(_COMPLEX_NAMES.split())  # rows that complex numbers go through too
_FLOAT8 = frozenset(_FLOAT8_NAMES.split())  # eight-bit floats are only moved and compared


def _refusing(row: Row) -> Row:
    letters = row.refuse + ("" if row.name in _COMPLEX else "c")
    return row._replace(refuse=letters + ("" if row.name in _FLOAT8 else "8"))


ROWS: dict[str, Row] = {
    row.name: _refusing(row)
    for group in (
        _ARITHMETIC,
        _COMPARISON,
        _LOGIC,
        _CHOICE,
        _ROUNDING,
        _FUNCTIONS,
        _SPECIAL,
        _PARTS,
        _INTERNAL,
    )
    for row in group
}
