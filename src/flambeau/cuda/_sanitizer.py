# SPDX-License-Identifier: Apache-2.0
"""A sanitizer for streams: finds uses of the same memory that no stream, event or wait orders.

`enable_cuda_sanitizer` switches it on for the process, and so does the environment variable
``TORCH_CUDA_SANITIZER``, whatever its value, when `flambeau` is imported; the values ``warn`` and
``collect`` choose these modes. See ``docs/sanitizer.md``.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from typing import TYPE_CHECKING, Literal, get_args

from flambeau.cuda.streams import current_stream
from flambeau.runtime import observers
from flambeau.runtime.sanitizer import Watcher
from flambeau.runtime.sanitizer_report import (
    Access,
    AccessType,
    CUDASanitizerErrors,
    SynchronizationError,
    UnsynchronizedAccessError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.cuda.streams import Stream
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "Access",
    "AccessType",
    "CUDASanitizer",
    "CUDASanitizerDispatchMode",
    "CUDASanitizerErrors",
    "CUDASanitizerWarning",
    "SynchronizationError",
    "UnsynchronizedAccessError",
    "cuda_sanitizer",
    "declare_access",
    "enable_cuda_sanitizer",
]

Mode = Literal["raise", "warn", "collect"]
VARIABLE = "TORCH_CUDA_SANITIZER"


class CUDASanitizerWarning(UserWarning):
    """What the mode ``"warn"`` warns with."""


class CUDASanitizerDispatchMode:
    """Context manager: watches all threads' operations while it is entered.

    Parameters
    ----------
    mode
        What happens when an operation races with an earlier one. ``"raise"``: the report is
        written to stderr, and `CUDASanitizerErrors` is raised after the operation. ``"warn"``:
        the report is a `CUDASanitizerWarning`. ``"collect"``: nothing but an entry in `errors`.

    Attributes
    ----------
    errors : list of SynchronizationError
        All that was found since the object was entered last. A pair of program lines is found
        once, unless the mode is ``"raise"``.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda._sanitizer import CUDASanitizerDispatchMode
    >>> x = torch.zeros(4, device="cuda")
    >>> side = torch.cuda.Stream()
    >>> with CUDASanitizerDispatchMode("collect") as found:
    ...     y = x.add_(1)
    ...     with torch.cuda.stream(side):
    ...         z = x * 2  # does not wait for the addition
    >>> len(found.errors)
    1
    """

    def __init__(self, mode: Mode = "raise") -> None:
        if mode not in get_args(Mode):
            known = ", ".join(repr(m) for m in get_args(Mode))
            raise ValueError(f"no sanitizer mode is named {mode!r}; there are {known}")
        self.mode = mode
        self.errors: list[SynchronizationError] = []
        self._watcher: Watcher | None = None
        self._reported: set[object] = set()

    def __enter__(self) -> CUDASanitizerDispatchMode:
        if self._watcher is not None:
            raise RuntimeError("this CUDASanitizerDispatchMode is entered already")
        self.errors = []
        self._reported = set()
        self._watcher = Watcher(self._report)
        self._watcher.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None

    def _report(self, found: Sequence[UnsynchronizedAccessError]) -> None:
        if self.mode == "raise":
            self.errors += found
            for error in found:
                print(error, file=sys.stderr)
            raise CUDASanitizerErrors(list(found))
        for error in found:
            lines = _lines(error.current_access), _lines(error.previous_access)
            if lines in self._reported:
                continue
            self._reported.add(lines)
            self.errors.append(error)
            if self.mode == "warn":
                _warn(error)


def _lines(access: Access) -> tuple[tuple[str, int | None], ...]:
    """Where the program asked for an access."""
    return tuple((frame.filename, frame.lineno) for frame in access.stack_trace)


def _warn(error: UnsynchronizedAccessError) -> None:
    """Warn at the program's line; a filter that makes an error of it raises after the operation."""
    stack = error.current_access.stack_trace
    filename, line = (stack[-1].filename, stack[-1].lineno or 1) if stack else ("<unknown>", 1)
    try:
        warnings.warn_explicit(str(error), CUDASanitizerWarning, filename, line)
    except CUDASanitizerWarning:
        raise CUDASanitizerErrors([error]) from None


class CUDASanitizer:
    """The process's sanitizer; `cuda_sanitizer` is the one there is.

    Attributes
    ----------
    enabled : bool
        Whether it is on.
    """

    def __init__(self) -> None:
        self.dispatch = CUDASanitizerDispatchMode()
        self.enabled = False

    @property
    def errors(self) -> list[SynchronizationError]:
        """All that was found since it was switched on last."""
        return self.dispatch.errors

    def enable(self, mode: Mode = "raise") -> None:
        """Switch it on, or change the mode; see `CUDASanitizerDispatchMode`."""
        if self.enabled:
            if mode != self.dispatch.mode:
                self.disable()
                self.enable(mode)
            return
        self.dispatch = CUDASanitizerDispatchMode(mode)
        self.dispatch.__enter__()
        self.enabled = True

    def disable(self) -> None:
        """Switch it off; `errors` stays."""
        self.dispatch.__exit__(None, None, None)
        self.enabled = False


def enable_cuda_sanitizer(mode: Mode = "raise") -> None:
    """Watch every later operation of the process for missing synchronisation.

    Parameters
    ----------
    mode
        What happens when something is found; see `CUDASanitizerDispatchMode`.

    Examples
    --------
    >>> from flambeau.cuda import _sanitizer
    >>> _sanitizer.enable_cuda_sanitizer()
    >>> _sanitizer.cuda_sanitizer.enabled
    True
    >>> _sanitizer.cuda_sanitizer.disable()
    """
    cuda_sanitizer.enable(mode)


def declare_access(
    name: str,
    read: Sequence[Tensor] = (),
    written: Sequence[Tensor] = (),
    stream: Stream | None = None,
) -> None:
    """Tell the sanitizer what a kernel of the program's own reads and writes, after its launch.

    Parameters
    ----------
    name
        What reports call the kernel.
    read, written
        CUDA tensors; those in both are read and written.
    stream
        Where it was launched; None is the current stream of the tensors' device.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import _sanitizer
    >>> x, y = torch.ones(4, device="cuda"), torch.empty(4, device="cuda")
    >>> _sanitizer.declare_access("my_kernel", read=[x], written=[y])
    """
    tensors = [tensor for tensor in (*read, *written) if tensor.is_cuda]
    if not tensors:
        raise ValueError(f"the access of {name!r} names no CUDA tensor")
    queue = current_stream(tensors[0].device) if stream is None else stream
    observers.notify("operation", name, tuple(read), tuple(written), queue.cuda_stream)


def enable_from_environment() -> None:
    """Do what ``TORCH_CUDA_SANITIZER`` asks for, which is set."""
    value = os.environ[VARIABLE]
    modes: dict[str, Mode] = {"warn": "warn", "collect": "collect"}
    enable_cuda_sanitizer(modes.get(value, "raise"))
    if value == "collect":
        atexit.register(_show_collected)


def _show_collected() -> None:
    for error in cuda_sanitizer.errors:
        print(error, file=sys.stderr)


for _public in (Access, AccessType, CUDASanitizerErrors, UnsynchronizedAccessError):
    _public.__module__ = __name__
SynchronizationError.__module__ = __name__

cuda_sanitizer = CUDASanitizer()
"""The process's sanitizer."""
