# SPDX-License-Identifier: Apache-2.0
"""Processes that share tensors: Python's `multiprocessing`, whose queues and pipes pass memory.

A CUDA tensor that is put into a queue is not copied: the receiver maps the same device memory. The
sender's memory stays allocated until the receiver has dropped its tensor. A tensor of host memory
is moved into shared memory when it is sent, and both processes see it from then on; views that were
made of it before stay behind. Everything of the standard module is here too.

Start processes with ``spawn`` or ``forkserver`` where CUDA is used: a forked child cannot use it.

Examples
--------
>>> import flambeau.multiprocessing as mp
>>> sorted(mp.get_all_sharing_strategies())
['file_descriptor', 'file_system']
>>> queue = mp.get_context("spawn").SimpleQueue()
"""

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403 - the whole public module
from typing import Any

from flambeau.multiprocessing import reductions
from flambeau.multiprocessing.reductions import init_reductions
from flambeau.multiprocessing.spawning import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)
from flambeau.runtime.shared_memory import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    set_sharing_strategy,
)

__all__ = [  # noqa: PLE0604 - names of the standard module are strings too
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "init_reductions",
    "reductions",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
    *_multiprocessing.__all__,
]

init_reductions()


def __getattr__(name: str) -> Any:
    return getattr(_multiprocessing, name)
