# SPDX-License-Identifier: Apache-2.0
"""Launching single kernels as graphs of one node, which costs the host less."""

from __future__ import annotations

from flambeau.runtime import _launch

__all__ = ["is_graph_launch_enabled", "set_graph_launch"]


def set_graph_launch(enabled: bool) -> None:
    """Say whether kernels are launched as graphs of one node, in the whole process.

    For each stream and kernel an executable graph is made at its first launch (some 25 us and a
    tenth of a MiB of device memory) and kept; each launch gives its node new parameters
    (``cuGraphExecKernelNodeSetParams``) and launches it (``cuGraphLaunch``). On an H200 that takes
    the host about half of a plain launch. Programs that launch few kernels many times gain;
    kernels on hundreds of streams do not. Order and results are the same.

    Launches that a `CUDAGraph` captures are plain ones, and so are all others while it captures.
    Captures that another library makes on one of this library's streams are not seen: leave this
    off for them. The environment variable ``FLAMBEAU_GRAPH_LAUNCH=1`` enables it from the start.

    Parameters
    ----------
    enabled
        False, the default of a process, also gives the kept graphs back.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.set_graph_launch(True)
    >>> (torch.ones(3, device="cuda") + 1).tolist()
    [2.0, 2.0, 2.0]
    >>> torch.cuda.set_graph_launch(False)
    """
    _launch.set_graph_launch(enabled)


def is_graph_launch_enabled() -> bool:
    """Whether kernels are launched as graphs of one node.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.is_graph_launch_enabled()
    False
    """
    return _launch.graph_launch()
