# SPDX-License-Identifier: Apache-2.0
"""Finding the entry function in the C++ of a jiterator kernel.

Only as much of C++ is understood as that takes: tokens, so that brackets in comments and strings do
not count, and matching brackets. Everything else is the compiler's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CodeError", "EntryFunction", "parse"]

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
      | (?P<text>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
                |(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
      | (?P<directive>\#(?:\\\r?\n|[^\n])*)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>::|->|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NO_FUNCTION = {"class", "concept", "enum", "struct", "union", "using"}
_SPECIFIERS = {
    "__device__", "__forceinline__", "__global__", "__host__", "__inline__", "__noinline__",
    "const", "constexpr", "extern", "inline", "signed", "static", "typename", "unsigned",
    "volatile",
}  # fmt: skip
_FORM = "template <typename T> T name(T x) { return x; }"


class CodeError(ValueError):
    """The code has no entry function of the form that jiterator takes.

    Attributes
    ----------
    line, column : int
        Where, counted from 1.
    """

    def __init__(self, why: str, code: str, position: int) -> None:
        self.why, self.code, self.position = why, code, position
        before = code[:position]
        self.line = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        lines = code.splitlines() or [""]
        shown = lines[min(self.line, len(lines)) - 1]
        super().__init__(
            f"Couldn't parse code, please check correctness: line {self.line}, column "
            f"{self.column}: {why}\n    {shown}\n    {' ' * (self.column - 1)}^\n"
            f"The form is: {_FORM}"
        )

    def __reduce__(self) -> tuple[type[CodeError], tuple[str, str, int]]:
        return type(self), (self.why, self.code, self.position)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the entry function.

    Parameters
    ----------
    words
        The names in its declaration, types among them.
    is_reference
        Whether it is an lvalue reference.
    is_optional
        Whether it has a default value.
    is_pack
        Whether it stands for any number of arguments.
    """

    words: tuple[str, ...]
    is_reference: bool
    is_optional: bool
    is_pack: bool


@dataclass(frozen=True, slots=True)
class EntryFunction:
    """The function that a kernel calls for each element.

    Parameters
    ----------
    name
        Its name.
    parameters
        Its parameters in order.
    type_arguments
        How many of its template's parameters have to be given as types: the first, and those after
        it that no function parameter mentions.
    """

    name: str
    parameters: tuple[Parameter, ...]
    type_arguments: int

    def takes(self, count: int) -> bool:
        """Whether it can be called with this many arguments."""
        if any(p.is_pack for p in self.parameters):
            return True
        least = sum(not p.is_optional for p in self.parameters)
        return least <= count <= len(self.parameters)


def parse(code: str) -> EntryFunction:
    """Find the entry: the last function template of the code.

    Parameters
    ----------
    code
        C++ that begins with ``template``. Helper functions may stand before the entry.

    Returns
    -------
    EntryFunction

    Raises
    ------
    CodeError
        There is none of the form that jiterator takes.
    """
    return _Parser(code).entry()


class _Parser:
    def __init__(self, code: str) -> None:
        self.code = code
        self.tokens = list(self._read())
        self.partner = self._match_brackets()

    def fail(self, why: str, at: int | None = None) -> NoReturn:
        """Raise, pointing at a token by its number; None is the end of the code."""
        inside = at is not None and at < len(self.tokens)
        position = self.tokens[at].start if inside and at is not None else len(self.code.rstrip())
        raise CodeError(why, self.code, position)

    def text(self, at: int) -> str:
        """The text of a token; nothing behind the last."""
        return self.tokens[at].text if at < len(self.tokens) else ""

    def is_word(self, at: int) -> bool:
        return at < len(self.tokens) and self.tokens[at].kind == "word"

    def _read(self) -> Iterator[_Token]:
        for match in _TOKEN.finditer(self.code):
            kind, text = str(match.lastgroup), match[0]
            starts_comment = kind == "sign" and self.code.startswith("/*", match.start())
            if starts_comment or (kind == "sign" and text in {'"', "'"}):
                what = "comment" if starts_comment else "literal"
                raise CodeError(f"this {what} does not end", self.code, match.start())
            if kind not in {"space", "comment", "directive"}:
                yield _Token(kind, text, match.start())

    def _match_brackets(self) -> dict[int, int]:
        """The closing bracket of each opening one, by token numbers."""
        partner: dict[int, int] = {}
        open_: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in _CLOSING:
                open_.append(at)
            elif token.text in _CLOSING.values():
                if not open_:
                    self.fail(f"nothing is open that this {token.text!r} could close", at)
                start = open_.pop()
                if _CLOSING[self.text(start)] != token.text:
                    self.fail(f"{self.text(start)!r} is closed by {token.text!r}", at)
                partner[start] = at
        if open_:
            self.fail(f"this {self.text(open_[-1])!r} is not closed", open_[-1])
        return partner

    def entry(self) -> EntryFunction:
        start = len(self.code) - len(self.code.lstrip())
        if not self.tokens or self.text(0) != "template" or self.tokens[0].start != start:
            comment = self.code.startswith(("//", "/*"), start)
            why = (
                "a comment stands before 'template'" if comment else "'template' has to come first"
            )
            raise CodeError(f"{why}; the code begins with 'template <'", self.code, start)
        last = None
        at = 0
        while at < len(self.tokens):
            if self.text(at) == "template":
                opened, closed = at + 1, self._end_of_template(at + 1)
                if self.text(closed + 1) not in _NO_FUNCTION:
                    last = opened, closed
                at = closed
            at = self.partner.get(at, at) + 1
        if last is None:
            self.fail("none of these templates is a function")
        return self._function(*last)

    def _end_of_template(self, at: int) -> int:
        """The number of the ``>`` that ends a list of template parameters."""
        if self.text(at) != "<":
            self.fail("'<' has to follow 'template'", at)
        depth, position = 0, at
        while position < len(self.tokens):
            text = self.text(position)
            depth += (text == "<") - (text == ">")
            if depth == 0:
                if position == at + 1:
                    self.fail("the template has no parameters", position)
                return position
            position = self.partner.get(position, position) + 1
        return self.fail("the template's parameters are not ended by '>'", at)

    def _function(self, opened: int, closed: int) -> EntryFunction:
        at = closed + 1
        self._check_return_type(at)
        name, params = at + 1, at + 2
        if self.text(params) != "(":
            what = "a qualified name" if self.text(params) == "::" else repr(self.text(params))
            self.fail(f"'(' has to follow the function's name, not {what}", params)
        params_end = self.partner[params]
        if params_end == params + 1:
            self.fail("the function has no parameters", params)
        body = params_end + 1
        while self.text(body) not in {"{", ";", ""}:  # noexcept, or where the return type trails
            body = self.partner.get(body, body) + 1
        if self.text(body) != "{":
            self.fail("'{' has to follow the function's parameters", body)
        if self.partner[body] == body + 1:
            self.fail("the function's body is empty", body)
        parameters = tuple(
            self._parameter(first, end) for first, end in self._split(params + 1, params_end)
        )
        return EntryFunction(
            self.text(name), parameters, self._type_arguments(opened, closed, parameters)
        )

    def _check_return_type(self, at: int) -> None:
        if not self.is_word(at):
            self.fail("a return type of one word has to follow the template's parameters", at)
        if self.text(at) in _SPECIFIERS:
            self.fail(f"{self.text(at)!r} stands before the return type, which is one word", at)
        if self.is_word(at + 1):
            return
        follows = {
            "*": "the function returns a pointer; it has to return a value",
            "&": "the function returns a reference; it has to return a value",
            "::": "the return type is qualified; it has to be one word, 'auto' if need be",
            "<": "the return type is a template; it has to be one word, 'auto' if need be",
        }
        why = "the function's name has to follow its return type, both of one word"
        self.fail(follows.get(self.text(at + 1), why), at + 1)

    def _split(self, first: int, end: int) -> list[tuple[int, int]]:
        """The ranges of tokens between commas that no bracket encloses."""
        parts, start, depth, at = [], first, 0, first
        while at < end:
            text = self.text(at)
            depth += (text == "<") - (text == ">")
            if text == "," and depth == 0:
                parts.append((start, at))
                start = at + 1
            at = self.partner.get(at, at) + 1
        return [*parts, (start, end)]

    def _parameter(self, first: int, end: int) -> Parameter:
        if first == end:
            self.fail("a parameter is missing here", first)
        tokens = self.tokens[first:end]
        signs = [token.text for token in tokens if token.kind == "sign"]
        cut = next((n for n, token in enumerate(tokens) if token.text == "="), len(tokens))
        declared = tokens[:cut]
        return Parameter(
            words=tuple(token.text for token in declared if token.kind == "word"),
            is_reference=any(token.text == "&" for token in declared),
            is_optional="=" in signs,
            is_pack="..." in signs,
        )

    def _type_arguments(self, opened: int, closed: int, parameters: tuple[Parameter, ...]) -> int:
        mentioned = {word for parameter in parameters for word in parameter.words}
        count = 1
        for first, end in self._split(opened + 1, closed)[1:]:
            texts = [token.text for token in self.tokens[first:end]]
            is_type = texts[0] in {"class", "typename"} and len(texts) == 2
            if not is_type or texts[1] in mentioned:
                break
            count += 1
        return count
