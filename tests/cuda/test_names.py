# SPDX-License-Identifier: Apache-2.0
"""The reference's public names, and which of them are here with the same parameters."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import flambeau

REFERENCE: dict[str, list[list[Any]] | None] = json.loads(
    (Path(__file__).parents[1] / "data" / "torch_cuda_names.json").read_text()
)

UNREADABLE = object()


def find(path: str) -> object:
    """The object of a dotted path; raises AttributeError. Modules are imported on the way."""
    found: object = flambeau
    for name in path.split(".")[1:]:
        if inspect.ismodule(found) and not hasattr(found, name):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{name}")
        found = (
            inspect.getattr_static(found, name) if isinstance(found, type) else getattr(found, name)
        )
    return found


def parameters(found: object) -> list[list[Any]] | object:
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    try:
        signature = inspect.signature(found)
    except ValueError:
        return UNREADABLE
    rows = [
        [
            p.name,
            p.kind.name.lower(),
            None if p.default is p.empty else repr(p.default),
        ]
        for p in signature.parameters.values()
    ]
    return rows[1:] if rows and rows[0][0] in {"self", "cls"} else rows


@pytest.mark.parametrize("path", sorted(REFERENCE))
def test_the_name_exists_and_takes_the_same_arguments(path: str) -> None:
    found = find(path)
    wanted = REFERENCE[path]
    if wanted is None:
        return
    got = parameters(found)
    assert got is not UNREADABLE, f"{path} has no signature that Python can read"
    assert got[: len(wanted)] == wanted
    assert all(default is not None for _, _, default in got[len(wanted) :])


def test_everything_that_the_module_lists_is_there() -> None:
    assert [name for name in flambeau.cuda.__all__ if not hasattr(flambeau.cuda, name)] == []
    assert len(set(flambeau.cuda.__all__)) == len(flambeau.cuda.__all__)


def test_public_names_say_that_they_are_flambeau_cuda_s() -> None:
    for name in flambeau.cuda.__all__:
        found = getattr(flambeau.cuda, name)
        module = getattr(found, "__module__", None)
        assert not (module or "").startswith("flambeau.cuda._"), (name, module)
        assert not (module or "").startswith("flambeau.runtime"), (name, module)


def test_what_is_there_is_said_truly(gpu: Any) -> None:
    cuda = flambeau.cuda
    assert cuda.has_half is True
    x = flambeau.full((4,), 0.1, dtype=flambeau.float16, device=gpu)
    assert (x + x).dtype is flambeau.float16
    assert cuda.has_magma is False
    with pytest.raises(RuntimeError, match="MAGMA"):
        flambeau.backends.cuda.preferred_linalg_library("magma")
