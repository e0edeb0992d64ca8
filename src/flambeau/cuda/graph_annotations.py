# SPDX-License-Identifier: Apache-2.0
"""Names for the kernels of graphs, which show up in traces of their replays."""

from __future__ import annotations

import gzip
import json
import warnings
from typing import TYPE_CHECKING

from flambeau.cuda._graph_annotations import (
    get_kernel_annotations,
    is_available,
    mark_kernels,
    registry,
)

if TYPE_CHECKING:
    import os

__all__ = [
    "clear_kernel_annotations",
    "dump_kernel_py_stacks",
    "get_kernel_annotations",
    "get_kernel_py_stacks",
    "is_available",
    "mark_kernels",
]

_stacks: dict[int, list[str]] = {}


def clear_kernel_annotations() -> None:
    """Forget all annotations. Not needed: they go with their graphs.

    .. deprecated:: 0.1

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.cuda.graph_annotations.clear_kernel_annotations()
    >>> len(torch.cuda.graph_annotations.get_kernel_annotations())
    0
    """
    warnings.warn(
        "clear_kernel_annotations() is deprecated: annotations go when their graph does",
        FutureWarning,
        stacklevel=2,
    )
    registry.clear()


def get_kernel_py_stacks() -> dict[int, list[str]]:
    """Where in Python each node was captured: id -> ``file:line:func`` lines, innermost first.

    Recorded only by the cupti backend with ``record_py_stacks``; empty otherwise.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.graph_annotations.get_kernel_py_stacks()
    {}
    """
    return dict(_stacks)


def dump_kernel_py_stacks(path: str | os.PathLike[str]) -> None:
    """Write `get_kernel_py_stacks` as JSON, compressed with gzip.

    Parameters
    ----------
    path
        The file; replaced if it exists.

    Examples
    --------
    >>> import flambeau as torch
    >>> import gzip, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "stacks.json.gz")
    >>> torch.cuda.graph_annotations.dump_kernel_py_stacks(path)
    >>> with gzip.open(path, "rt") as file:
    ...     file.read()
    '{}'
    """
    with gzip.open(path, "wt", encoding="utf-8") as out:
        json.dump({str(key): lines for key, lines in _stacks.items()}, out)


for _function in (get_kernel_annotations, is_available, mark_kernels):
    _function.__module__ = __name__
