# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.virtual.ptx.compiler import compile_ptx
from driver.virtual.ptx.harness import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def cuda() -> Callable[..., Module]:
    """Compile CUDA C++ and load it; kernels are ``extern "C"``."""
    loaded: dict[tuple[str, ...], Module] = {}

    def compile_and_load(source: str, *options: str) -> Module:
        key = (source, *options)
        if key not in loaded:
            loaded[key] = Module(compile_ptx(source, *options))
        return loaded[key]

    return compile_and_load


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code goes to a folder of the test run."""
    patch = pytest.MonkeyPatch()
    patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
