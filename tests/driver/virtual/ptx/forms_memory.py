# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, copies, atomics on vectors, addresses, hints and calls: what they must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from driver.virtual.ptx.forms import Text, width
from driver.virtual.ptx.forms_block import (
    BYTES,
    PARAMETER,
    THREADS,
    BlockForm,
    bytes_of,
    columns,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SPACES = ("global", "shared", "local", "const", "param")
PUT = """st.{0}.v4.b32 [{1}], {{%a0, %a1, %a2, %a3}};
  st.{0}.v4.b32 [{1}+16], {{%a4, %a5, %a6, %a7}};"""
GET = """ld.{0}.v4.b32 {{%d{2}, %d{3}, %d{4}, %d{5}}}, [{1}];
  ld.{0}.v4.b32 {{%d{6}, %d{7}, %d{8}, %d{9}}}, [{1}+16];"""
ZERO = """st.{0}.v4.b32 [{1}], {{0, 0, 0, 0}}; st.{0}.v4.b32 [{1}+16], {{0, 0, 0, 0}};"""
GENERIC = {
    "global": "mov.b64 %x, %own;",
    "shared": "cvt.u64.u32 %x, %at; cvta.shared.u64 %x, %x;",
    "local": "mov.u64 %x, own; cvta.local.u64 %x, %x;",
}
PLACES = {"global": "%own", "shared": "%at", "local": "own"}


def space_of(t: Text) -> str:
    """The space that a form names, or nothing."""
    found = t.first(*SPACES, "shared::cta", "param::entry", "param::func")
    return found.split("::")[0]


def element_registers(kind: str, count: int) -> tuple[str, list[str]]:
    """Declarations of registers for elements, and their names."""
    own = kind if kind in {"f32", "f64", "b128"} else "b64"
    return f".reg .{own} %e<{count}>;", [f"%e{n}" for n in range(count)]


def braces(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def show(kind: str, count: int, first: int) -> str:
    """Put elements into words, two for each."""
    lines = []
    for n in range(count):
        low, high = first + 2 * n, first + 2 * n + 1
        if kind == "f32":
            lines.append(f"mov.b32 %d{low}, %e{n};")
        elif kind == "b128":
            lines.append(f"mov.b128 {{%x, %y}}, %e{n}; mov.b64 {{%d{low}, %d{high}}}, %x;")
            lines.append(f"mov.b64 {{%d{low + 2}, %d{high + 2}}}, %y;")
        else:
            lines.append(f"mov.b64 {{%d{low}, %d{high}}}, %e{n};")
    return " ".join(lines)


def take(kind: str, count: int) -> str:
    """Put words into elements, two for each."""
    lines = []
    for n in range(count):
        if kind == "f32":
            lines.append(f"mov.b32 %e{n}, %a{2 * n};")
        elif kind == "b128":
            lines.append("mov.b64 %x, {%a0, %a1}; mov.b64 %y, {%a2, %a3};")
            lines.append("mov.b128 %e0, {%x, %y};")
        else:
            lines.append(f"mov.b64 %e{n}, {{%a{2 * n}, %a{2 * n + 1}}};")
    return " ".join(lines)


def vector_length(t: Text) -> int:
    return int((t.first("v2", "v4", "v8") or "v1")[1:])


def extended(kind: str, data: np.ndarray, count: int) -> np.ndarray:
    """Elements as 64-bit registers hold them, in words."""
    if kind == "b128":
        return words_of(data[:, :16]).astype(np.int64)
    size = width(kind) // 8
    raw = np.ascontiguousarray(data[:, : size * count])
    if kind[0] == "s":
        return words_of(raw.view(f"i{size}").astype(np.int64)).astype(np.int64)
    return words_of(raw.view(f"u{size}").astype(np.uint64)).astype(np.int64)


def load_form(t: Text) -> BlockForm:
    kind, count = t.type, vector_length(t)
    words = 4 if kind == "b128" else 2 * count
    declared, names = element_registers(kind, count)
    space = space_of(t)
    policy = "createpolicy.fractional.L2::evict_first.b64 %z, 0.5;" * ("hint" in t.text)
    more = ", %z" if policy else ""
    lines = [declared, policy]
    places = {
        "shared": PUT.format("shared", "%at"),
        "local": PUT.format("local", "own"),
    }
    if "param::func" in t.words:
        lines.append(".param .align 32 .b8 given[32], back[32];")
        lines += [f"st.param.b32 [given+{4 * n}], %a{n};" for n in range(8)]
        lines.append(f"call (back), echo, (given); {t.text} {braces(names)}, [back];")
        lines.append(show(kind, count, 0))
    elif space == "param":
        lines.append(f"{t.text} {braces(names)}, [p_bytes]; {show(kind, count, 0)}")
    elif space == "const":
        lines.append("mov.u64 %x, table; mad.wide.u32 %x, %t, 32, %x;")
        lines.append(f"{t.text} {braces(names)}, [%x]; {show(kind, count, 0)}")
    elif space:
        lines.append(places.get(space, ""))
        at = {"shared": "%at", "local": "own"}.get(space, "%in")
        lines.append(f"{t.text} {braces(names)}, [{at}]{more}; {show(kind, count, 0)}")
    else:
        for n, where in enumerate(GENERIC):
            if where == "local" and "volatile" not in t.words and strong(t):
                continue
            lines.append(places.get(where, "") + GENERIC[where])
            lines.append("mov.b64 %x, %in;" if where == "global" else "")
            lines.append(f"{t.text} {braces(names)}, [%x]{more}; {show(kind, count, n * words)}")
    fixed = {"param": np.tile(np.frombuffer(PARAMETER, np.uint8), (THREADS, 1)), "const": BYTES}
    times = 1 if space else 2 if "volatile" not in t.words and strong(t) else 3

    def reference(given: np.ndarray) -> np.ndarray:
        data = bytes_of(given) if "param::func" in t.words else fixed.get(space, bytes_of(given))
        found = extended(kind, data, count)
        return np.tile(found, (1, times))

    return BlockForm(
        t.text,
        "\n  ".join(filter(None, lines)),
        words * times,
        reference,
        f"ld {space or 'generic'}",
        hardware=width(kind) * count <= 128 if kind != "b128" else True,
    )


def strong(t: Text) -> bool:
    """Whether it orders other accesses; then nobody else may see the memory as local."""
    return not {"relaxed", "acquire", "release", "mmio", "volatile"}.isdisjoint(t.words)


def store_form(t: Text) -> BlockForm:
    kind, count = t.type, vector_length(t)
    size = 16 if kind == "b128" else width(kind) // 8
    declared, names = element_registers(kind, count)
    space = space_of(t)
    policy = "createpolicy.fractional.L2::evict_first.b64 %z, 0.5;" * ("hint" in t.text)
    more = ", %z" if policy else ""
    lines = [declared, policy, take(kind, count)]
    if space == "param":
        lines.append(".param .align 32 .b8 given[32], back[32];")
        for n in range(0, 32, 4):
            lines.append(f"st.param.b32 [given+{n}], 0;")
        lines.append(f"{t.text} [given], {braces(names)};")
        lines.append("call (back), echo, (given);")
        lines += [f"ld.param.b32 %d{n}, [back+{4 * n}];" for n in range(8)]
        spaces: list[str] = ["param"]
    else:
        spaces = [space] if space else ["global", "shared", "local"]
        if not space and strong(t) and "volatile" not in t.words:
            spaces.remove("local")
        for n, where in enumerate(spaces):
            place = PLACES[where]
            lines.append(ZERO.format(where, place))
            at = place
            if not space:
                lines.append(GENERIC[where])
                at = "%x"
            lines.append(f"{t.text} [{at}], {braces(names)}{more};")
            lines.append(GET.format(where, place, *range(8 * n, 8 * n + 8)))

    def reference(given: np.ndarray) -> np.ndarray:
        out = np.zeros((THREADS, 32), np.uint8)
        step = 4 if kind == "f32" else 8
        for n in range(count):
            for k in range(size):
                out[:, n * size + k] = bytes_of(given, 64)[:, n * max(step, 8) + k]
        return np.tile(words_of(out).astype(np.int64), (1, len(spaces)))

    return BlockForm(
        t.text,
        "\n  ".join(filter(None, lines)),
        8 * len(spaces),
        reference,
        f"st {space or 'generic'}",
        # the assembler keeps a parameter of one byte in a wider register
        hardware=8 * size * count <= 128 and (space != "param" or size * count > 1),
    )


def address_form(t: Text) -> BlockForm:
    """``cvta``: what was written through one address is read through the other."""
    space, back = space_of(t), "to" in t.words
    start = {
        "global": "mov.b64 %x, %own;",
        "shared": "cvt.u64.u32 %x, %at;",
        "local": "mov.u64 %x, own;",
        "const": "mov.u64 %x, table; mad.wide.u32 %x, %t, 32, %x;",
        "param": "mov.u64 %x, p_bytes;",
    }[space]
    first = t.text.replace(".to", "")
    steps = [start, f"{first} %y, %x;"]
    writes = space in PLACES
    if back:
        steps.append("st.b32 [%y], %a0;" * writes)
        steps.append(f"{t.text} %z, %y; ld.{space}.b32 %d0, [%z];")
    else:
        steps.append(f"st.{space}.b32 [%x], %a0;" * writes)
        steps.append("ld.b32 %d0, [%y];")

    def reference(given: np.ndarray) -> np.ndarray:
        if space == "const":
            return columns(words_of(BYTES)[:, 0])
        if space == "param":
            return columns(int.from_bytes(PARAMETER[:4], "little"))
        return columns(given[:, 0])

    return BlockForm(t.text, "\n  ".join(steps), 1, reference, "addresses")


def space_test_form(t: Text) -> BlockForm:
    """``isspacep`` of addresses in global, shared and local memory."""
    lines = [
        f"{GENERIC[where]} {t.text} %p, %x; selp.b32 %d{n}, 1, 0, %p;"
        for n, where in enumerate(GENERIC)
    ]
    result = columns(*(int(where == space_of(t)) for where in GENERIC))
    return BlockForm(t.text, "\n  ".join(lines), 3, lambda _: result, "addresses")


def hint_form(t: Text) -> BlockForm:
    """Hints change nothing: what was written before or after is there."""
    before = "st.global.b32 [%own], %a0; st.local.b32 [own], %a0;"
    after = "ld.global.b32 %d0, [%own]; ld.local.b32 %d1, [own];"
    place = "own" if "local" in t.words else "%own"
    operands = {
        "applypriority": f"[{place}], 128",
        "discard": f"[{place}], 128",
        "pmevent": "3",
        "setmaxnreg": "64",
        "nanosleep": "20",
        "griddepcontrol": "",
    }.get(t.opcode, f"[{place}]")
    code = f"{before} {t.text} {operands}; {after}"
    if t.opcode == "createpolicy":
        operands = {
            "fractional": "%x, 0.25",
            "range": "%x, [%own], 64, 128",
            "cvt": "%x, 1",
        }[t.words[0]]
        code = f"{before} {t.text} {operands}; ld.global.L2::cache_hint.b32 %d0, [%own], %x;"
        code += "ld.local.b32 %d1, [own];"
    elif t.opcode == "discard":
        code = f"{t.text} {operands}; {before} {after}"
    easy = t.opcode != "setmaxnreg" and "cvt" not in t.words
    return BlockForm(t.text, code, 2, lambda a: columns(a[:, 0], a[:, 0]), "hints", hardware=easy)


COPY_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def copy_form(t: Text) -> BlockForm:
    """``cp.async``: all sizes, whole, cut short and left out."""
    if "mbarrier" in t.words:
        return copy_arrival_form(t)
    wait = "cp.async.wait_all;"
    text = t.text
    sizes = COPY_SIZES.get(t.first("ca", "cg"), (16,))
    if sizes == (16,) and "cg" not in t.words:  # how to wait is what the form is about
        text, wait = "cp.async.cg.shared.global", f"{t.text};"
        if "commit_group" in t.words or "wait_group" in t.words:
            wait = "cp.async.commit_group; cp.async.wait_group 0;"
    cases = [(size, take) for size in sizes for take in (None, size, 0, 1, 3, size - 1, "skip")]
    policy = "createpolicy.fractional.L2::evict_first.b64 %z, 0.5;" * ("hint" in t.text)
    last = ", %z" if policy else ""
    lines = [policy, "setp.eq.u32 %p, 0, 0; .reg .b32 %n; mov.b32 %n, %at;"]
    for n, (size, given) in enumerate(cases):
        more = "" if given is None else ", %p" if given == "skip" else f", {given}"
        lines.append("st.shared.v4.b32 [%at], {-1, -1, -1, -1};")
        lines.append(f"{text} [%at], [%in], {size}{more}{last}; {wait}")
        words = ", ".join(f"%d{k + 4 * n}" for k in range(4))
        lines.append(f"ld.shared.v4.b32 {{{words}}}, [%at];")

    def reference(words: np.ndarray) -> np.ndarray:
        data = bytes_of(words)
        out = []
        for size, given in cases:
            count = size if given is None else 0 if given == "skip" else given
            part = np.full((THREADS, 16), 255, np.uint8)
            part[:, :size] = 0
            part[:, :count] = data[:, :count]
            out.append(words_of(part))
        return np.concatenate(out, 1).astype(np.int64)

    code = "\n  ".join(filter(None, lines))
    return BlockForm(t.text, code, 4 * len(cases), reference, "copies")


def copy_arrival_form(t: Text) -> BlockForm:
    """Copies that arrive at a barrier in shared memory."""
    extra = 64 if "noinc" in t.words else 0
    bar = "%y" if {"shared", "shared::cta"}.isdisjoint(t.words) else "%bar"
    code = f""".reg .b32 %bar; mov.u32 %bar, box; add.u32 %bar, %bar, 4096;
  setp.eq.u32 %q, %t, 0; bar.sync 0; @%q mbarrier.init.shared.b64 [%bar], {64 + extra};
  cvt.u64.u32 %y, %bar; cvta.shared.u64 %y, %y; bar.sync 0;
  cp.async.ca.shared.global [%at], [%in], 4;
  {t.text} [{bar}]; mbarrier.arrive.shared.b64 %x, [%bar];
again: mbarrier.test_wait.shared.b64 %p, [%bar], %x; @!%p bra again;
  .reg .b32 %n; mov.b32 %n, %across; ld.shared.b32 %d0, [%n];
  bar.sync 0; @%q mbarrier.inval.shared.b64 [%bar];"""
    other = np.arange(THREADS) ^ 33
    return BlockForm(t.text, code, 1, lambda a: columns(a[other, 0]), "copies")


def vector_atomic_form(t: Text) -> BlockForm:
    """Each element by itself; the values are small whole numbers, so that sums are exact."""
    count, kind = vector_length(t), t.type
    pairs = kind.endswith("x2")
    size = 4 if kind == "f32" or pairs else 2
    operation = t.first("add", "min", "max")
    register = {"f32": "f32", "f16": "b16", "bf16": "b16"}.get(kind, "b32")
    names = [f"%e{n}" for n in range(count)]
    lines = [f".reg .{register} %e<{count}>, %o<{count}>;"]
    if size == 4:
        lines += [f"mov.b32 %e{n}, %a{n};" for n in range(count)]
    else:
        lines += [f"mov.b32 {{%e{n}, %e{n + 1}}}, %a{n // 2};" for n in range(0, count, 2)]
    words = size * count // 4
    lines += [f"st.global.b32 [%own+{4 * n}], %a{8 + n};" for n in range(words)]
    returns = "{" + ", ".join(f"%o{n}" for n in range(count)) + "}, " if t.opcode == "atom" else ""
    lines.append(f"{t.text} {returns}[%own], {{{', '.join(names)}}};")
    lines += [f"ld.global.b32 %d{n}, [%own+{4 * n}];" for n in range(words)]
    if returns and size == 4:
        lines += [f"mov.b32 %d{words + n}, %o{n};" for n in range(count)]
    elif returns:
        lines += [f"mov.b32 %d{words + n // 2}, {{%o{n}, %o{n + 1}}};" for n in range(0, count, 2)]

    def reference(given: np.ndarray) -> np.ndarray:
        number = number_type(kind)
        a, old = (np.ascontiguousarray(given[:, s : s + words]).view(number) for s in (0, 8))
        function = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
        found = [words_of(function(old, a))] + [words_of(old)] * bool(returns)
        return np.concatenate(found, 1).astype(np.int64)

    family = f"atom vector {kind.removesuffix('x2')}"
    return BlockForm(t.text, "\n  ".join(lines), words * (1 + bool(returns)), reference, family)


def number_type(kind: str) -> np.dtype:
    import ml_dtypes

    single = kind.removesuffix("x2")
    return np.dtype({"f32": np.float32, "f16": np.float16}.get(single, ml_dtypes.bfloat16))


def call_form(t: Text) -> BlockForm:
    """Calls by name and through a pointer: doubled, and one more unless above 100."""
    code = f"""{{ .param .b32 given, back; and.b32 %d1, %a0, 127; st.param.b32 [given], %d1;
  {t.text} (back), twice, (given); ld.param.b32 %d0, [back]; }}
  {{ .param .b32 given, back; and.b32 %d1, %a1, 127; st.param.b32 [given], %d1;
  mov.u64 %x, twice;
  shape: .callprototype (.param .b32 _) _ (.param .b32 _);
  {t.text} (back), %x, (given), shape; ld.param.b32 %d1, [back]; }}"""

    def reference(a: np.ndarray) -> np.ndarray:
        value = (a[:, :2].astype(np.int64) & 127) * 2
        return np.where(value > 100, value, value + 1)

    return BlockForm(t.text, code, 2, reference, "calls")


def branch_form(t: Text) -> BlockForm:
    """Branches by a predicate and by an index."""
    uniform = "uni" in t.words
    by = "1" if uniform else "%a0"
    if t.opcode == "brx":
        code = f""".reg .b32 %n; and.b32 %n, {by}, 3;
  targets: .branchtargets zero, one, two, one;
  {t.text} %n, targets;
zero: mov.b32 %d0, 10; bra done;
one: mov.b32 %d0, 11; bra done;
two: mov.b32 %d0, 12;
done: mov.b32 %d1, 7;"""
        table = np.array([10, 11, 12, 11])
    else:
        code = f""".reg .b32 %n; and.b32 %n, {by}, 3; setp.ge.u32 %p, %n, 2;
  @%p {t.text} big; mov.b32 %d0, 10; bra done;
big: mov.b32 %d0, 11;
done: mov.b32 %d1, 7;"""
        table = np.array([10, 10, 11, 11])

    def reference(a: np.ndarray) -> np.ndarray:
        index = np.ones(THREADS, np.int64) if uniform else a[:, 0].astype(np.int64) & 3
        return columns(table[index], 7)

    return BlockForm(t.text, code, 2, reference, "branches")


def end_form(t: Text) -> BlockForm:
    """Threads that end early leave nothing."""
    code = f"mov.b32 %d0, 5; and.b32 %d1, %t, 1; setp.eq.u32 %p, %d1, 1; @%p {t.text};"
    if "uni" in t.words:
        code = f"mov.b32 %d0, 5; and.b32 %d1, %t, 1; setp.ge.u32 %p, %t, 32; @%p {t.text};"
        stays = np.arange(THREADS) < 32
    else:
        stays = np.arange(THREADS) % 2 == 0
    odd = np.arange(THREADS) & 1
    return BlockForm(t.text, code, 2, lambda _: columns(5 * stays, odd * stays), t.text)


MEMORY: dict[str, Callable[[Text], BlockForm]] = {
    **dict.fromkeys(("ld", "ldu"), load_form),
    "st": store_form,
    "cvta": address_form,
    "isspacep": space_test_form,
    **dict.fromkeys(
        [
            "prefetch",
            "prefetchu",
            "applypriority",
            "discard",
            "createpolicy",
            "griddepcontrol",
            "pmevent",
            "setmaxnreg",
            "nanosleep",
        ],
        hint_form,
    ),
    "cp": copy_form,
    "call": call_form,
    **dict.fromkeys(("bra", "brx"), branch_form),
    **dict.fromkeys(("ret", "exit"), end_form),
}
