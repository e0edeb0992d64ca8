# SPDX-License-Identifier: Apache-2.0
from flambeau.runtime._graph import CapturedGraph
from flambeau.runtime._tensor import Tensor

def begin_body(graph: CapturedGraph, repeats: bool, value: Tensor, call: str) -> None:
    """Add a conditional node after the current stream's work; the current stream becomes its body's.

    Parameters
    ----------
    graph
        The graph whose capture is under way.
    repeats
        The body runs while the condition holds, else once if it holds.
    value
        The condition: a bool tensor of one element on the graph's device, read at each replay.
    call
        What the user called, for errors.
    """

def set_condition(graph: CapturedGraph, value: Tensor) -> None:
    """Have captured work decide anew whether the innermost open body runs again."""

def end_body(graph: CapturedGraph) -> None:
    """End the innermost open body; the stream before it becomes current again."""

def abandon(graph: CapturedGraph) -> None:
    """End the bodies that were left open when the capture itself ends."""
