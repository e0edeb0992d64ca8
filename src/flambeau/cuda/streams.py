# SPDX-License-Identifier: Apache-2.0
"""Streams and events: queues of work on a device, and marks in them."""

from __future__ import annotations

from flambeau.runtime._event import Event
from flambeau.runtime._stream import (
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream current that is known by its numbers, and its device with it."""
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))
