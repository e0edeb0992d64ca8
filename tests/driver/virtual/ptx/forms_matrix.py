# SPDX-License-Identifier: Apache-2.0
"""Matrix instructions by the documented layouts of fragments: what they must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from driver.virtual.ptx.forms_block import THREADS, WORDS, BlockForm

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.virtual.ptx.forms import Text

LANES = np.arange(32)
GROUP, PLACE = LANES >> 2, LANES & 3
NUMBERS = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "s32": np.dtype(np.int32),
}
A, B, C, HALF_C = 0, 8, 16, 24  # where fragments start among the words of a thread


def warps(words: np.ndarray) -> list[np.ndarray]:
    return [words[start : start + 32] for start in range(0, THREADS, 32)]


def elements(words: np.ndarray, kind: str) -> np.ndarray:
    return np.ascontiguousarray(words).view(NUMBERS[kind])


def matrix_a(warp: np.ndarray, kind: str, depth: int) -> np.ndarray:
    """A from its fragments: upper and lower eight rows by turns, then on to the right."""
    per = 4 // NUMBERS[kind].itemsize
    count = 16 * depth // 32 // per
    values = elements(warp[:, A : A + count], kind).reshape(32, count, per)
    a = np.zeros((16, depth))
    for r in range(count):
        column = PLACE[:, None] * per + np.arange(per) + (r >> 1) * 4 * per
        a[GROUP[:, None] + 8 * (r & 1), column] = values[:, r].astype(np.float64)
    return a


def matrix_b(warp: np.ndarray, kind: str, depth: int) -> np.ndarray:
    per = 4 // NUMBERS[kind].itemsize
    count = 8 * depth // 32 // per
    values = elements(warp[:, B : B + count], kind).reshape(32, count, per)
    b = np.zeros((depth, 8))
    for r in range(count):
        row = PLACE[:, None] * per + np.arange(per) + r * 4 * per
        b[row, GROUP[:, None]] = values[:, r].astype(np.float64)
    return b


ROWS = GROUP[:, None] + 8 * (np.arange(4) >> 1)
COLUMNS = PLACE[:, None] * 2 + (np.arange(4) & 1)


def product_form(t: Text) -> BlockForm:
    """``mma``: exact products, added in double precision or as integers."""
    target, kind_a, kind_b, _ = t.types
    depth = int(t.words[2].split("k")[1])
    per = 4 // NUMBERS[kind_a].itemsize
    count_a, count_b = 16 * depth // 32 // per, 8 * depth // 32 // per
    count_c = 2 if target == "f16" else 4
    first_c = HALF_C if target == "f16" else C
    float_sums = target == "f32"

    def names(letter: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{n}" for n in range(first, first + count)) + "}"

    before = after = ""
    d, c = names("d", 0, count_c), names("a", first_c, count_c)
    if float_sums:
        before = ".reg .f32 %f<8>; " + " ".join(f"mov.b32 %f{n}, %a{C + n};" for n in range(4))
        after = " ".join(f"mov.b32 %d{n}, %f{4 + n};" for n in range(4))
        d, c = names("f", 4, 4), names("f", 0, 4)
    a, b = names("a", A, count_a), names("a", B, count_b)
    code = f"{before}\n  {t.text} {d}, {a}, {b}, {c};\n  {after}"

    def parts(warp: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sums = elements(warp[:, first_c : first_c + count_c], target).astype(np.float64)
        return matrix_a(warp, kind_a, depth), matrix_b(warp, kind_b, depth), sums

    def reference(words: np.ndarray) -> np.ndarray:
        found = []
        for warp in warps(words):
            x, y, sums = parts(warp)
            total = (x @ y)[ROWS, COLUMNS] + sums
            if target == "s32":
                if "satfinite" in t.words:
                    total = np.clip(total, -(2**31), 2**31 - 1)
                total = total.astype(np.int64) & 0xFFFFFFFF
            found.append(total)
        return np.concatenate(found)

    def scale(words: np.ndarray) -> np.ndarray:
        found = []
        for warp in warps(words):
            x, y, sums = map(np.abs, parts(warp))
            found.append((x @ y)[ROWS, COLUMNS] + sums)
        return np.concatenate(found)

    result = {"f32": "f32", "f16": "f16x2", "s32": "b32"}[target]
    return BlockForm(t.text, code, count_c, reference, f"mma {kind_a}", result, scale)


def rows_of(words: np.ndarray, count: int) -> np.ndarray:
    """The matrices that each warp's lanes have stored in rows of eight half words."""
    halves = np.ascontiguousarray(words[:, :4]).view(np.uint16).reshape(2, 32, 8)
    return halves[:, : 8 * count].reshape(2, count, 8, 8)


OWN_ROW = """.reg .b32 %n, %m; mul.lo.u32 %n, %l, 5; add.u32 %n, %n, 3; and.b32 %n, %n, 31;
  shr.u32 %m, %t, 5; shl.b32 %m, %m, 5; add.u32 %n, %n, %m; shl.b32 %n, %n, 4;
  mov.u32 %m, box; add.u32 %n, %n, %m;"""


def matrix_move_form(t: Text) -> BlockForm:
    """``ldmatrix``, ``stmatrix``, ``movmatrix``: rows lie in memory in no order."""
    if t.opcode == "movmatrix":
        code = f"{t.text} %d0, %a0;"

        def moved(words: np.ndarray) -> np.ndarray:
            halves = np.ascontiguousarray(words[:, 0]).view(np.uint16).reshape(2, 8, 8)
            turned = np.ascontiguousarray(halves.transpose(0, 2, 1))
            return turned.view(np.uint32).reshape(THREADS, 1).astype(np.int64)

        return BlockForm(t.text, code, 1, moved, "matrices")
    count = int(t.first("x1", "x2", "x4")[1:])
    turn = "trans" in t.words
    generic = {"shared", "shared::cta"}.isdisjoint(t.words)
    at = "%x" if generic else "%n"
    address = "cvt.u64.u32 %x, %n; cvta.shared.u64 %x, %x;" * generic
    if t.opcode == "ldmatrix":
        given = ", ".join(f"%d{n}" for n in range(count))
        code = f"""{OWN_ROW} {address} st.shared.v4.b32 [%n], {{%a0, %a1, %a2, %a3}};
  bar.warp.sync -1; {t.text} {{{given}}}, [{at}]; bar.warp.sync -1;"""

        def loaded(words: np.ndarray) -> np.ndarray:
            matrices = rows_of(words, count)
            if turn:
                matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2))
            lanes = matrices.reshape(2, count, 64).view(np.uint32)
            return lanes.transpose(0, 2, 1).reshape(THREADS, count).astype(np.int64)

        return BlockForm(t.text, code, count, loaded, "matrices")
    given = ", ".join(f"%a{n}" for n in range(count))
    code = f"""{OWN_ROW} {address} st.shared.v4.b32 [%n], {{0, 0, 0, 0}};
  bar.warp.sync -1; {t.text} [{at}], {{{given}}}; bar.warp.sync -1;
  ld.shared.v4.b32 {{%d0, %d1, %d2, %d3}}, [%n]; bar.warp.sync -1;"""

    def stored(words: np.ndarray) -> np.ndarray:
        lanes = words.reshape(2, 32, WORDS)[:, :, :count].transpose(0, 2, 1)
        matrices = np.ascontiguousarray(lanes).view(np.uint16).reshape(2, count, 8, 8)
        if turn:
            matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2))
        out = np.zeros((2, 32, 4), np.int64)
        out[:, : 8 * count] = matrices.reshape(2, 8 * count, 8).view(np.uint32)
        return out.reshape(THREADS, 4)

    return BlockForm(t.text, code, 4, stored, "matrices")


TILES = {"m16n16k16": (16, 16), "m32n8k16": (32, 8), "m8n32k16": (8, 32)}
WINDOWS = {"global", "shared", "shared::cta"}
PLACES = {"a": 0, "b": 1024, "d": 0}  # bytes in the warp's part of the input, or of the output


def names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"


class Tile:
    """A product of tiles: how each matrix lies in memory, and the types.

    Parameters
    ----------
    t
        The form, which is one of the steps: load, multiply, store.
    """

    def __init__(self, t: Text) -> None:
        self.shape = next(w for w in t.words if w in TILES)
        rows, columns = TILES[self.shape]
        self.extents = {"a": (rows, 16), "b": (16, columns)}
        self.extents |= dict.fromkeys("cd", (rows, columns))
        self.layouts = dict.fromkeys("abcd", "row")
        self.spaces = dict.fromkeys("abcd", ".global")
        self.types = {"a": "f16", "c": "f32", "d": "f32"}
        if t.words[0] == "mma":
            self.layouts["a"], self.layouts["b"] = t.words[3:5]
            self.types["d"], self.types["c"] = t.types[0], t.types[-1]
            self.types["a"] = t.types[1] if len(t.types) == 4 else "f16"
        else:
            matrix = t.words[1]
            self.layouts[matrix] = t.words[4]
            self.spaces[matrix] = "".join(f".{w}" for w in t.words if w in WINDOWS)
            self.types["a" if matrix == "b" else matrix] = t.type
        self.types["b"] = self.types["a"]
        self.words = self.registers("d")

    def place(self, matrix: str) -> int:
        """Where a matrix starts in the warp's memory."""
        if matrix == "c":
            return 3072 if self.types["c"] == "f16" else 2048
        return PLACES[matrix]

    def stride(self, matrix: str) -> int:
        return self.extents[matrix][self.layouts[matrix] == "row"]

    def registers(self, matrix: str) -> int:
        """How many registers a fragment takes."""
        kind = self.types[matrix]
        if matrix in "cd":
            return 8 if kind == "f32" else 4
        rows, columns = self.extents[matrix]
        return 8 if kind == "f16" else rows * columns // 64

    def fragment(self, matrix: str) -> str:
        kind = "g" if matrix in "cd" and self.types[matrix] == "f32" else "h"
        return names(kind + matrix, self.registers(matrix))

    def address(self, matrix: str) -> tuple[str, str]:
        """Instructions that find where a matrix lies, and the register that then holds it."""
        offset = self.place(matrix)
        if "shared" in self.spaces[matrix]:
            return f"mov.u32 %m, box; add.u32 %m, %m, %w; add.u32 %m, %m, {offset};", "%m"
        base = "%warp_out" if matrix == "d" else "%warp_in"
        return f"add.s64 %x, {base}, {offset};", "%x"

    def move(self, matrix: str) -> str:
        """The instruction that loads or stores a matrix."""
        verb = "store" if matrix == "d" else "load"
        before, at = self.address(matrix)
        text = f"wmma.{verb}.{matrix}.sync.aligned.{self.layouts[matrix]}.{self.shape}"
        text += f"{self.spaces[matrix]}.{self.types[matrix]}"
        operands = [f"[{at}]", self.fragment(matrix)]
        if verb == "load":
            operands.reverse()
        return f"{before} {text} {', '.join(operands)}, {self.stride(matrix)};"

    def product(self) -> str:
        between = "bf16.bf16." if self.types["a"] == "bf16" else ""
        text = f"wmma.mma.sync.aligned.{self.layouts['a']}.{self.layouts['b']}.{self.shape}"
        text += f".{self.types['d']}.{between}{self.types['c']}"
        return f"{text} {', '.join(self.fragment(m) for m in 'dabc')};"

    def show(self) -> str:
        """Put the lane's part of what was stored into words."""
        if "shared" in self.spaces["d"]:
            find = f"mov.u32 %m, box; add.u32 %m, %m, %w; mad.lo.u32 %m, %l, {4 * self.words}, %m;"
            load = "ld.shared.b32 %d{0}, [%m+{1}];"
        else:
            find = f"mad.wide.u32 %x, %l, {4 * self.words}, %warp_out;"
            load = "ld.global.b32 %d{0}, [%x+{1}];"
        return find + " ".join(load.format(n, 4 * n) for n in range(self.words))

    def code(self) -> str:
        lines = [TILE_HEAD]
        if any("shared" in space for space in self.spaces.values()):
            lines.append(TO_SHARED)
        lines += [self.move(m) for m in "abc"]
        lines += [self.product(), "bar.warp.sync -1;", self.move("d"), "bar.warp.sync -1;"]
        return "\n  ".join([*lines, self.show(), "bar.warp.sync -1;"])

    def matrix(self, warp: np.ndarray, matrix: str) -> np.ndarray:
        """A matrix from the memory of a warp."""
        height, breadth = self.extents[matrix]
        number = NUMBERS[self.types[matrix]]
        data = np.ascontiguousarray(warp).reshape(-1).view(np.uint8)[self.place(matrix) :]
        values = data[: height * breadth * number.itemsize].view(number).astype(np.float64)
        if self.layouts[matrix] == "row":
            return values.reshape(height, breadth)
        return values.reshape(breadth, height).T

    def compute(self, words: np.ndarray, *, magnitudes: bool = False) -> np.ndarray:
        """What the lanes find in memory, or the sums of magnitudes."""
        found = []
        for warp in warps(words):
            a, b, c = (self.matrix(warp, m) for m in "abc")
            total = abs(a) @ abs(b) + abs(c) if magnitudes else a @ b + c
            total = total if self.layouts["d"] == "row" else total.T
            found.append(total.reshape(32, -1))
        return np.concatenate(found)


TILE_HEAD = """.reg .b32 %ha<8>, %hb<8>, %hc<4>, %hd<4>; .reg .f32 %gc<8>, %gd<8>;
  .reg .b64 %warp_in, %warp_out; .reg .b32 %w, %m;
  mul.wide.u32 %x, %l, 128; sub.s64 %warp_in, %in, %x; sub.s64 %warp_out, %own, %x;
  shr.u32 %w, %t, 5; shl.b32 %w, %w, 12;"""
TO_SHARED = "\n  ".join([
    ".reg .b32 %v<4>; mul.lo.u32 %m, %t, 128; mov.u32 %w, box; add.u32 %m, %m, %w;",
    *(
        f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%in+{n}];"
        f" st.shared.v4.b32 [%m+{n}], {{%v0, %v1, %v2, %v3}};"
        for n in range(0, 128, 16)
    ),
    "bar.warp.sync -1; shr.u32 %w, %t, 5; shl.b32 %w, %w, 12;",
])  # fmt: skip


def tile_form(t: Text) -> BlockForm:
    """``wmma``: tiles are loaded, multiplied and stored, with one step in the form in question."""
    tile = Tile(t)
    return BlockForm(
        t.text,
        tile.code(),
        tile.words,
        tile.compute,
        f"wmma {tile.types['a']}",
        {"f32": "f32", "f16": "f16x2"}[tile.types["d"]],
        lambda words: tile.compute(words, magnitudes=True),
    )


MATRIX: dict[str, Callable[[Text], BlockForm]] = {
    "mma": product_form,
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), matrix_move_form),
    "wmma": tile_form,
}
