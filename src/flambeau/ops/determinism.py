# SPDX-License-Identifier: Apache-2.0
"""Deterministic mode: operations whose results depend on the order of threads are refused."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled",
    "refuse",
    "set_deterministic_debug_mode",
    "use_deterministic_algorithms",
]

_MODES = {"default": 0, "warn": 1, "error": 2}
_enabled = False
_warn_only = False
_fill = True  # of utils.deterministic.fill_uninitialized_memory

# What combines numbers in whatever order threads come.
_ACTIONS = {
    "accumulate": "Adding {} numbers into elements that an index may name several times",
    "multiply": "Multiplying {} numbers into elements that an index may name several times",
}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Refuse operations whose results may differ from run to run, or stop refusing them.

    Parameters
    ----------
    mode
        Whether to refuse. On CUDA these are sums and products of floating-point and complex numbers
        into elements that are named several times: `scatter_add`, `index_add`, `index_put` and
        `put_` with ``accumulate=True``, `scatter_reduce` with sums, products and means, and the
        gradients of indexing. Cumulative sums of few long rows take a slower kernel. All else is
        deterministic always.
    warn_only
        Warn instead of raising.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.use_deterministic_algorithms(True)
    >>> torch.are_deterministic_algorithms_enabled()
    True
    >>> torch.use_deterministic_algorithms(False)
    """
    global _enabled, _warn_only
    _enabled, _warn_only = bool(mode), bool(mode and warn_only)
    _fill_factories()


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` has been turned on."""
    return _enabled


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether operations that may differ only warn."""
    return _warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Choose what operations do whose results may differ from run to run.

    Parameters
    ----------
    debug_mode
        0 or ``"default"``: nothing; 1 or ``"warn"``: warn; 2 or ``"error"``: raise.
    """
    number: int
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                f"{debug_mode}"
            )
        number = _MODES[debug_mode]
    elif isinstance(debug_mode, int):
        number = debug_mode
    else:
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if number not in _MODES.values():
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {number}")
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """Give what `set_deterministic_debug_mode` chose: 0, 1 or 2."""
    return (1 if _warn_only else 2) if _enabled else 0


def refuse(action: str, of: dtype) -> None:
    """Raise or warn if combining numbers of a dtype in any order is not what the mode allows.

    Parameters
    ----------
    action
        What is done: a key of `_ACTIONS`, or something else, which passes.
    of
        The numbers' dtype.

    Raises
    ------
    RuntimeError
        The mode is on, and results with this dtype depend on the order.
    """
    if not _enabled or of.category < 2 or action not in _ACTIONS:
        return
    text = f"{_ACTIONS[action].format(of)} does not have a deterministic implementation"
    if _warn_only:
        warnings.warn(
            f"{text}, but you set 'torch.use_deterministic_algorithms(True, warn_only=True)'.",
            UserWarning,
            stacklevel=4,
        )
        return
    raise RuntimeError(
        f"{text}, but you set 'torch.use_deterministic_algorithms(True)'. You can turn off "
        "determinism just for this operation, or you can use the 'warn_only=True' option, if "
        "that's acceptable for your application. Integers are added in any order alike."
    )


# -- memory that nobody has written --------------------------------------------------------------

_plain: dict[str, Any] = {}
_FACTORIES = ("empty", "empty_like", "empty_strided")


def get_fill() -> bool:
    """Whether new memory is filled while the mode is on."""
    return _fill


def set_fill(fill: bool) -> None:
    """Set `get_fill`."""
    global _fill
    _fill = bool(fill)
    _fill_factories()


def _fill_value(made: Tensor) -> Any:
    from flambeau.runtime._dtype import iinfo

    if made.dtype.category >= 2:
        return float("nan")
    return True if made.dtype.category == 0 else iinfo(made.dtype).max


def _filling(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def factory(*args: Any, **kwargs: Any) -> Tensor:
        made = plain(*args, **kwargs)
        return made.fill_(_fill_value(made))

    factory.__name__ = factory.__qualname__ = plain.__name__
    factory.__doc__ = plain.__doc__
    return factory


def _fill_factories() -> None:
    """Put factories that fill in the place of the plain ones, or the plain ones back.

    Made anew each time rather than asking in each call: making tensors is a hot path.
    """
    namespace = vars(sys.modules["flambeau"])
    from flambeau.runtime import _tensor

    if not _plain:
        _plain.update({name: namespace[name] for name in _FACTORIES})
        _plain["new_empty"] = vars(_tensor.Tensor)["new_empty"]
    filling = _enabled and _fill
    for name, plain in _plain.items():
        made = _filling(plain) if filling else plain
        if name == "new_empty":
            _tensor.install_methods({name: made})
        else:
            namespace[name] = made
