# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Self

from flambeau.driver.errors import AcceleratorError
from flambeau.runtime._generator import Generator

class CapturedGraph:
    """A graph's handles, memory and generators; `flambeau.cuda.CUDAGraph` adds hooks and export."""

    def __new__(cls, keep_graph: bool = False) -> Self: ...
    def __del__(self) -> None: ...
    def capture_begin(
        self,
        pool: object = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None: ...
    def is_broken(self) -> bool:
        """Whether the capture under way was invalidated."""

    def first_error(self) -> AcceleratorError | None:
        """The error that broke the capture under way, or None."""

    def capture_end_pre(self) -> None: ...
    def capture_end_post(self) -> None: ...
    def replay(self) -> None:
        """Launch it on the current stream of its device (``cuGraphLaunch``); returns at once.

        A graph never overlaps itself. The current seeds of the generators that it draws from count.

        Raises
        ------
        RuntimeError
            Nothing was captured, or an input that was to be watched is gone.
        """

    def pool(self) -> tuple[int, int]: ...
    def pools(self) -> list[tuple[int, int]]: ...
    def raw_cuda_graph(self) -> int: ...
    def raw_cuda_graph_exec(self) -> int: ...
    def _instantiate(self) -> None:
        """Make an executable graph in place of the one there is."""

    def _launch(self) -> None:
        """Launch it on the current stream of its device."""

    def _replay_with_hooks(self) -> None:
        """What a replay is when something goes with it; subclasses say what."""

    def _follow_replays(self, on: bool) -> None:
        """Whether every replay has to go through `_replay_with_hooks`."""

    def _release(self, later: bool = False) -> None:
        """Give everything back; `later`: destroy no handle now. A capture under way is given up."""

    def _warn_at_end(self, on: bool) -> None:
        """Whether the end of the capture warns of what is odd about it."""

    def _keep(self) -> None:
        """Keep the template from now on."""

    def _keeps_graph(self) -> bool:
        """Whether the template is kept."""

    @property
    def _has_graph_exec(self) -> bool: ...
    @property
    def _is_capturing(self) -> bool: ...
    @property
    def _has_graph(self) -> bool: ...
    @property
    def _device(self) -> int: ...

def any_capturing() -> bool:
    """Whether any graph is being captured in this process."""

def currently_capturing() -> CapturedGraph | None:
    """The graph whose capture the calling thread's current stream belongs to, or None."""

def keep(tensor: object) -> None:
    """Captured work copies pinned memory: the graph holds it as long as it may be replayed."""

def note_pool(device: int, pool_id: tuple[int, int]) -> None:
    """A thread takes memory from a pool: the capture that it is in, if any, becomes a user of it."""

def join_generator(generator: Generator) -> None:
    """Have a generator that a capture draws from read its seed and offset from device memory."""

def set_replay_hooks(on: bool) -> None:
    """Whether somebody wants to hear of the replays of all graphs."""

def destroy_all() -> None:
    """Destroy what finalizers left, unless a capture is under way: its end does it then."""

def set_body_closer(close_bodies: Callable[[CapturedGraph], None]) -> None:
    """`_graph_conditional` says what ends the bodies that are open."""

class ConditionalBody:
    """A conditional node's body, while it is captured."""

def forget() -> None:
    """Every handle is void."""

def launch_seconds(graph: CapturedGraph, count: int) -> float:
    """Seconds that one bare ``cuGraphLaunch`` takes, of `count` in a row; for benchmarks."""
