# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def two_gpus(gpus: Callable[[int], list[Any]]) -> list[Any]:
    """Devices 0 and 1; skips where real hardware has fewer."""
    return gpus(2)
