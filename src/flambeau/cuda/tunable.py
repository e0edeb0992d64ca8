# SPDX-License-Identifier: Apache-2.0
"""TunableOp: the fastest of several ways to compute a matrix product, found by timing them.

While it is enabled, each matrix product is looked up among results. One that is not there is tuned:
the algorithms of cuBLAS and cuBLASLt are timed, and the fastest is used from then on and written to
a results file, from which later runs take it. Products of a matrix and a vector are not tuned.

Environment variables ``PYTORCH_TUNABLEOP_*`` are read once and beat these functions: ``ENABLED``,
``TUNING``, ``RECORD_UNTUNED``, ``WILDCARD_FALLBACK``, ``FILENAME``, ``UNTUNED_FILENAME``,
``VERBOSE`` (1 to 3), ``VERBOSE_FILENAME`` (``err``, ``out`` or a path), ``NUMERICAL_CHECK``
(``atol_rtol`` or 0), ``MAX_TUNING_DURATION_MS``, ``MAX_TUNING_ITERATIONS``,
``MAX_WARMUP_DURATION_MS``, ``MAX_WARMUP_ITERATIONS``, ``ROTATING_BUFFER_SIZE`` (MB),
``CUBLASLT_REQUESTED_ALGO_COUNT``, ``BLAS_LOG`` and ``ICACHE_FLUSH_ENABLED``, which
is accepted and means nothing: NVIDIA GPUs have no instruction that flushes the instruction cache.
On virtual GPUs the algorithms have modelled times.

Examples
--------
>>> import flambeau as torch
>>> torch.cuda.tunable.is_enabled()
False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.cuda._tunable_offline import mgpu_tune_gemm_in_file, tune_gemm_in_file
from flambeau.cuda._tunable_results import results as _results
from flambeau.cuda._tunable_results import validators as _validators
from flambeau.cuda._tunable_settings import (
    Mask,
    bytes_of_buffer,
    checked_tolerances,
)
from flambeau.cuda._tunable_settings import settings as _settings
from flambeau.cuda._tunable_tuning import choose as _choose
from flambeau.cuda._tunable_tuning import rotating_bytes as _rotating_bytes
from flambeau.runtime import _matmul, _state

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "dynamic_dims_mask",
    "enable",
    "get_cublaslt_requested_algo_count",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "mgpu_tune_gemm_in_file",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_cublaslt_requested_algo_count",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tuning_enable",
    "tuning_is_enabled",
    "wildcard_fallback_enable",
    "wildcard_fallback_is_enabled",
]


def _set(field: str, value: object) -> None:
    _settings.set(field, value)
    apply()


def apply() -> None:
    """Have products ask for tuned algorithms, or not, and ask anew."""
    _matmul.set_tuner(_choose if _settings.get("enabled") else None)


def enable(val: bool = True) -> None:
    """Turn TunableOp on or off, for all products of this process.

    Parameters
    ----------
    val
        Whether it is on. Without effect while ``PYTORCH_TUNABLEOP_ENABLED`` is set.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.enable()
    >>> torch.cuda.tunable.is_enabled()
    True
    >>> torch.cuda.tunable.enable(False)
    """
    _set("enabled", bool(val))


def is_enabled() -> bool:
    """Whether TunableOp is on.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.is_enabled()
    False
    """
    return bool(_settings.get("enabled"))


def tuning_enable(val: bool = True) -> None:
    """Whether products without a result are tuned; on at first.

    Parameters
    ----------
    val
        False uses results that are there and the default algorithm for all else.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.tuning_enable(False)
    >>> torch.cuda.tunable.tuning_is_enabled()
    False
    >>> torch.cuda.tunable.tuning_enable()
    """
    _set("tuning", bool(val))


def tuning_is_enabled() -> bool:
    """Whether products without a result are tuned.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.tuning_is_enabled()
    True
    """
    return bool(_settings.get("tuning"))


def record_untuned_enable(val: bool = True) -> None:
    """Whether products without a result are written to a list, to be tuned later.

    Parameters
    ----------
    val
        Works while tuning is off. The list is ``tunableop_untuned.csv`` or what
        ``PYTORCH_TUNABLEOP_UNTUNED_FILENAME`` says, with the device's number before the last dot.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.record_untuned_enable()
    >>> torch.cuda.tunable.record_untuned_is_enabled()
    True
    >>> torch.cuda.tunable.record_untuned_enable(False)
    """
    _set("record_untuned", bool(val))


def record_untuned_is_enabled() -> bool:
    """Whether products without a result are written to a list.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.record_untuned_is_enabled()
    False
    """
    return bool(_settings.get("record_untuned"))


def wildcard_fallback_enable(val: bool = True) -> None:
    """Whether a product without a result may use an entry with open dimensions.

    Parameters
    ----------
    val
        Works while tuning is off. `dynamic_dims_mask` makes such entries.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.wildcard_fallback_enable()
    >>> torch.cuda.tunable.wildcard_fallback_is_enabled()
    True
    >>> torch.cuda.tunable.wildcard_fallback_enable(False)
    """
    _set("wildcard_fallback", bool(val))


def wildcard_fallback_is_enabled() -> bool:
    """Whether entries with open dimensions are used.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.wildcard_fallback_is_enabled()
    False
    """
    return bool(_settings.get("wildcard_fallback"))


def set_max_tuning_duration(duration: int) -> None:
    """Limit the final timing of one algorithm.

    Parameters
    ----------
    duration
        Milliseconds, 30 at first; 0 and less: no limit.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_max_tuning_duration(-1)
    >>> torch.cuda.tunable.get_max_tuning_duration()
    0
    >>> torch.cuda.tunable.set_max_tuning_duration(30)
    """
    _settings.set("max_tuning_duration", max(0, duration))


def get_max_tuning_duration() -> int:
    """The limit of an algorithm's final timing, in milliseconds; 0 for none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.get_max_tuning_duration()
    30
    """
    return int(_settings.get("max_tuning_duration"))


def set_max_tuning_iterations(iterations: int) -> None:
    """Limit the runs of an algorithm's final timing.

    Parameters
    ----------
    iterations
        100 at first; 0 and less: no limit. Without either limit there are 100 runs.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_max_tuning_iterations(7)
    >>> torch.cuda.tunable.get_max_tuning_iterations()
    7
    >>> torch.cuda.tunable.set_max_tuning_iterations(100)
    """
    _settings.set("max_tuning_iterations", max(0, iterations))


def get_max_tuning_iterations() -> int:
    """The limit of runs of an algorithm's final timing; 0 for none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.get_max_tuning_iterations()
    100
    """
    return int(_settings.get("max_tuning_iterations"))


def set_cublaslt_requested_algo_count(count: int) -> None:
    """Set how many algorithms cuBLASLt's heuristic is asked for.

    Parameters
    ----------
    count
        8 at first, at least 1. Variants of the best ones are tried too.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_cublaslt_requested_algo_count(0)
    >>> torch.cuda.tunable.get_cublaslt_requested_algo_count()
    1
    >>> torch.cuda.tunable.set_cublaslt_requested_algo_count(8)
    """
    _settings.set("requested_algorithms", max(1, count))


def get_cublaslt_requested_algo_count() -> int:
    """How many algorithms cuBLASLt's heuristic is asked for.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.get_cublaslt_requested_algo_count()
    8
    """
    return int(_settings.get("requested_algorithms"))


def dynamic_dims_mask(
    M: bool = False, N: bool = False, K: bool = False, BATCH: bool = False
) -> AbstractContextManager[None]:
    """Tune products inside a ``with`` block for whole families.

    Each product that is tuned there adds a second entry with ``*`` for the named dimensions, which
    `wildcard_fallback_enable` lets others of the family use.

    Parameters
    ----------
    M, N, K, BATCH
        The dimensions to leave open, as cuBLAS counts them: M is the number of columns of a
        row-major result, N its rows.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.tunable.dynamic_dims_mask(N=True):
    ...     y = torch.ones(4, 8, device="cuda") @ torch.ones(8, 4, device="cuda")
    """
    return _settings.masked(Mask(M, N, K, BATCH))


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Set the results file.

    Parameters
    ----------
    filename
        Its path. Without effect while ``PYTORCH_TUNABLEOP_FILENAME`` is set.
    insert_device_ordinal
        Put the current device's number for ``%d``, else before the last dot.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_filename("results.csv", insert_device_ordinal=True)
    >>> torch.cuda.tunable.get_filename()
    'results0.csv'
    """
    _results.set_filename(filename, _state.current_device() if insert_device_ordinal else None)
    _matmul.forget_tuned()


def get_filename() -> str:
    """The results file; ``""`` before it is first needed.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_filename("results.csv")
    >>> torch.cuda.tunable.get_filename()
    'results.csv'
    """
    return _results.settled_filename()


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """Give all results: operation, parameters, algorithm, milliseconds (0.0 where not known).

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.get_results()
    ()
    """
    return _results.all()


def get_validators() -> tuple[tuple[str, str], ...]:
    """What a results file must have been made with, as pairs of a name and a value.

    Examples
    --------
    >>> import flambeau as torch
    >>> dict(torch.cuda.tunable.get_validators()).get("FLAMBEAU_NOT_THERE") is None
    True
    """
    return _validators()


def read_file(filename: str | None = None) -> bool:
    """Take in a results file; entries that are known stay.

    Parameters
    ----------
    filename
        By default the one of `get_filename`.

    Returns
    -------
    bool
        False if it is missing, or was made with other versions or another GPU.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.read_file("nothing.csv")
    False
    """
    name = filename or _results.filename(_state.current_device())
    _matmul.forget_tuned()
    return _results.read(name)


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Set how much memory the matrices that are timed take together.

    Parameters
    ----------
    buffer_size
        Megabytes; 0 uses one set of matrices again and again, a negative number means the size of
        the L2 cache, which is how it starts.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_rotating_buffer_size(1)
    >>> torch.cuda.tunable.get_rotating_buffer_size()
    1048576
    >>> torch.cuda.tunable.set_rotating_buffer_size(-1)
    """
    _settings.set("rotating_buffer", bytes_of_buffer(buffer_size))


def get_rotating_buffer_size() -> int:
    """The size of that memory in bytes.

    Examples
    --------
    >>> import flambeau as torch
    >>> size = torch.cuda.get_device_properties(0).L2_cache_size
    >>> torch.cuda.tunable.get_rotating_buffer_size() == size
    True
    """
    return _rotating_bytes(_state.current_device())


def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """Whether algorithms whose results differ from the default's are left out.

    Parameters
    ----------
    enable
        False checks nothing, which is how it starts.
    atol, rtol
        Tolerances as for `allclose`, positive.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.tunable.set_numerical_check_tolerances(True, atol=1e-3)
    >>> torch.cuda.tunable.set_numerical_check_tolerances(False)
    """
    checked = checked_tolerances(atol, rtol)
    _settings.set("tolerances", checked if enable else None)
