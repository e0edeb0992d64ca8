# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from driver.virtual.device_memory import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

if os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") == "real":
    collect_ignore_glob = ["*"]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Both devices' contexts, device 0's current, and nothing that runs by itself."""
    from flambeau import driver, virtual
    from flambeau.driver.virtual import _calls

    driver.current()
    _calls.init()
    virtual.set_progress(False)
    made = Bench()
    yield made
    made.close()
    virtual.set_progress(True)
