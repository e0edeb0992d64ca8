# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence

from flambeau.runtime._tensor import Tensor

def forget_kernels() -> None:
    """Drop every cached kernel; for a driver that has been replaced."""

class ReductionOp:
    """A reduction of some dimensions of a CUDA tensor.

    Parameters
    ----------
    name
        For messages and observers.
    compile
        ``compile(op, device, in_type, out_type, variant) -> CUfunction`` as an int; variants are
        ``"per_thread"``, ``"per_warp"``, ``"per_block"`` and ``"partials"``. Asked once each.
    positions
        Whether results depend on the order of the elements, as positions of extremes do.
    """

    name: str
    positions: bool
    def __init__(
        self,
        name: str,
        *,
        compile: Callable[[ReductionOp, int, int, int, str], int],
        positions: bool = False,
    ) -> None: ...
    def __call__(
        self,
        input: Tensor,
        dims: Sequence[int] | None,
        keepdim: bool,
        out_code: int,
        *,
        values: bool = True,
        indices: bool = False,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Reduce.

        Parameters
        ----------
        input
            Any layout.
        dims
            Dimensions to reduce, each in ``[0, ndim)``; None for all. Positions count row-major
            over them.
        keepdim
            Whether reduced dimensions stay with size 1.
        out_code
            Scalar type of the values.
        values, indices
            Which results are wanted; the other is None.
        """
    def short_answer(self) -> tuple[ReductionOp, object]:
        """For `recorded`: the sum of all elements of a CUDA tensor, of integers as int64."""
