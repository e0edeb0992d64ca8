# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Self

from flambeau.runtime._tensor import Tensor

class WatchedInputs:
    """Memory that captured work uses and that was not made in the capture.

    It is held until the graph goes, so that it cannot become another tensor's unseen.

    Parameters
    ----------
    pool
        The id of the graph's pool; what lies there is not watched.
    """

    def __new__(cls, pool: tuple[int, int]) -> Self: ...
    def watch(self, operation: str, tensors: Iterable[Tensor]) -> None:
        """Captured work called `operation` uses these tensors."""

    def dead(self) -> list[str]:
        """What nobody else holds any more, or what moved: a description each."""

    def close(self) -> None:
        """Hold nothing any more."""
