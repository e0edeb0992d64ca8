# SPDX-License-Identifier: Apache-2.0
"""What TunableOp is told: by calls, and by environment variables, which beat calls."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PREFIX", "Mask", "Settings", "say", "settings"]

PREFIX = "PYTORCH_TUNABLEOP_"
RESULTS, UNTUNED = "tunableop_results.csv", "tunableop_untuned.csv"


@dataclass(frozen=True, slots=True)
class Mask:
    """Which dimensions of a product are left open in its key, counted as cuBLAS does."""

    m: bool = False
    n: bool = False
    k: bool = False
    batch: bool = False

    def __bool__(self) -> bool:
        return self.m or self.n or self.k or self.batch


def _flag(text: str) -> bool:
    return text == "1"


def _limit(text: str) -> int:
    return max(0, int(text))


def _tolerances(text: str) -> tuple[float, float] | None:
    if text == "0":
        return None
    parts = text.split("_")
    try:
        absolute, relative = (float(part) for part in parts)
    except ValueError:
        raise ValueError(
            f"{PREFIX}NUMERICAL_CHECK is {text!r}. Expected 'atol_rtol', such as 1e-5_1e-5, or 0"
        ) from None
    return checked_tolerances(absolute, relative)


def checked_tolerances(atol: float, rtol: float) -> tuple[float, float]:
    """Tolerances that make sense.

    Raises
    ------
    RuntimeError
        One is not positive.
    """
    if not (atol > 0 and rtol > 0):
        raise RuntimeError(
            f"Numerical check tolerances must be positive, got atol={atol} and rtol={rtol}"
        )
    return atol, rtol


def _megabytes(text: str) -> int | None:
    return bytes_of_buffer(int(text))


def bytes_of_buffer(megabytes: int) -> int | None:
    """Bytes of the rotating buffer; None means as much as the L2 cache."""
    return None if megabytes < 0 else megabytes << 20


# field: default, variable, how to read it
_FIELDS: dict[str, tuple[Any, str, Any]] = {
    "enabled": (False, "ENABLED", _flag),
    "tuning": (True, "TUNING", _flag),
    "record_untuned": (False, "RECORD_UNTUNED", _flag),
    "wildcard_fallback": (False, "WILDCARD_FALLBACK", _flag),
    "filename": (None, "FILENAME", str),
    "untuned_filename": (UNTUNED, "UNTUNED_FILENAME", str),
    "verbose": (0, "VERBOSE", int),
    "verbose_filename": ("err", "VERBOSE_FILENAME", str),
    "tolerances": (None, "NUMERICAL_CHECK", _tolerances),
    "max_tuning_duration": (30, "MAX_TUNING_DURATION_MS", _limit),
    "max_tuning_iterations": (100, "MAX_TUNING_ITERATIONS", _limit),
    "max_warmup_duration": (0, "MAX_WARMUP_DURATION_MS", _limit),
    "max_warmup_iterations": (0, "MAX_WARMUP_ITERATIONS", _limit),
    "icache_flush": (True, "ICACHE_FLUSH_ENABLED", _flag),
    "rotating_buffer": (None, "ROTATING_BUFFER_SIZE", _megabytes),
    "requested_algorithms": (8, "CUBLASLT_REQUESTED_ALGO_COUNT", lambda text: max(1, int(text))),
    "blas_log": (False, "BLAS_LOG", _flag),
}


class Settings:
    """The settings of this process. The environment is read once, at first use."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._fixed: dict[str, Any] | None = None
        self.mask = Mask()

    def _environment(self) -> dict[str, Any]:
        if self._fixed is None:
            self._fixed = {}
            for field, (_, variable, read) in _FIELDS.items():
                text = os.environ.get(PREFIX + variable)
                if not text:
                    continue
                try:
                    self._fixed[field] = read(text)
                except ValueError as error:
                    self._fixed = None
                    if str(error).startswith(PREFIX):
                        raise
                    raise ValueError(f"{PREFIX}{variable} is {text!r}: not a number") from error
        return self._fixed

    def get(self, field: str) -> Any:
        """A setting's value."""
        fixed = self._environment()
        if field in fixed:
            return fixed[field]
        return self._values.get(field, _FIELDS[field][0])

    def set(self, field: str, value: Any) -> None:
        """Set a value; without effect while the environment says another."""
        self._values[field] = value

    def is_fixed(self, field: str) -> bool:
        """Whether the environment sets it."""
        return field in self._environment()

    def reset(self) -> None:
        """Go back to the beginning, the environment included; for tests."""
        self._values, self._fixed, self.mask = {}, None, Mask()

    @contextmanager
    def masked(self, mask: Mask) -> Iterator[None]:
        """Leave dimensions open for the time of a block."""
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before


settings = Settings()


def say(level: int, text: str) -> None:
    """Tell what TunableOp does, if the verbosity is at least `level`."""
    if settings.get("verbose") < level:
        return
    where = settings.get("verbose_filename")
    if where in {"err", "out"}:
        print(text, file=sys.stderr if where == "err" else sys.stdout)
        return
    with open(where, "a", encoding="utf-8") as file:
        file.write(text + "\n")
