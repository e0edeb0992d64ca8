# SPDX-License-Identifier: Apache-2.0
"""Recorded work, device-neutral: CUDA graphs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.accelerator._devices import require_accelerator
from flambeau.cuda import memory
from flambeau.cuda._device import synchronize
from flambeau.cuda.graphs import CUDAGraph

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

__all__ = ["Graph"]

_MODES = ("default", "global", "thread_local", "relaxed")


class Graph:
    """Work that is recorded once and launched many times.

    As a context manager it records what is given to the current stream, which must not be the
    default stream.

    Parameters
    ----------
    keep_graph
        Keep what was recorded, and make it executable only at `instantiate` or the first `replay`.
    pool
        Memory to record with: what `pool` of another graph gave. None: its own.
    capture_error_mode
        ``"default"`` and ``"global"``: calls of any thread that could disturb the recording fail.
        ``"thread_local"``: only this thread's. ``"relaxed"``: none.

    Attributes
    ----------
    graph_pool, capture_error_mode
        What the next recording uses.

    Raises
    ------
    RuntimeError
        There is no GPU, or no such mode.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(3, device="cuda")
    >>> graph = torch.accelerator.Graph()
    >>> with torch.cuda.stream(torch.cuda.Stream()), graph:
    ...     y = x * 2
    >>> x.fill_(4.0); graph.replay()
    tensor([4., 4., 4.], device='cuda:0')
    >>> y.tolist()
    [8.0, 8.0, 8.0]
    """

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "default",
    ) -> None:
        require_accelerator()
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected {', '.join(map(repr, _MODES))}, got "
                f"{capture_error_mode!r}"
            )
        self._graph = CUDAGraph(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode

    def capture_begin(self) -> None:
        """Begin to record the current stream."""
        mode: Any = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        self._graph.capture_begin(self.graph_pool, mode)

    def capture_end(self) -> None:
        """Stop recording."""
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Make it executable; with ``keep_graph``, as often as wanted."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Launch the recorded work on the current stream."""
        self._graph.replay()

    def reset(self) -> None:
        """Give up the recording and its memory."""
        self._graph.reset()

    def pool(self) -> tuple[int, int]:
        """What names its memory, for other graphs."""
        return self._graph.pool()

    def enable_debug_mode(self) -> None:
        """Keep what `debug_dump` needs."""
        self._graph.enable_debug_mode()

    def debug_dump(self, path: str | os.PathLike[str]) -> None:
        """Write the recorded graph to a file, in the language of Graphviz."""
        self._graph.debug_dump(path)

    def __enter__(self) -> Self:
        synchronize()
        memory.empty_cache()
        memory.empty_host_cache()
        self.capture_begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.capture_end()


Graph.__module__ = "flambeau.accelerator"
