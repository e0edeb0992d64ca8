# SPDX-License-Identifier: Apache-2.0
"""Damaged PTX gives a clear error, soon, and nothing else."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.compiler import compile_ptx
from flambeau.driver.errors import AcceleratorError, UnsupportedPtxError
from flambeau.driver.virtual.ptx import _engine, jit
from flambeau.driver.virtual.ptx.lexer import MALFORMED
from flambeau.driver.virtual.ptx.loader import translate

SOURCES = (
    """
__device__ int table[4] = {1, 2, 3, 4};
__device__ __noinline__ float twice(float v) { return v + v; }
extern "C" __global__ void mixed(const float4* x, float* y, int n, long long by) {
  __shared__ float tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x & 63] = i < n ? x[i].y : 0.f;
  __syncthreads();
  float sum = __shfl_xor_sync(~0u, tile[i & 63], 1);
  for (int k = 0; k < n % 5; ++k) sum = twice(sum) / (k + 1.5f);
  if (sum > 3) atomicAdd(y, sum); else y[i] = table[i & 3] + by;
}""",
    """
#include <cuda_fp16.h>
extern "C" __global__ void halves(const __half2* x, __half2* y, double* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = __hfma2(x[i], x[i + 1], y[i]);
  int a = i;
  asm("{ .reg .pred p; setp.lt.s32 p, %0, 7; @p add.s32 %0, %0, 1; }" : "+r"(a));
  switch (a % 6) {
    case 0: z[i] = 1; break;
    case 1: z[i] = z[0] / a; break;
    case 2: z[i] = __popc(a); break;
    case 3: z[i] = exp(z[i]); break;
    default: z[i] = a;
  }
}""",
)
STRANGE = (
    "0", "-1", "99999999999999999999", "{", "}", "[", "]", "(", ",", ";", "@", "_", ".b128", ".f16",
    "%p1", "%r1", "%rd1", "%f1", "%tid.x", "0f7F800000", '"', "\\", "bra", "call", "\0", "0x",
)  # fmt: skip


@cache
def words(number: int) -> tuple[str, ...]:
    return tuple(re.findall(r"\s+|[\w.$%]+|.", compile_ptx(SOURCES[number])))


Edit = tuple[str, float, float, int]
edits = st.tuples(
    st.sampled_from(["drop", "copy", "cut", "end", "strange"]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, len(STRANGE) - 1),
)


def damaged(text: tuple[str, ...], changes: list[Edit]) -> str:
    parts = list(text)
    for kind, here, there, which in changes:
        at, other = (int(f * (len(parts) - 1)) for f in (here, there))
        if kind == "drop":
            del parts[at]
        elif kind == "copy":
            parts[at] = parts[other]
        elif kind == "cut":
            del parts[at : at + 1 + other % 12]
        elif kind == "end":
            del parts[max(at, 1) :]
        else:
            parts[at] = STRANGE[which]
        if len(parts) < 2:
            break
    return "".join(parts)


@settings(max_examples=120, deadline=5000)
@given(number=st.integers(0, len(SOURCES) - 1), changes=st.lists(edits, min_size=1, max_size=3))
def test_damaged_text_is_refused_or_compiled(number: int, changes: list[Edit]) -> None:
    text = damaged(words(number), changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "compile_ir", parsed_only)
        refused = refusal(text)
    if refused is not None:
        assert re.match(r"not supported: \S+ at line \d+|a PTX JIT compilation failed", refused)


def refusal(text: str) -> str | None:
    """Why a text cannot be loaded; None if it can."""
    try:
        translate(text, _engine.context_layout())
    except (UnsupportedPtxError, AcceleratorError) as error:
        return str(error)
    return None


def parsed_only(text: str) -> bytes:
    """LLVM reads and verifies the code; turning it into machine code would take long."""
    try:
        jit.binding().parse_assembly(text)
    except RuntimeError as error:
        raise AcceleratorError(f"a PTX JIT compilation failed: {error}", 218) from error
    return b""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (".reg .b32 %r<99999999999>;", 6),
        (".shared .align 24 .b8 x[8];", 6),
        (".reg .b32 %r<2>;\nadd.s32 %r1, %r0;", 7),
        (".reg .b32 %r<2>;\nadd.s32 5, %r0, %r1;", 7),
        (".reg .b32 %r<2>;\nmov.b32 %r0, {%r1, %r1, %r1};", 7),
        ("bra nowhere;", None),
        ("bra;", None),
    ],
)
def test_the_line_is_named(body: str, line: int | None) -> None:
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.entry k()\n{{\n{body}\nret;\n}}"
    with pytest.raises(AcceleratorError, match="a PTX JIT compilation failed") as caught:
        translate(text, _engine.context_layout())
    assert caught.value.error_code == 218
    if line is not None:
        assert f"line {line}:" in str(caught.value)


def test_what_is_tripped_over_is_no_error_of_the_driver() -> None:
    assert not issubclass(AcceleratorError, MALFORMED)
    assert not issubclass(UnsupportedPtxError, MALFORMED)
