# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

def launch_host_function(stream: int, function: Callable[[], object]) -> None:
    """Have the driver call a function when a stream's earlier work is done (``cuLaunchHostFunc``).

    Parameters
    ----------
    stream
        The stream's handle; 0 is the current device's default stream.
    function
        Called on a thread of the driver. It must not use CUDA. The next call of the runtime raises
        what it raises.
    """
