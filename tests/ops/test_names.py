# SPDX-License-Identifier: Apache-2.0
"""Every name that programs expect is there: as a function, as a method, in place, with ``out=``."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import flambeau as torch

CREATION = """
empty zeros ones full arange linspace logspace eye tensor as_tensor asarray from_numpy frombuffer
empty_like zeros_like ones_like full_like rand_like randn_like randint_like empty_strided
empty_permuted tril_indices triu_indices meshgrid complex polar vander block_diag scalar_tensor
rand randn randint randperm normal poisson binomial cartesian_prod combinations
"""
BOTH = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin
aminmax angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
argwhere as_strided as_strided_scatter asin asinh atan atan2 atanh baddbmm bernoulli bincount
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
broadcast_to ceil chunk clamp clamp_max clamp_min clip clone conj conj_physical copysign corrcoef
cos cosh count_nonzero cov cross cummax cummin cumprod cumsum deg2rad detach diag diag_embed
diagflat diagonal diagonal_scatter diff digamma dist div divide dot dsplit eq equal erf erfc erfinv
exp exp2 expm1 fix flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac
frexp gather gcd ge ger greater greater_equal gt heaviside histc histogram hsplit hypot i0 igamma
igammac imag index_add index_copy index_fill index_put index_reduce index_select inner
is_complex is_floating_point isclose isfinite isinf isnan isneginf isposinf isreal kron kthvalue lcm
ldexp le lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logcumsumexp
logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_scatter
masked_select matmul max maximum mean median min minimum mm mode moveaxis movedim msort mul
multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy
ne neg negative nextafter nonzero norm not_equal numel outer permute polygamma positive pow prod put
quantile rad2deg ravel real reciprocal relu remainder renorm repeat_interleave reshape resolve_conj
resolve_neg roll rot90 round rsqrt rsub scatter scatter_add scatter_reduce select select_scatter sgn
sigmoid sign signbit sin sinc sinh slice_scatter sort split split_with_sizes sqrt square squeeze std
sub subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor_split tile topk trace
transpose tril triu true_divide trunc unbind unflatten unique unique_consecutive unsafe_chunk
unsafe_split unsqueeze var vdot vsplit where xlogy
"""
FUNCTIONS = """
atleast_1d atleast_2d atleast_3d broadcast_shapes broadcast_tensors bucketize cat cdist chain_matmul
column_stack concat cumulative_trapezoid dstack einsum hstack isin row_stack searchsorted stack
std_mean tensordot trapezoid trapz var_mean view_as_complex view_as_real vstack can_cast
promote_types result_type unravel_index exp_ sqrt_ sigmoid_ neg_ abs_ clamp_ round_
"""
METHODS = """
new_empty new_zeros new_ones new_full new_tensor new_empty_strided view view_as expand expand_as
reshape_as repeat unfold sum_to_size type_as squeeze_ unsqueeze_ t_ transpose_ swapaxes_ as_strided_
mT mH H T fill_diagonal_ scatter_reduce_ index_reduce_ resize_as_ is_set_to
"""
IN_PLACE = """
abs acos acosh add addbmm addcdiv addcmul addmm addmv addr asin asinh atan atan2 atanh baddbmm
bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
cauchy ceil clamp clamp_max clamp_min clip conj_physical copy copysign cos cosh cumprod cumsum
deg2rad digamma div eq erf erfc erfinv exp exp2 expm1 exponential fill fix float_power floor
floor_divide fmod frac gcd ge geometric gt heaviside hypot i0 igamma igammac index_add index_copy
index_fill index_put index_reduce lcm ldexp le lerp lgamma log log10 log1p log2 log_normal
logical_and logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul mvlgamma
nan_to_num ne neg nextafter normal polygamma pow put rad2deg random reciprocal remainder renorm
round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt square sub tan
tanh tril triu trunc uniform xlogy zero
"""
WITH_OUT = """
abs acos add addbmm addmm addmv addr all amax amin any atan2 baddbmm bitwise_and bmm bucketize cat
ceil clamp clamp_max clamp_min copysign cos cosh cummax cummin cumprod cumsum div dot eq erf exp
floor fmod frexp gather gcd histc i0 index_select kron kthvalue ldexp lerp lgamma log
logcumsumexp logical_and logit lt masked_select matmul max maximum mean median min mm mode mul mv
nan_to_num nanquantile nansum neg nonzero norm outer polygamma pow prod quantile reciprocal
remainder round scatter_add searchsorted sin sort sqrt stack std sub sum take tan tensordot topk
tril triu trunc var vdot where xlogy
"""


@pytest.mark.parametrize("name", [*CREATION.split(), *BOTH.split(), *FUNCTIONS.split()])
def test_a_function(name: str) -> None:
    assert callable(getattr(torch, name))


@pytest.mark.parametrize("name", [*BOTH.split(), *METHODS.split()])
def test_a_method(name: str) -> None:
    assert hasattr(torch.Tensor, name)


@pytest.mark.parametrize("name", IN_PLACE.split())
def test_an_in_place_method(name: str) -> None:
    assert callable(getattr(torch.Tensor, f"{name}_"))


@pytest.mark.parametrize("name", WITH_OUT.split())
def test_an_out_argument(name: str) -> None:
    assert "out" in inspect.signature(getattr(torch, name)).parameters


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_lists_of_what_is_loaded_later_are_right() -> None:
    run_python("""
import importlib
import flambeau
from flambeau.ops import later
from flambeau.ops.registry import FUNCTIONS, METHODS
functions, methods = set(FUNCTIONS), set(METHODS)
for family in later.FAMILIES:
    importlib.import_module(f"flambeau.ops.{family}")
assert set(FUNCTIONS) - functions == set(later._FUNCTIONS.split())
assert set(METHODS) - methods == later.METHOD_NAMES
""")


def test_a_part_of_a_complex_tensor_may_be_the_first_thing_asked_for() -> None:
    run_python("""
import flambeau as torch
x = torch.zeros(2, dtype=torch.complex64)
x.real = 3
assert x.tolist() == [3, 3] and torch.einsum("i->", x).item() == 6
""")
