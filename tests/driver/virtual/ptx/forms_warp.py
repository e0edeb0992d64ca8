# SPDX-License-Identifier: Apache-2.0
"""Warp operations, barriers and fences: what they must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from driver.virtual.ptx.forms_block import OPEN, THREADS, BlockForm, columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.virtual.ptx.forms import Text

SOME = 0x0FF0F00F
TILE = "shr.u32 %m, %l, 3; shl.b32 %m, %m, 3; shl.b32 %m, 255, %m;"
LANES = np.arange(32)


def groups() -> list[list[np.ndarray]]:
    """The lanes that meet, in each of the ways."""
    return [
        [LANES],
        [LANES[n : n + 8] for n in range(0, 32, 8)],
        [LANES[0::2], LANES[1::2]],
        [LANES[(SOME >> LANES & 1) == 1]],
    ]


def in_all_ways(step: Callable[[str, int], str], count: int) -> str:
    """A warp operation by all lanes, by tiles, in two branches, and by some lanes alone.

    ``step(mask, first)`` gives the instructions that leave `count` words from a place on.
    """
    return f""".reg .b32 %m, %n; .reg .pred %odd;
  and.b32 %n, %l, 1; setp.eq.u32 %odd, %n, 1;
  bar.warp.sync -1; {step("-1", 0)}
  {TILE} {step("%m", count)}
  @%odd bra right; {step("0x55555555", 2 * count)} bra met;
right: {step("0xaaaaaaaa", 2 * count)}
met: bar.warp.sync -1;
  mov.b32 %n, {SOME}; shr.u32 %n, %n, %l; and.b32 %n, %n, 1; setp.eq.u32 %odd, %n, 0;
  @%odd bra done; {step(f"0x{SOME:08x}", 3 * count)}
done: bar.warp.sync -1;"""


def by_groups(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], count: int
) -> Callable[[np.ndarray], np.ndarray]:
    """A reference from one for a group: words of a warp and lanes, to results of these lanes."""

    def reference(words: np.ndarray) -> np.ndarray:
        out = np.zeros((THREADS, 4 * count), np.int64)
        for start in range(0, THREADS, 32):
            warp = words[start : start + 32].astype(np.int64)
            for way, found in enumerate(groups()):
                for lanes in found:
                    out[start + lanes, way * count : (way + 1) * count] = function(warp, lanes)
        return out

    return reference


SEGMENTS = (0x1F, 0x181F, 0x1C1F, 0x101F, 0x0700, 0x0F03)


def shuffle_form(t: Text) -> BlockForm:
    """With a predicate, and in segments; lanes read from lanes that did not come are open."""
    mode = t.first("up", "down", "bfly", "idx")
    segments = [s & ~0x1F if mode == "up" else s for s in SEGMENTS[:3]]

    def step(mask: str, first: int) -> str:
        return " ".join(
            f"{t.text} %d{first + 2 * n}|%p, %a0, %a1, {c}, {mask};"
            f" selp.u32 %d{first + 2 * n + 1}, 1, 0, %p;"
            for n, c in enumerate(segments)
        )

    def function(warp: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        by = warp[lanes, 1] & 31
        found = []
        for c in segments:
            segment, clamp = c >> 8 & 31, c & 31
            last = lanes & segment | clamp & ~segment & 31
            first = lanes & segment
            source, good = {
                "up": (lanes - by, lanes - by >= last),
                "down": (lanes + by, lanes + by <= last),
                "bfly": (lanes ^ by, (lanes ^ by) <= last),
                "idx": (first | by & ~segment, (first | by & ~segment) <= last),
            }[mode]
            source = np.where(good, source, lanes)
            value = np.where(np.isin(source, lanes), warp[source, 0], OPEN)
            found += [value, good]
        return np.stack(found, 1)

    return BlockForm(t.text, in_all_ways(step, 6), 24, by_groups(function, 6), "shuffles")


def vote_form(t: Text) -> BlockForm:
    """Of a bit that is random, one that is the same in tiles, and its opposite."""
    mode = t.first("all", "any", "uni", "ballot")

    def step(mask: str, first: int) -> str:
        lines = []
        for n, (bit, sign) in enumerate(((1, ""), (2, ""), (2, "!"), (4, ""))):
            lines.append(f"and.b32 %n, %a2, {bit}; setp.ne.u32 %p, %n, 0;")
            if mode == "ballot":
                lines.append(f"{t.text} %d{first + n}, {sign}%p, {mask};")
            else:
                lines.append(f"{t.text} %q, {sign}%p, {mask}; selp.u32 %d{first + n}, 1, 0, %q;")
        return " ".join(lines)

    def function(warp: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        found = []
        for bit, opposite in ((1, False), (2, False), (2, True), (4, False)):
            yes = ((warp[lanes, 2] & bit) != 0) ^ opposite
            found.append({
                "all": int(yes.all()),
                "any": int(yes.any()),
                "uni": int(yes.all() or not yes.any()),
                "ballot": int((yes.astype(np.int64) << lanes).sum()),
            }[mode])  # fmt: skip
        return np.tile(found, (lanes.size, 1))

    return BlockForm(t.text, in_all_ways(step, 4), 16, by_groups(function, 4), "votes")


def match_form(t: Text) -> BlockForm:
    wide, everyone = t.type == "b64", "all" in t.words

    def step(mask: str, first: int) -> str:
        lines = []
        for n, word in enumerate((4, 5)):
            value = f"%a{word}"
            if wide:
                value = "%x"
                lines.append(f"mov.b64 %x, {{7, %a{word}}};")
            place = first + 2 * n
            target = f"%d{place}|%p" if everyone else f"%d{place}"
            lines.append(f"{t.text} {target}, {value}, {mask};")
            lines.append(f"selp.u32 %d{place + 1}, 1, 0, %p;" * everyone)
        return " ".join(lines)

    def function(warp: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        found = []
        for word in (4, 5):
            values = warp[lanes, word]
            same = values[:, None] == values
            masks = (same.astype(np.int64) << lanes).sum(1)
            if everyone:
                masks = np.where(same.all(), masks, 0)
            found += [masks, np.full(lanes.size, same.all() and everyone)]
        return np.stack(found, 1)

    return BlockForm(t.text, in_all_ways(step, 4), 16, by_groups(function, 4), "matches")


def reduce_form(t: Text) -> BlockForm:
    operation = t.first("add", "min", "max", "and", "or", "xor")

    def step(mask: str, first: int) -> str:
        return f"{t.text} %d{first}, %a0, {mask};"

    def function(warp: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        values = warp[lanes, 0].astype(np.uint32).view(np.int32 if t.type[0] == "s" else np.uint32)
        values = values.astype(np.int64)
        functions = {"add": np.add, "min": np.minimum, "max": np.maximum}
        functions |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
        total = int(functions[operation].reduce(values)) & 0xFFFFFFFF
        return np.full((lanes.size, 1), total)

    return BlockForm(t.text, in_all_ways(step, 1), 4, by_groups(function, 1), "reductions")


def active_form(t: Text) -> BlockForm:
    """The lane itself, and none that cannot be there."""

    def step(mask: str, first: int) -> str:
        others = "-1" if mask == "%m" else mask
        return f"""{t.text} %d{first}; not.b32 %n, {others}; and.b32 %n, %n, %d{first};
  setp.eq.u32 %p, %n, 0; shr.u32 %n, %d{first}, %l; and.b32 %n, %n, 1;
  selp.u32 %d{first}, %n, 0, %p;"""

    reference = by_groups(lambda _, lanes: np.ones((lanes.size, 1)), 1)
    return BlockForm(t.text, in_all_ways(step, 1), 4, reference, "votes")


def elect_form(t: Text) -> BlockForm:
    def step(mask: str, first: int) -> str:
        return f"{t.text} %d{first}|%p, {mask}; selp.u32 %d{first + 1}, 1, 0, %p;"

    def function(_: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        return np.stack([np.full(lanes.size, lanes[0]), lanes == lanes[0]], 1)

    return BlockForm(t.text, in_all_ways(step, 2), 8, by_groups(function, 2), "elections")


def warp_barrier_form(t: Text) -> BlockForm:
    """What a neighbour in the group has stored before is seen behind."""

    def step(mask: str, first: int) -> str:
        by = 64 if mask.startswith(("0x5", "0xa")) else 32
        return f"""st.volatile.shared.b32 [%at], %a{first}; {t.text} {mask};
  xor.b32 %n, %at, {by}; ld.volatile.shared.b32 %d{first}, [%n]; bar.warp.sync {mask};"""

    def reference(words: np.ndarray) -> np.ndarray:
        lane = np.arange(THREADS)
        found = [words[lane ^ (2 if way == 2 else 1), way] for way in range(4)]
        found[3] = np.where(SOME >> (lane & 31) & 1, found[3], 0)
        return columns(*found)

    return BlockForm(t.text, in_all_ways(step, 1), 4, reference, "barriers")


def barrier_form(t: Text) -> BlockForm:
    """Barriers of the whole block, of one warp, in two branches; with arrivals; with votes."""
    if "warp" in t.words:
        return warp_barrier_form(t)
    if "red" in t.words:
        return reducing_barrier_form(t)
    head = f".reg .b32 %m, %n; .reg .pred %first; setp.lt.u32 %first, %t, 32; {TILE}"
    other = "mov.b32 %n, %across; ld.shared.b32 %d{}, [%n]; bar.sync 0;"
    if "arrive" in t.words:
        code = f"""{head} st.shared.b32 [%at], %a0; bar.warp.sync -1;
  @%first {t.text} 5, 64; @!%first bar.sync 5, 64; @!%first mov.b32 %n, %beyond;
  @!%first ld.shared.b32 %d0, [%n]; bar.sync 0;
  st.shared.b32 [%at], %a1; mov.b32 %m, 6;
  @!%first {t.text} %m, 64; @%first barrier.sync 6, 64; @%first mov.b32 %n, %beyond;
  @%first ld.shared.b32 %d0, [%n]; bar.sync 0;"""
        threads = np.arange(THREADS)
        return BlockForm(
            t.text,
            code,
            1,
            lambda a: columns(np.where(threads < 32, a[threads ^ 32, 1], a[threads ^ 32, 0])),
            "barriers",
        )
    steps = [f"{t.text} 0;", f"{t.text} 3, 64;", "mov.b32 %m, 4; " + f"{t.text} %m;"]
    lines = [
        f"st.shared.b32 [%at], %a{n}; {step} {other.format(n)}" for n, step in enumerate(steps)
    ]
    lines.append(f"""st.shared.b32 [%at], %a3; @%first {t.text} 7, 32; @!%first {t.text} 8, 32;
  xor.b32 %n, %at, 32; ld.shared.b32 %d3, [%n]; bar.sync 0;""")
    if t.opcode == "barrier" and "aligned" not in t.words:
        lines.append(f"""and.b32 %n, %t, 1; setp.eq.u32 %p, %n, 1; st.shared.b32 [%at], %a4;
  @%p bra right; {t.text} 9, 64; bra met;
right: {t.text} 9, 64;
met: mov.b32 %n, %across; ld.shared.b32 %d4, [%n]; bar.sync 0;""")
    count = 4 + (len(lines) > 4)
    across, near = np.arange(THREADS) ^ 33, np.arange(THREADS) ^ 1

    def reference(a: np.ndarray) -> np.ndarray:
        return columns(*(a[near if n == 3 else across, n] for n in range(count)))

    return BlockForm(t.text, "\n  ".join([head, *lines]), count, reference, "barriers")


def reducing_barrier_form(t: Text) -> BlockForm:
    mode = t.first("popc", "and", "or")
    lines = [".reg .b32 %n; .reg .pred %first; setp.lt.u32 %first, %t, 32;"]
    cases = [(1, "", "0"), (2, "!", "1, 64"), (8, "", "2"), (4, "", "3, 64")]
    cases += [(1, "", "4, 32"), (1, "", "5, 32")]
    for n, (bit, sign, barrier) in enumerate(cases):
        target = f"%d{min(n, 4)}"
        guard = {4: "@%first ", 5: "@!%first "}.get(n, "")
        lines.append(f"and.b32 %n, %a2, {bit}; setp.ne.u32 %p, %n, 0;")
        if mode == "popc":
            lines.append(f"{guard}{t.text} {target}, {barrier}, {sign}%p;")
        else:
            lines.append(f"{guard}{t.text} %q, {barrier}, {sign}%p;")
            lines.append(f"{guard}selp.u32 {target}, 1, 0, %q;")
    functions = {"popc": np.sum, "and": np.all, "or": np.any}

    def reference(a: np.ndarray) -> np.ndarray:
        values = [((a[:, 2] & bit) != 0) ^ (sign == "!") for bit, sign, _ in cases[:5]]
        found = [np.full(THREADS, functions[mode](v)) for v in values]
        found[4] = np.repeat([functions[mode](values[4][s : s + 32]) for s in (0, 32)], 32)
        return columns(*found)

    return BlockForm(t.text, "\n  ".join(lines), 5, reference, "barriers")


def fence_form(t: Text) -> BlockForm:
    """The second warp waits for a flag behind which it must see what the first has written."""
    code = f""".reg .b32 %n; setp.ge.u32 %p, %t, 32;
  st.volatile.shared.b32 [%at+4], 0; bar.sync 0; @%p bra wait;
  st.volatile.shared.b32 [%at], %a0; {t.text}; st.volatile.shared.b32 [%at+4], 1; bra done;
wait: sub.u32 %n, %at, 1024;
again: ld.volatile.shared.b32 %d0, [%n+4]; setp.eq.u32 %q, %d0, 0; @%q bra again;
  {t.text}; ld.volatile.shared.b32 %d0, [%n];
done: bar.sync 0;"""

    def reference(a: np.ndarray) -> np.ndarray:
        return columns(np.concatenate([np.zeros(32, np.int64), a[:32, 0]]))

    return BlockForm(t.text, code, 1, reference, "fences")


INIT = "mbarrier.init.shared.b64 [%bar], {};"
ARRIVE = "mbarrier.arrive.shared.b64 %s, [%bar];"
EXPECT = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 16;"
COMPLETE = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], {};"
PARTS = {
    "init": INIT.format(64),
    "arrive": ARRIVE,
    "wait": "again: mbarrier.test_wait.shared.b64 %p, [%bar], %s; @!%p bra again;",
    "inval": "@%q mbarrier.inval.shared.b64 [%bar];",
}


def phase_parts(t: Text, bar: str) -> dict[str, str]:
    """The steps of a phase that are other than usual, for a form."""
    text, what = t.text, t.words[0]
    if what == "arrive" and "expect_tx" in t.words:
        return {"arrive": f"{text} %s, [{bar}], 4; {COMPLETE.format(4)}"}
    if what == "arrive" and "noComplete" in t.words:
        return {"init": INIT.format(256), "arrive": f"{text} %s, [{bar}], 3; {ARRIVE}"}
    if what == "arrive_drop":
        count = ", 1" * ("noComplete" in t.words)
        return {"init": INIT.format(128), "arrive": f"{text} %s, [{bar}]{count}; {ARRIVE}"}
    state = "0" if "parity" in t.words else "%s"
    wait = f"again: {text} %p, [{bar}], {state}; @!%p bra again;"
    return {
        "init": {"init": f"{text} [{bar}], 64;"},
        "inval": {"inval": f"@%q {text} [{bar}];"},
        "pending_count": {
            "init": INIT.format(65),
            "arrive": f"@%q {ARRIVE} @%q {text} %d1, %s; bar.sync 0; {ARRIVE}",
        },
        "expect_tx": {
            "arrive": f"@%q {text} [{bar}], 16; bar.sync 0; {ARRIVE} @%q {COMPLETE.format(16)}"
        },
        "complete_tx": {"arrive": f"@%q {EXPECT} bar.sync 0; {ARRIVE} @%q {text} [{bar}], 16;"},
        "arrive": {
            "init": INIT.format(192),
            "arrive": f"{text} %s, [{bar}]; {text} %s, [{bar}], 2;",
        },
        "test_wait": {"wait": wait},
        "try_wait": {"wait": wait},
    }[what]


def object_barrier_form(t: Text) -> BlockForm:
    """A phase of a barrier in shared memory, with one of its steps in the form in question."""
    generic = {"shared", "shared::cta"}.isdisjoint(t.words)
    parts = PARTS | phase_parts(t, "%x" if generic else "%bar")
    code = f""".reg .b32 %bar, %n; .reg .b64 %s; mov.u32 %bar, box; add.u32 %bar, %bar, 4096;
  cvt.u64.u32 %x, %bar; cvta.shared.u64 %x, %x; setp.eq.u32 %q, %t, 0;
  bar.sync 0; @%q {parts["init"]} st.shared.b32 [%at], %a0; bar.sync 0;
  {parts["arrive"]}
  {parts["wait"]}
  mov.b32 %n, %across; ld.shared.b32 %d0, [%n]; bar.sync 0; {parts["inval"]}"""
    pending = np.zeros(THREADS, np.int64)
    pending[0] = 65 if t.words[0] == "pending_count" else 0
    other = np.arange(THREADS) ^ 33
    return BlockForm(t.text, code, 2, lambda a: columns(a[other, 0], pending), "objects")


WARP: dict[str, Callable[[Text], BlockForm]] = {
    "shfl": shuffle_form,
    "vote": vote_form,
    "match": match_form,
    "redux": reduce_form,
    "activemask": active_form,
    "elect": elect_form,
    **dict.fromkeys(("bar", "barrier"), barrier_form),
    **dict.fromkeys(("membar", "fence"), fence_form),
    "mbarrier": object_barrier_form,
}
