# SPDX-License-Identifier: Apache-2.0
"""What the children of the tests do: functions that they can import."""

from __future__ import annotations

import os
from typing import Any

import flambeau as torch
from flambeau.runtime import _sharing


def add_and_report(inbox: Any, outbox: Any, rounds: int) -> None:
    """Add 1 to each tensor that comes, in place, and say what it was; drop it before the next."""
    for _ in range(rounds):
        x = inbox.get()
        before = x.tolist()
        own = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
        x.add_(1)
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        outbox.put((before, str(x.device), own))
        inbox.get()
        del x
        outbox.put("dropped")
    inbox.get()


def refuse_to_send_again(inbox: Any, outbox: Any) -> None:
    x = inbox.get()
    try:
        x.untyped_storage()._share_cuda_()
    except RuntimeError as error:
        outbox.put(str(error))
    try:
        x.untyped_storage().resize_(10)
    except (RuntimeError, AttributeError) as error:
        outbox.put(type(error).__name__)
    outbox.put(x.untyped_storage().resizable())
    outbox.put(x.clone().sum().item())
    inbox.get()


def two_views(inbox: Any, outbox: Any) -> None:
    a, b = inbox.get()
    a.fill_(5)
    torch.cuda.synchronize()
    outbox.put((b.tolist(), a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()))
    inbox.get()


def echo(inbox: Any, outbox: Any) -> None:
    """Send a host tensor back; it is the same memory."""
    x = inbox.get()
    x += 1
    outbox.put(x)
    inbox.get()


def wait_for_event(inbox: Any, outbox: Any) -> None:
    event, x = inbox.get()
    event.wait()
    outbox.put(x.sum().item())
    inbox.get()


def produce(outbox: Any, inbox: Any, conf: str) -> None:
    """Send a tensor, drop it here, and say what is allocated after each step."""
    torch._C._accelerator_setAllocatorSettings(conf)
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    outbox.put(x)
    del x
    torch.cuda.ipc_collect()
    outbox.put((torch.cuda.memory_allocated(), len(_sharing.in_limbo())))
    inbox.get()
    torch.cuda.ipc_collect()
    outbox.put((torch.cuda.memory_allocated(), len(_sharing.in_limbo())))
    inbox.get()


def fail(index: int, which: int) -> None:
    if index == which:
        raise ValueError(f"number {index} is not liked")


def leave(index: int, status: int) -> None:
    os._exit(status)


def note(index: int, queue: Any) -> None:
    queue.put(index)
