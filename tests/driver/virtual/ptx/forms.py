# SPDX-License-Identifier: Apache-2.0
"""Forms of instructions that work on one element: the list, and what a form is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driver.virtual.ptx.reference import signed

LIST = Path(__file__).parents[3] / "data" / "ptx_forms.txt"
WIDTHS = {
    "pred": 1,
    "b128": 128,
    "f16x2": 32,
    "bf16x2": 32,
    "bf16": 16,
    "tf32": 32,
    "u16x2": 32,
    "s16x2": 32,
}
MODES = ("rn", "rz", "rm", "rp")
INTEGRAL = ("rni", "rzi", "rmi", "rpi")
TYPES = frozenset(WIDTHS) | {f"{k}{n}" for k in "busf" for n in (8, 16, 32, 64)} - {"f8"}

Reference = Callable[..., int]


def expand(pattern: str) -> Iterator[str]:
    """All texts that a pattern with braces stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    choices = [p if n % 2 else [",".join(p)] for n, p in enumerate(parts)]
    yield from ("".join(words) for words in itertools.product(*choices))


def listed_forms() -> list[str]:
    lines = [line for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    return [form for line in lines for form in expand(line)]


def width(kind: str) -> int:
    return WIDTHS.get(kind) or int(kind[1:])


@dataclass(frozen=True)
class Form:
    """An instruction with the types of its sources and its result.

    ``ulps`` is how far an approximation may be from the reference, in units of the last place.
    """

    text: str
    result: str
    sources: tuple[str, ...]
    reference: Reference
    ulps: float = 0
    body: str = ""

    @property
    def code(self) -> str:
        names = ", ".join(f"%{name}" for name in "abce"[: len(self.sources)])
        return self.body or f"{self.text} %d, {names};"


@dataclass(frozen=True)
class Text:
    """What an instruction's text says."""

    text: str
    opcode: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Text:
        opcode, *words = text.split(".")
        return cls(text, opcode, tuple(words))

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(w for w in self.words if w in TYPES)

    @property
    def type(self) -> str:
        return self.types[-1]

    @property
    def mode(self) -> str:
        return next((w for w in self.words if w in MODES), "rn")

    def first(self, *names: str) -> str:
        return next((w for w in self.words if w in names), "")


def in_pairs(t: Text, form: Form) -> Form:
    """The form for two numbers in a register, from that for one."""
    if not t.type.endswith("x2"):
        return form

    def both(*words: int) -> int:
        low = form.reference(*(w & 0xFFFF for w in words)) & 0xFFFF
        return low | form.reference(*(w >> 16 for w in words)) << 16

    return Form(t.text, t.type, (t.type,) * len(form.sources), both, form.ulps)


def clamp(value: int, bits: int, is_signed: bool = True) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def typed(kind: str, value: int) -> int:
    return signed(value, width(kind)) if kind[0] == "s" else value
