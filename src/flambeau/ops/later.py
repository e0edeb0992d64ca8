# SPDX-License-Identifier: Apache-2.0
"""Families of operations that few programs use: loaded when one of their names is asked for.

They would take a fifth of the time of ``import flambeau``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flambeau.ops.registry import FUNCTIONS, METHODS
from flambeau.runtime import _tensor
from flambeau.runtime._recording import recorded

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["FAMILIES", "FUNCTION_NAMES", "METHOD_NAMES", "function", "install"]

FAMILIES = (
    "complex_numbers", "counting", "products", "random_trials", "ranking", "rearranging", "special",
    "windows",
)  # fmt: skip
_FUNCTIONS = """
_sample_dirichlet _standard_gamma addbmm addmv addr adjoint as_strided_copy as_strided_scatter
bartlett_window bincount binomial blackman_window block_diag broadcast_shapes broadcast_to
bucketize cdist chain_matmul column_stack combinations complex conj corrcoef cov cross
cumulative_trapezoid detach_copy diag_embed diagflat diagonal_copy diagonal_scatter dist dsplit
einsum empty_permuted expand_copy fill frexp ger gradient hamming_window hann_window histc
histogram hsplit imag inner is_conj is_neg is_same_size isin isreal kaiser_window kron ldexp logit
mode mvlgamma nanquantile narrow_copy pairwise_distance pdist permute_copy polar polygamma
quantile range real renorm resolve_conj resolve_neg searchsorted select_copy select_scatter
slice_scatter split_copy split_with_sizes_copy squeeze_copy t_copy tensordot transpose_copy
trapezoid trapz tril_indices triu_indices unbind_copy unfold_copy unique_consecutive unravel_index
unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze_copy vander vdot view_as_complex
view_as_real view_copy vsplit
"""
_METHODS = """
H addbmm addbmm_ addmv addmv_ addr addr_ adjoint as_strided_ as_strided_scatter baddbmm_ bincount
broadcast_to clamp_max_ clamp_min_ conj corrcoef cov cross diag_embed diagflat diagonal_scatter
dist dsplit fill_diagonal_ float_power_ frexp histc histogram hsplit imag inner is_conj is_neg
is_same_size is_set_to isreal kron ldexp ldexp_ logit logit_ mH mode mvlgamma mvlgamma_ nan_to_num_
nanquantile narrow_copy new_empty_strided polygamma polygamma_ quantile real renorm renorm_
resize_as_ resolve_conj resolve_neg select_scatter slice_scatter squeeze_ sum_to_size swapaxes_
swapdims_ t_ transpose_ unique_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes
unsqueeze_ vdot vsplit
"""
# In-place methods of these families that are functions too.
_IN_PLACE = "addmv_ as_strided_ clamp_max_ clamp_min_ ldexp_ logit_ nan_to_num_ resize_as_"
FUNCTION_NAMES = frozenset([*_FUNCTIONS.split(), *_IN_PLACE.split()])
METHOD_NAMES = frozenset(_METHODS.split())


def load() -> None:
    """Import the families and put their methods on `Tensor`."""
    for family in FAMILIES:
        importlib.import_module(f"flambeau.ops.{family}")
    methods: dict[str, Any] = {name: METHODS[name] for name in METHOD_NAMES}
    for name in ("H", "mH"):
        found: Any = methods[name]
        methods[name] = property(recorded(found.fget), doc=found.__doc__)
    _tensor.install_methods(methods)
    for name in _IN_PLACE.split():
        FUNCTIONS[name] = METHODS[name]


class _Later:
    """Stands for a method until it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Tensor | None, owner: type[Tensor]) -> Any:
        load()
        return getattr(owner if instance is None else instance, self.name)

    def __set__(self, instance: Tensor, value: Any) -> None:
        load()
        setattr(instance, self.name, value)


def function(name: str) -> Any:
    """The function of a name in `FUNCTION_NAMES`."""
    if name not in FUNCTIONS:
        load()
    return FUNCTIONS[name]


def install() -> None:
    """Put placeholders on `Tensor`; done once by ``import flambeau``."""
    placeholders: dict[str, Any] = {name: _Later(name) for name in METHOD_NAMES}
    _tensor.install_methods(placeholders)
