# SPDX-License-Identifier: Apache-2.0
"""Forms of instructions that work on memory or on several threads: what a form is, how it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS, WORDS = 64, 32
SHARED_BYTES = 8192
TARGET = ".version 8.7\n.target sm_90\n.address_size 64\n"
OPEN = -1  # a result that is left open

Reference = "Callable[[np.ndarray], np.ndarray]"

BYTES = np.random.default_rng(3).integers(0, 256, (THREADS, 32), np.uint8)
PARAMETER = BYTES[7].tobytes()


@dataclass(frozen=True)
class BlockForm:
    """An instruction among others that show what it does in a block of two warps.

    Parameters
    ----------
    text
        As the list has it.
    code
        Reads words of the thread's input from ``%a0`` on, leaves words in ``%d0`` and on. There
        are ``%t`` (thread), ``%l`` (lane), ``%in``, ``%own`` (128 bytes of input and of memory),
        ``box`` (shared memory) with a place of the thread at ``%at``, of the thread whose number is
        xor 33 at ``%across`` and xor 32 at ``%beyond``, ``own`` (local), ``table`` (constant) and
        ``p_bytes`` (parameter).
    outputs
        How many words it leaves.
    reference
        From the words of all threads, an array of (64, 32), the words that they must leave;
        ``OPEN`` where PTX does not say. A float array is compared as the `result` type says.
    family
        Forms of one family are in one kernel and get the same input.
    result
        ``"f32"`` or ``"f16x2"`` where `reference` gives numbers, from exact products; then
        `scale` gives the sum of all magnitudes, to which errors are relative.
    hardware
        Whether sm_90 has it.
    """

    text: str
    code: str
    outputs: int
    reference: Callable[[np.ndarray], np.ndarray]
    family: str
    result: str = "b32"
    scale: Callable[[np.ndarray], np.ndarray] | None = None
    hardware: bool = True


def block(form: BlockForm, most: int) -> str:
    """The text that runs a form and stores what it leaves, four words at a time."""
    quads = sorted({int(n) // 4 for n in re.findall(r"%a(\d+)\b", form.code)})
    size = -(-form.outputs // 4) * 4
    lines = [f".reg .b32 %a<{WORDS}>, %d<{size}>; .reg .pred %p, %q; .reg .b64 %x, %y, %z;"]
    lines += [f"ld.global.v4.b32 {{{four('a', n)}}}, [%in+{16 * n}];" for n in quads]
    lines += [f"mov.b32 %d{n}, 0;" for n in range(size)]
    lines += [form.code]
    lines += [f"st.global.v4.b32 [%out+{16 * n}], {{{four('d', n)}}};" for n in range(size // 4)]
    body = "\n  ".join(lines)
    return f"{{\n  {body}\n}}\nadd.s64 %out, %out, {4 * THREADS * most};\n"


def four(letter: str, group: int) -> str:
    """Names of four neighbouring registers."""
    return ", ".join(f"%{letter}{4 * group + n}" for n in range(4))


def most_outputs(forms: list[BlockForm]) -> int:
    """The words for each thread and form, a multiple of four."""
    return -(-max(form.outputs for form in forms) // 4) * 4


FUNCTIONS = """
.func (.param .align 32 .b8 r[32]) echo(.param .align 32 .b8 x[32])
{
  .reg .b32 %v<8>;
  ld.param.v4.b32 {%v0, %v1, %v2, %v3}, [x];
  ld.param.v4.b32 {%v4, %v5, %v6, %v7}, [x+16];
  st.param.v4.b32 [r], {%v0, %v1, %v2, %v3};
  st.param.v4.b32 [r+16], {%v4, %v5, %v6, %v7};
  ret;
}
.func (.param .b32 r) twice(.param .b32 x)
{
  .reg .b32 %v; .reg .pred %p;
  ld.param.b32 %v, [x];
  add.u32 %v, %v, %v;
  st.param.b32 [r], %v;
  setp.gt.s32 %p, %v, 100;
  @%p ret;
  add.u32 %v, %v, 1;
  st.param.b32 [r], %v;
  ret.uni;
}
"""


def kernel(forms: list[BlockForm]) -> str:
    """A module whose kernel runs forms one after the other in a block."""
    most = most_outputs(forms)
    body = "".join(block(form, most) for form in forms)
    needs_functions = any("call" in form.code for form in forms)
    constants = ", ".join(map(str, BYTES.reshape(-1).tolist()))
    has_table = any(re.search(r"\btable\b", form.code) for form in forms)
    table = f".const .align 32 .b8 table[{BYTES.size}] = {{{constants}}};\n" * has_table
    return f"""{TARGET}{table}{FUNCTIONS * needs_functions}
.visible .entry forms(.param .u64 p_in, .param .u64 p_out, .param .u64 p_own,
  .param .align 32 .b8 p_bytes[32])
{{
.reg .b32 %t, %l, %at, %across, %beyond; .reg .b64 %in, %out, %own;
.shared .align 128 .b8 box[{SHARED_BYTES}];
.local .align 32 .b8 own[32];
ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u64 %own, [p_own];
mov.u32 %t, %tid.x; and.b32 %l, %t, 31; mov.u32 %across, box;
xor.b32 %at, %t, 32; mad.lo.u32 %beyond, %at, 32, %across;
mad.lo.u32 %at, %t, 32, %across; xor.b32 %across, %t, 33; sub.u32 %across, %across, %t;
mad.lo.u32 %across, %across, 32, %at;
mad.wide.u32 %in, %t, {4 * WORDS}, %in; mad.wide.u32 %own, %t, 128, %own;
mad.wide.u32 %out, %t, {4 * most}, %out;
{body}
ret;
}}
"""


def disagreement(form: BlockForm, words: np.ndarray, got: np.ndarray) -> str:
    """What is wrong with the words that a form has left; nothing if they are right."""
    wanted = form.reference(words)
    if form.result == "b32":
        bad = (wanted != OPEN) & (wanted != got.astype(np.int64))
    else:
        assert form.scale is not None
        kind, bits = {"f32": (np.float32, 22), "f16x2": (np.float16, 10)}[form.result]
        got = np.ascontiguousarray(got).view(kind).astype(np.float64)
        bad = ~(np.abs(got - wanted) <= 2.0**-bits * form.scale(words))
    if not bad.any():
        return ""
    thread, place = np.argwhere(bad)[0].tolist()
    first, second = got[thread, place], wanted[thread, place]
    shown = f"{first:#x} instead of {second:#x}" if form.result == "b32" else f"{first}, {second}"
    return f"{form.text}: thread {thread} left {shown} in place {place}; {bad.sum()} are wrong"


def words_of(array: np.ndarray) -> np.ndarray:
    """Bytes of each thread as words."""
    return np.ascontiguousarray(array).view(np.uint32)


def bytes_of(words: np.ndarray, count: int = 32) -> np.ndarray:
    """The first bytes of each thread's words."""
    return np.ascontiguousarray(words).view(np.uint8).reshape(THREADS, -1)[:, :count]


def columns(*values: np.ndarray | int) -> np.ndarray:
    """Words of all threads, side by side."""
    arrays = [np.broadcast_to(np.asarray(v, np.int64), THREADS) for v in values]
    return np.stack(arrays, 1)
