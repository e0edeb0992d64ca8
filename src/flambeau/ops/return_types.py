# SPDX-License-Identifier: Apache-2.0
"""Named tuples that operations with several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "aminmax",
    "cummax",
    "cummin",
    "frexp",
    "histogram",
    "kthvalue",
    "max",
    "median",
    "min",
    "mode",
    "nanmedian",
    "sort",
    "topk",
]


class _Shown:
    """A repr that names the public type, as programs print it."""

    def __repr__(self) -> str:
        fields = ",\n".join(f"{name}={getattr(self, name)!r}" for name in self._fields)  # type: ignore[attr-defined]
        return f"torch.return_types.{type(self).__name__}(\n{fields})"


class _ValuesIndices(NamedTuple):
    values: Tensor
    indices: Tensor


class _MinMax(NamedTuple):
    min: Tensor
    max: Tensor


class _MantissaExponent(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


class _HistogramEdges(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class max(_Shown, _ValuesIndices):  # noqa: N801 - torch's names
    """Largest values along a dimension and where they are."""


class min(_Shown, _ValuesIndices):  # noqa: N801
    """Smallest values along a dimension and where they are."""


class sort(_Shown, _ValuesIndices):  # noqa: N801
    """Sorted values and where they were."""


class topk(_Shown, _ValuesIndices):  # noqa: N801
    """The k largest or smallest values and where they are."""


class kthvalue(_Shown, _ValuesIndices):  # noqa: N801
    """The k-th smallest values and where they are."""


class median(_Shown, _ValuesIndices):  # noqa: N801
    """Medians along a dimension and where they are."""


class nanmedian(_Shown, _ValuesIndices):  # noqa: N801
    """Medians of what is no NaN, and where they are."""


class aminmax(_Shown, _MinMax):  # noqa: N801
    """Smallest and largest values."""


class cummax(_Shown, _ValuesIndices):  # noqa: N801
    """Largest values so far and where they are."""


class cummin(_Shown, _ValuesIndices):  # noqa: N801
    """Smallest values so far and where they are."""


class mode(_Shown, _ValuesIndices):  # noqa: N801
    """Most frequent values and where they are."""


class frexp(_Shown, _MantissaExponent):  # noqa: N801
    """Mantissas in [0.5, 1) and powers of two."""


class histogram(_Shown, _HistogramEdges):  # noqa: N801
    """Counts and the edges of their bins."""
