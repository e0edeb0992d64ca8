# SPDX-License-Identifier: Apache-2.0
def waits_for_default(stream: int, device: int) -> bool:
    """Whether a stream and the default stream wait for each other (``cuStreamGetFlags``)."""

def capture_of(stream: int, device: int) -> int | None:
    """The id of the capture that a stream's work goes into (``cuStreamGetCaptureInfo``), or None."""
