# SPDX-License-Identifier: Apache-2.0
"""Where the tests run and what they share.

``FLAMBEAU_TEST_DEVICE=virtual`` (the default) gives two virtual H200s, ``real`` the machine's own
GPUs. The choice is made here, before anything imports flambeau.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

REAL = os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") == "real"
if not REAL:
    os.environ.setdefault("FLAMBEAU_VIRTUAL", "h200:2")

POLICIES = ("fifo", "random:1", "random:2", "adversarial")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") not in {"virtual", "real"}:
        raise pytest.UsageError("FLAMBEAU_TEST_DEVICE is 'virtual' or 'real'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow, gpu = config.getoption("--slow"), REAL
    for item in items:
        if item.get_closest_marker("slow") and not slow:
            item.add_marker(pytest.mark.skip(reason="slow; --slow runs it"))
        if item.get_closest_marker("gpu") and not gpu:
            item.add_marker(pytest.mark.skip(reason="needs FLAMBEAU_TEST_DEVICE=real"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "schedule" in metafunc.fixturenames:
        metafunc.parametrize("schedule", ["hardware"] if REAL else POLICIES, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def _fresh_machine() -> None:
    """Give each test module virtual GPUs that nobody has used, so that order does not matter."""
    virtual = sys.modules.get("flambeau.virtual")
    if virtual is not None and virtual.is_enabled():
        gc.collect()  # what is left of other modules goes while its handles are valid
        virtual.reset()


@pytest.fixture(autouse=True)
def _fresh_selection() -> Iterator[None]:
    """Give each test device 0 and the default streams, and finish what it started."""
    yield
    cuda = sys.modules.get("flambeau.cuda")
    if cuda is not None and cuda.is_initialized():
        _reset(cuda)


def _reset(cuda: ModuleType) -> None:
    for index in reversed(range(cuda.device_count())):
        cuda.set_stream(cuda.default_stream(index))  # makes its device current too
    cuda.synchronize()


@pytest.fixture
def gpu() -> Any:
    """The device that a test of one GPU uses."""
    import flambeau

    return flambeau.device("cuda", 0)


@pytest.fixture
def gpus() -> Callable[[int], list[Any]]:
    """The first `n` devices; skips where real hardware has fewer."""
    import flambeau
    from flambeau import cuda

    def choose(count: int) -> list[Any]:
        if REAL and cuda.device_count() < count:
            pytest.skip(f"needs {count} GPUs")
        return [flambeau.device("cuda", index) for index in range(count)]

    return choose


@pytest.fixture
def schedule(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once for each order in which virtual GPUs may do their work."""
    policy: str = request.param
    if policy == "hardware":
        yield policy
        return
    from flambeau import virtual

    with virtual.schedule(policy):
        yield policy


@pytest.fixture
def fault() -> Iterator[Callable[..., None]]:
    """Make calls of a driver entry fail: ``fault("cuMemAlloc", status=2, nth=1, times=1)``."""
    from flambeau.driver import _table

    yield _table.inject
    _table.clear_faults()
