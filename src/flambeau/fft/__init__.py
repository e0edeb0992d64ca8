# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms: ``torch.fft`` on cuFFT, on virtual GPUs and on the host."""

from __future__ import annotations

from flambeau.fft._helpers import fftfreq, fftshift, ifftshift, rfftfreq
from flambeau.fft._transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

for _name in __all__:
    globals()[_name].__module__ = "flambeau.fft"
