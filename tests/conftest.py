# SPDX-License-Identifier: Apache-2.0
"""Where the tests run and what they share.

``FLAMBEAU_TEST_DEVICE=virtual`` (the default) gives two virtual H200s, ``real`` the machine's own
GPUs. The choice is made here, before anything asks for a GPU. The fixtures `gpu`, `gpus`,
`schedule` and `fault`, and the clean-up after each test, are those of `flambeau.testing.plugin`.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") == "real"
if not REAL:
    os.environ.setdefault("FLAMBEAU_VIRTUAL", "h200:2")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") not in {"virtual", "real"}:
        raise pytest.UsageError("FLAMBEAU_TEST_DEVICE is 'virtual' or 'real'")
    # How long an example takes is a matter of caches, of checks and of what else runs.
    hypothesis.settings.register_profile("flambeau", deadline=None)
    hypothesis.settings.load_profile("flambeau")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow, gpu = config.getoption("--slow"), REAL
    for item in items:
        if item.get_closest_marker("slow") and not slow:
            item.add_marker(pytest.mark.skip(reason="slow; --slow runs it"))
        if item.get_closest_marker("gpu") and not gpu:
            item.add_marker(pytest.mark.skip(reason="needs FLAMBEAU_TEST_DEVICE=real"))


@pytest.fixture(scope="module", autouse=True)
def _fresh_machine() -> None:
    """Give each test module virtual GPUs that nobody has used, so that order does not matter."""
    virtual = sys.modules.get("flambeau.virtual")
    if virtual is not None and virtual.is_enabled():
        gc.collect()  # what is left of other modules goes while its handles are valid
        virtual.reset()


@pytest.fixture
def two_gpus(gpus: Callable[[int], list[Any]]) -> list[Any]:
    """Devices 0 and 1; skips where real hardware has fewer."""
    return gpus(2)
