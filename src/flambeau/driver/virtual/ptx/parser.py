# SPDX-License-Identifier: Apache-2.0
"""Tokens to a tree: module variables, functions, nested scopes, instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from flambeau.driver.virtual.ptx.declarations import SPACES, TYPE_BYTES, DeclarationParser
from flambeau.driver.virtual.ptx.lexer import MALFORMED, TokenStream, syntax_error
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    SpecialRegister,
    Symbol,
    Variable,
    Vector,
)

__all__ = ["parse"]

_LINKAGE = frozenset({".visible", ".extern", ".weak", ".common"})
_SPECIAL = frozenset({
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid",
    "%gridid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge",
    "%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi",
    "%dynamic_smem_size", "%total_smem_size", "%is_explicit_cluster", "%envreg1", "%envreg2",
    "%clusterid",
    "%nclusterid", "%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank",
    "%aggr_smem_size", "%reserved_smem_offset_begin",
})  # fmt: skip
MOST_REGISTERS = 1 << 20  # of one declaration
_TEXTURES = frozenset({"tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"})
_NUMBER = re.compile(r"\d")


@dataclass(slots=True)
class _Scope:
    """A block in braces: names declared in it, by their unique names."""

    number: int
    names: dict[str, Register | Symbol] = field(default_factory=dict)


def parse(source: str) -> Module:
    """Parse PTX.

    Parameters
    ----------
    source
        The text of a module.

    Returns
    -------
    Module

    Raises
    ------
    AcceleratorError
        The text is malformed (218).
    """
    parser = _Parser(source)
    try:
        return parser.module()
    except MALFORMED as error:
        raise syntax_error(parser.tokens.line, "this is not PTX") from error


class _Parser(DeclarationParser):
    def __init__(self, source: str) -> None:
        super().__init__(TokenStream(source))
        self.result = Module()
        self.function: Function | None = None
        self.scopes: list[_Scope] = []
        self.scope_count = 0
        self.location = (0, 0)
        self.pending: list[tuple[Instruction, tuple[int, ...]]] = []

    # Module level

    def module(self) -> Module:
        tokens = self.tokens
        while tokens.next:
            match tokens.next:
                case ".version" | ".target" | ".address_size":
                    tokens.skip_line()
                case ".file":
                    self.file()
                case ".section":
                    tokens.take()
                    tokens.take()
                    tokens.skip_braces()
                case ".pragma" | ".alias":
                    tokens.skip_statement()
                case _:
                    self.declaration()
        return self.result

    def file(self) -> None:
        self.tokens.take()
        number = self.integer()
        self.result.files[number] = self.tokens.take().strip('"')
        while self.tokens.accept(","):
            self.integer()

    def declaration(self) -> None:
        linkage = set()
        while self.tokens.next in _LINKAGE:
            linkage.add(self.tokens.take())
        if self.tokens.next in {".entry", ".func"}:
            self.parse_function(self.tokens.take() == ".entry")
            return
        if self.tokens.next not in SPACES:
            raise syntax_error(self.tokens.line, f"unexpected {self.tokens.next!r}")
        for variable in self.variables(self.tokens.take()[1:]):
            variable.visible = bool(linkage)
            variable.external = ".extern" in linkage
            self.result.variables[variable.name] = variable

    # Functions

    def parse_function(self, is_entry: bool) -> None:
        tokens = self.tokens
        function = self.function = Function("", is_entry, tokens.line)
        self.scopes = [self.new_scope()]
        self.location = (0, 0)
        if tokens.next == "(":
            function.results = self.parameters()
        function.name = tokens.take()
        if tokens.next == "(":
            function.parameters = self.parameters()
        self.directives(function)
        known = self.result.functions.get(function.name)
        if not tokens.accept(";"):
            function.defined = True
            self.pending = []
            tokens.expect("{")
            self.block()
            self.resolve_labels(function)
        if known is None or not known.defined:
            self.result.functions[function.name] = function
        self.function = None

    def parameters(self) -> list[Variable]:
        tokens = self.tokens
        tokens.expect("(")
        found: list[Variable] = []
        offset = 0
        while not tokens.accept(")"):
            space = tokens.take()
            if space != ".param":
                raise syntax_error(tokens.line, f"parameters in {space} are not supported")
            variable = self.parameter()
            offset = -(-offset // variable.align) * variable.align
            variable.offset = offset
            offset += variable.size
            found.append(variable)
            self.scopes[0].names[variable.name] = Symbol(variable.name)
            tokens.accept(",")
        return found

    def directives(self, function: Function) -> None:
        """Performance directives between a function's head and its body."""
        tokens = self.tokens
        while tokens.next.startswith("."):
            word = tokens.take()
            if word == ".pragma":
                tokens.skip_statement()
                continue
            values = []
            while _NUMBER.match(tokens.next):
                values.append(self.integer())
                tokens.accept(",")
            if word in {".maxntid", ".reqntid"}:
                function.max_threads = 1
                for value in values:
                    function.max_threads *= value

    def new_scope(self) -> _Scope:
        self.scope_count += 1
        return _Scope(self.scope_count)

    def block(self) -> None:
        """Statements to the closing brace."""
        tokens = self.tokens
        while not tokens.accept("}"):
            match tokens.next:
                case "{":
                    tokens.take()
                    self.scopes.append(self.new_scope())
                    self.block()
                    self.scopes.pop()
                case word if word == ".reg" or word.startswith(".reg."):
                    self.registers()
                case ".loc":
                    self.location_directive()
                case ".pragma" | ".callprototype":
                    tokens.skip_statement()
                case ".local" | ".shared" | ".param" | ".global" | ".const":
                    self.local_variables()
                case ";":
                    tokens.take()
                case _:
                    self.statement()

    def location_directive(self) -> None:
        tokens = self.tokens
        line = tokens.line
        tokens.take()
        self.location = (self.integer(), self.integer())
        while tokens.next and tokens.line == line:
            tokens.take()

    def registers(self) -> None:
        tokens = self.tokens
        # `.reg.b32` without a blank is one token
        kind = tokens.take().removeprefix(".reg").removeprefix(".") or tokens.take()[1:]
        if kind in {"v2", "v4"} or kind not in TYPE_BYTES:
            raise syntax_error(tokens.line, f"registers of type .{kind} are not supported")
        while True:
            name = tokens.take()
            if tokens.accept("<"):
                for index in range(self.limited(MOST_REGISTERS)):
                    self.declare_register(f"{name}{index}", kind)
                tokens.expect(">")
            else:
                self.declare_register(name, kind)
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def declare_register(self, name: str, kind: str) -> None:
        assert self.function is not None
        scope = self.scopes[-1]
        unique = name if len(self.scopes) == 1 else f"{name}@{scope.number}"
        scope.names[name] = Register(unique)
        self.function.registers[unique] = kind

    def local_variables(self) -> None:
        assert self.function is not None
        scope = self.scopes[-1]
        for variable in self.variables(self.tokens.take()[1:]):
            unique = f"{variable.name}@{scope.number}"
            scope.names[variable.name] = Symbol(unique)
            self.function.variables[unique] = replace(variable, name=unique)

    # Statements

    def statement(self) -> None:
        assert self.function is not None
        tokens = self.tokens
        if tokens.ahead(1) == ":":
            self.label(self.function)
            return
        line = tokens.line
        guard, negated = None, False
        if tokens.accept("@"):
            negated = tokens.accept("!")
            operand = self.lookup(tokens.take())
            if not isinstance(operand, Register):
                raise syntax_error(line, "a guard must be a predicate register")
            guard = operand
        opcode, *modifiers = tokens.take().split(".")
        instruction = Instruction(
            opcode, tuple(modifiers), (), guard, negated, line, *self.location
        )
        if opcode in _TEXTURES:
            instruction.unsupported("virtual GPUs have no textures and surfaces")
        if opcode == "call":
            self.call(instruction)
        else:
            self.operands(instruction)
        self.function.body.append(instruction)

    def label(self, function: Function) -> None:
        name = self.tokens.take()
        self.tokens.take()
        unique = f"{name}@{self.scopes[-1].number}"
        if self.tokens.accept(".branchtargets"):
            function.tables[unique] = tuple(self.label_list())
            self.tokens.expect(";")
            return
        function.labels[unique] = len(function.body)

    def label_list(self) -> list[str]:
        names = [self.tokens.take()]
        while self.tokens.accept(","):
            names.append(self.tokens.take())
        return [f"{name}@{self.scopes[-1].number}" for name in names]

    def operands(self, instruction: Instruction) -> None:
        tokens = self.tokens
        if instruction.opcode in {"bra", "brx"}:
            chain = tuple(scope.number for scope in reversed(self.scopes))
            self.pending.append((instruction, chain))
        found: list[Operand | None] = []
        while not tokens.accept(";"):
            if instruction.opcode == "bra" or (instruction.opcode == "brx" and len(found) == 1):
                found.append(Label(tokens.take()))
            else:
                found.append(self.operand())
            if not tokens.accept(",") and tokens.next != ";":
                raise syntax_error(tokens.line, f"unexpected {tokens.next!r}")
        instruction.operands = tuple(found)

    def operand(self) -> Operand | None:
        tokens = self.tokens
        text = tokens.next
        if text == "[":
            return self.address()
        if text == "{":
            tokens.take()
            items = []
            while not tokens.accept("}"):
                items.append(self.operand())
                tokens.accept(",")
            return Vector(tuple(items))
        if text[0].isdigit() or text in {"-", "+"}:
            return self.number()
        if tokens.accept("!"):
            register = self.lookup(tokens.take())
            if not isinstance(register, Register):
                raise syntax_error(tokens.line, "only a predicate register can be negated")
            return Negated(register)
        value = self.lookup(tokens.take())
        if tokens.accept("|"):
            return Pair(self.destination(value), self.destination(self.lookup(tokens.take())))
        if isinstance(value, Symbol) and tokens.next in {"+", "-"}:
            return Symbol(value.name, self.integer())
        return value

    def destination(self, operand: Operand | None) -> Register | None:
        if operand is not None and not isinstance(operand, Register):
            raise syntax_error(self.tokens.line, "a destination must be a register")
        return operand

    def address(self) -> Operand:
        tokens = self.tokens
        tokens.expect("[")
        base: Register | Symbol | None = None
        offset = 0
        if not tokens.next[0].isdigit() and tokens.next not in {"-", "+"}:
            value = self.lookup(tokens.take())
            if not isinstance(value, Register | Symbol):
                raise syntax_error(tokens.line, "an address must start with a register or symbol")
            base = value
        if tokens.next not in {"]", ","}:
            offset = self.integer()
        if tokens.next != "]":
            raise syntax_error(tokens.line, "this form of address is not supported")
        tokens.expect("]")
        return Address(base, offset)

    def lookup(self, name: str) -> Register | SpecialRegister | Symbol | Immediate | None:
        if name == "_":
            return None
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        if name.partition(".")[0] in _SPECIAL:
            return SpecialRegister(name)
        if name == "WARP_SZ":
            return Immediate(32)
        if name.startswith("%"):
            raise syntax_error(self.tokens.line, f"register {name} is not declared")
        return Symbol(name)

    def call(self, instruction: Instruction) -> None:
        """``call (results), target, (arguments), prototype;``."""
        tokens = self.tokens
        if tokens.next == "(":
            instruction.results = tuple(
                r.name for r in self.call_list() if isinstance(r, Symbol | Register)
            )
            tokens.expect(",")
        instruction.target = self.lookup(tokens.take())
        if tokens.accept(",") and tokens.next == "(":
            instruction.arguments = tuple(
                a.name if isinstance(a, Symbol) else a for a in self.call_list()
            )
        tokens.skip_statement()

    def call_list(self) -> list[Operand]:
        tokens = self.tokens
        tokens.expect("(")
        found = []
        while not tokens.accept(")"):
            operand = self.operand()
            if operand is not None:
                found.append(operand)
            tokens.accept(",")
        return found

    def resolve_labels(self, function: Function) -> None:
        """Bind branch targets, which may stand before their labels, innermost scope first."""
        for instruction, chain in self.pending:
            bound: list[Operand | None] = []
            for operand in instruction.operands:
                if not isinstance(operand, Label):
                    bound.append(operand)
                    continue
                for number in chain:
                    unique = f"{operand.name}@{number}"
                    if unique in function.labels or unique in function.tables:
                        bound.append(Label(unique))
                        break
                else:
                    raise syntax_error(instruction.line, f"label {operand.name} is not declared")
            instruction.operands = tuple(bound)
