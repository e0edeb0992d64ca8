# SPDX-License-Identifier: Apache-2.0
"""Declarations in PTX: variables with their initial values, parameters, numbers."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.lexer import syntax_error
from flambeau.driver.virtual.ptx.syntax import FloatImmediate, Immediate, Symbol, Variable

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.lexer import TokenStream

__all__ = ["SPACES", "TYPE_BYTES", "DeclarationParser"]

TYPE_BYTES = {
    **dict.fromkeys(("pred", "b8", "u8", "s8"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 8),
    "b128": 16,
}
SPACES = frozenset({".global", ".const", ".shared", ".local", ".param"})


class DeclarationParser:
    """Parses what stands behind a state space.

    Parameters
    ----------
    tokens
        The text, with its position.
    """

    def __init__(self, tokens: TokenStream) -> None:
        self.tokens = tokens

    def integer(self) -> int:
        """An integer with its signs."""
        tokens = self.tokens
        sign = 1
        while tokens.next in {"-", "+"}:
            if tokens.take() == "-":
                sign = -sign
        text = tokens.take()
        if not text[0].isdigit():
            raise syntax_error(tokens.line, f"expected a number, not {text!r}")
        return sign * parse_integer(text)

    def variables(self, space: str) -> list[Variable]:
        """Declarators behind a state space, to the semicolon."""
        tokens = self.tokens
        found = []
        align, vector, kind = 0, 1, ""
        while tokens.next.startswith("."):
            word = tokens.take()[1:]
            if word == "align":
                align = self.alignment()
            elif word in {"v2", "v4"}:
                vector = int(word[1])
            elif word in TYPE_BYTES:
                kind = word
            elif word not in {"ptr", "attribute", "unified", *(s[1:] for s in SPACES)}:
                raise syntax_error(tokens.line, f"unknown type .{word}")
        while True:
            found.append(self.declarator(space, kind, vector, align))
            if not tokens.accept(","):
                break
        tokens.expect(";")
        return found

    def alignment(self) -> int:
        """A power of two."""
        line, align = self.tokens.line, self.integer()
        if align < 1 or align & (align - 1):
            raise syntax_error(line, f"an alignment of {align} is not a power of two")
        return align

    def limited(self, most: int) -> int:
        """A number of things to make."""
        line, count = self.tokens.line, self.integer()
        if not 0 <= count <= most:
            raise syntax_error(line, f"{count} is more than {most}, or less than none")
        return count

    def declarator(self, space: str, kind: str, vector: int, align: int) -> Variable:
        """A name with its extents and initial value."""
        tokens = self.tokens
        name = tokens.take()
        element = TYPE_BYTES[kind] * vector
        count = self.extents()
        variable = Variable(name, space, kind, max(align, element), element * count)
        if tokens.accept("="):
            self.initializer(variable, kind)
        return variable

    def extents(self) -> int:
        """The array sizes behind a name; 1 without any, 0 where one is open."""
        count = 1
        while self.tokens.accept("["):
            count *= 0 if self.tokens.next == "]" else self.integer()
            self.tokens.expect("]")
        return count

    def initializer(self, variable: Variable, kind: str) -> None:
        """Set a variable's initial bytes, and where addresses go in them."""
        values: list[int | FloatImmediate | Symbol] = []
        self.initial_values(values)
        size = TYPE_BYTES[kind]
        data, patches = bytearray(), []
        for value in values:
            if isinstance(value, Symbol):
                patches.append((len(data), value.name, value.offset))
                data += bytes(size)
            else:
                data += encode(value, kind, size)
        variable.size = max(variable.size, len(data))
        variable.initial = bytes(data)
        variable.patches = tuple(patches)

    def initial_values(self, values: list[int | FloatImmediate | Symbol]) -> None:
        """Add the values of an initialiser, in braces to any depth."""
        tokens = self.tokens
        if tokens.accept("{"):
            while not tokens.accept("}"):
                self.initial_values(values)
                tokens.accept(",")
            return
        text = tokens.next
        if text[0].isdigit() or text in {"-", "+"}:
            number = self.number()
            values.append(number.value if isinstance(number, Immediate) else number)
            return
        generic = tokens.take() == "generic"
        if generic:
            tokens.expect("(")
            text = tokens.take()
            tokens.expect(")")
        offset = self.integer() if tokens.next in {"+", "-"} else 0
        values.append(Symbol(text, offset))

    def number(self) -> Immediate | FloatImmediate:
        """An integer or floating-point literal with its signs."""
        sign = 1
        while self.tokens.next in {"-", "+"}:
            if self.tokens.take() == "-":
                sign = -sign
        text = self.tokens.take()
        if text[:2] in {"0f", "0F"}:
            return FloatImmediate(int(text[2:], 16) ^ (1 << 31 if sign < 0 else 0), 32)
        if text[:2] in {"0d", "0D"}:
            return FloatImmediate(int(text[2:], 16) ^ (1 << 63 if sign < 0 else 0), 64)
        if text[:2] not in {"0x", "0X"} and re.search("[.eE]", text):
            return FloatImmediate(struct.unpack("<Q", struct.pack("<d", sign * float(text)))[0], 64)
        return Immediate(sign * parse_integer(text))

    def parameter(self) -> Variable:
        """A parameter behind ``.param``."""
        tokens = self.tokens
        align, kind = 0, "b8"
        while tokens.next.startswith("."):
            word = tokens.take()[1:]
            if word == "align":
                align = self.alignment()
            elif word in TYPE_BYTES:
                kind = word
        name = tokens.take()
        size = TYPE_BYTES[kind]
        return Variable(name, "param", kind, max(align, size), size * self.extents())


def parse_integer(text: str) -> int:
    """An integer literal: hexadecimal, octal with a leading 0, binary or decimal."""
    text = text.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text[1].isdigit():
        return int(text, 8)
    return int(text, 0)


def encode(value: int | FloatImmediate, kind: str, size: int) -> bytes:
    """The bytes of an initial value."""
    if isinstance(value, FloatImmediate):
        if value.width == 8 * size:
            return value.bits.to_bytes(size, "little")
        return struct.pack("<f", struct.unpack("<d", struct.pack("<Q", value.bits))[0])
    if kind in {"f32", "f64"}:
        return struct.pack("<f" if kind == "f32" else "<d", value)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
