# SPDX-License-Identifier: Apache-2.0
class Kernel:
    """A kernel and the types of its parameters, to be called from Python.

    Parameters
    ----------
    function
        The ``CUfunction`` handle.
    signature
        A letter per parameter: ``P`` pointer (an address or an object with ``data_ptr()``), ``R``
        pointer to what the kernel only reads, ``i`` int32, ``I`` uint32, ``q`` int64, ``Q``
        uint64, ``f`` float, ``d`` double, ``B`` a struct as a bytes object.
    overlapping
        The kernel begins with ``griddepcontrol.wait``, so that its start may overlap the end of
        the work before it.
    name
        What observers are told, with the tensors among the pointers: those of ``R`` are read,
        those of ``P`` written.
    """

    def __init__(
        self, function: int, signature: str, *, overlapping: bool = False, name: str = "kernel"
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> int: ...
    @property
    def signature(self) -> str: ...
    @property
    def overlapping(self) -> bool: ...
    def __call__(
        self,
        device: int,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared_bytes: int,
        *arguments: object,
    ) -> None:
        """Launch on this thread's current stream of a device (``cuLaunchKernel``).

        A grid with an extent of 0 launches nothing.

        Raises
        ------
        TypeError
            The arguments are not as many, or not of the types, that the signature says.
        AcceleratorError
            The driver refused, or work that ran earlier failed.
        """

def set_blocking(on: bool) -> None:
    """Whether each launch waits for its end, as ``CUDA_LAUNCH_BLOCKING=1`` asks for."""

def set_graph_launch(on: bool) -> None:
    """Whether kernels are launched as graphs of one node; off gives the kept graphs back."""

def graph_launch() -> bool:
    """Whether kernels are launched as graphs of one node."""

def graph_launches_kept() -> int:
    """How many executable graphs are kept: one per stream and kernel."""

def set_observed(on: bool) -> None:
    """Tell `observers` of launches; `observers` calls it."""

def forget() -> None:
    """Every handle is void."""
