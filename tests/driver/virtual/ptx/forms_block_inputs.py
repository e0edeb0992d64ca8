# SPDX-License-Identifier: Apache-2.0
"""The words that threads get as input, by family of forms."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from driver.virtual.ptx.forms_block import THREADS, WORDS
from driver.virtual.ptx.forms_matrix import HALF_C, NUMBERS, A, B, C

SHAPE = (THREADS, WORDS)


def inputs_for(family: str, seed: int) -> np.ndarray:
    """Words of all threads, an array of (64, 32)."""
    chance = np.random.default_rng(seed)
    name, _, kind = family.partition(" ")
    if name == "mma":
        return fragments(chance, kind)
    if name == "wmma":
        return tiles(chance, kind)
    if family.startswith("atom vector"):
        return small_numbers(chance, kind.split()[-1])
    words = chance.integers(0, 1 << 32, SHAPE, np.uint32)
    tile = np.arange(THREADS) >> 3
    in_tiles = chance.integers(0, 2, 8, np.uint32)[tile]
    words[:, 2] = words[:, 2] & 1 | in_tiles << 1 | 4  # what is voted about: see the forms
    words[:, 4] = chance.integers(0, 3, THREADS, np.uint32)  # what is matched
    words[:, 5] = in_tiles
    return words


def floats(chance: np.random.Generator, kind: str, size: tuple[int, ...]) -> np.ndarray:
    """Numbers of many magnitudes, as words."""
    values = chance.standard_normal(size) * 2.0 ** chance.integers(-6, 4, size)
    found = values.astype(NUMBERS[kind])
    if kind == "tf32":
        return found.view(np.uint32) & np.uint32(0xFFFFE000)
    return found.view(np.uint32)


def fragments(chance: np.random.Generator, kind: str) -> np.ndarray:
    words = chance.integers(0, 1 << 32, SHAPE, np.uint32)
    if kind in {"s8", "u8"}:
        words[: THREADS // 2, C : C + 4] |= 0x7FFF_0000  # sums that wrap or saturate
        words[: THREADS // 2, C : C + 4] &= 0xFFFF_FFFF if seed_bit(chance) else 0x7FFF_FFFF
        return words
    per = 4 // NUMBERS[kind].itemsize
    for first in (A, B):
        words[:, first : first + 4] = floats(chance, kind, (THREADS, 4 * per))
    words[:, C : C + 4] = floats(chance, "f32", (THREADS, 4))
    words[:, HALF_C : HALF_C + 2] = floats(chance, "f16", (THREADS, 4))
    return words


def seed_bit(chance: np.random.Generator) -> bool:
    return bool(chance.integers(0, 2))


def tiles(chance: np.random.Generator, kind: str) -> np.ndarray:
    """A and B from byte 0 and 1,024 of each warp's part, C from 2,048, in half from 3,072."""
    words = np.zeros((2, 1024), np.uint32)
    words[:, :512] = floats(chance, kind, (2, 1024))
    words[:, 512:768] = floats(chance, "f32", (2, 256))
    words[:, 768:] = floats(chance, "f16", (2, 512))
    return words.reshape(SHAPE)


def small_numbers(chance: np.random.Generator, kind: str) -> np.ndarray:
    dtype = {"f32": np.float32, "f16": np.float16}.get(kind, ml_dtypes.bfloat16)
    per = 4 // np.dtype(dtype).itemsize
    return chance.integers(-30, 30, (THREADS, WORDS * per)).astype(dtype).view(np.uint32)
