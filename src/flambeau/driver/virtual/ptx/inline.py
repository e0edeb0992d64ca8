# SPDX-License-Identifier: Apache-2.0
"""Inlining of device functions whose threads yield: only a kernel's own frame outlives a yield."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.cfg import Graph
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Function

__all__ = ["YIELDING", "Inliner"]

YIELDING = frozenset(
    {
        "bar",
        "barrier",
        "shfl",
        "vote",
        "match",
        "redux",
        "activemask",
        "mma",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
        "wmma",
        "elect",
    }
)


class Inliner:
    """Replaces calls of functions that yield by their bodies.

    Parameters
    ----------
    functions
        The module's functions, by name.
    """

    def __init__(self, functions: dict[str, Function]) -> None:
        self._functions = functions
        self._yields: dict[str, bool] = {}
        self._count = 0

    def callee(self, instruction: Instruction) -> Function | None:
        """The function that an instruction calls, if the module defines it."""
        if not isinstance(instruction.target, Symbol):
            return None
        function = self._functions.get(instruction.target.name)
        return function if function is not None and function.defined else None

    def yields(self, function: Function) -> bool:
        """Whether threads give up control in a function or in one that it calls."""
        known = self._yields.get(function.name)
        if known is None:
            self._yields[function.name] = False  # ends the recursion
            graph = Graph(function)
            known = (
                any(i.opcode in YIELDING for i in function.body)
                or any(graph.polls(loop) for loop in graph.cycles)
                or any(self.yields(f) for i in function.body if (f := self.callee(i)))
            )
            self._yields[function.name] = known
        return known

    def expand(self, function: Function, path: tuple[str, ...] = ()) -> Function:
        """The function with every call of one that yields replaced by its body."""
        path = (*path, function.name)
        result = replace(
            function,
            registers=dict(function.registers),
            variables=dict(function.variables),
            tables=dict(function.tables),
            body=[],
            labels={},
        )
        labels: dict[int, list[str]] = {}
        for name, place in function.labels.items():
            labels.setdefault(place, []).append(name)
        for place, instruction in enumerate(function.body):
            result.labels.update((name, len(result.body)) for name in labels.get(place, ()))
            callee = self.callee(instruction)
            if callee is None or not self.yields(callee):
                result.body.append(instruction)
                continue
            if callee.name in path:
                instruction.unsupported(f"{callee.name} calls itself and has barriers in it")
            self._splice(result, instruction, self.expand(callee, path))
        end = len(function.body)
        result.labels.update((name, len(result.body)) for name in labels.get(end, ()))
        return result

    def _splice(self, into: Function, call: Instruction, callee: Function) -> None:
        """Append a callee's body; its parameters are the caller's argument variables."""
        self._count += 1
        renamer = _Renamer(f"~{self._count}", callee, call)
        into.registers.update((renamer.name(n), t) for n, t in callee.registers.items())
        for name, variable in callee.variables.items():
            if variable.space != "shared":
                into.variables[renamer.name(name)] = replace(variable, name=renamer.name(name))
            else:
                into.variables[name] = variable
        into.tables.update(
            (renamer.name(n), tuple(renamer.name(t) for t in targets))
            for n, targets in callee.tables.items()
        )
        skip = renamer.name("end")
        if call.guard is not None:
            over = Label(skip)
            into.body.append(
                replace(
                    call,
                    opcode="bra",
                    modifiers=(),
                    operands=(over,),
                    target=None,
                    guard_negated=not call.guard_negated,
                    results=(),
                    arguments=(),
                )
            )
        start = len(into.body)
        into.labels.update((renamer.name(n), start + at) for n, at in callee.labels.items())
        into.body.extend(renamer.instruction(i, skip) for i in callee.body)
        into.labels[skip] = len(into.body)


class _Renamer:
    """Renames what a callee declares, and returns become branches to the end."""

    def __init__(self, suffix: str, callee: Function, call: Instruction) -> None:
        self._suffix = suffix
        arguments = [a for a in call.arguments if isinstance(a, str)]
        if len(arguments) != len(callee.parameters) or len(call.results) != len(callee.results):
            call.unsupported("arguments in registers")
        self._bound = {
            variable.name: given
            for variable, given in (
                *zip(callee.parameters, arguments, strict=True),
                *zip(callee.results, call.results, strict=True),
            )
        }
        self._own = {n for n, v in callee.variables.items() if v.space != "shared"}

    def name(self, name: str) -> str:
        """The new name of a register, label or variable of the callee."""
        return name + self._suffix

    def _symbol(self, symbol: Symbol) -> Symbol:
        if symbol.name in self._bound:
            return Symbol(self._bound[symbol.name], symbol.offset)
        if symbol.name in self._own:
            return Symbol(self.name(symbol.name), symbol.offset)
        return symbol

    def _register(self, register: Register | None) -> Register | None:
        return None if register is None else Register(self.name(register.name))

    def operand(self, operand: Operand | None) -> Operand | None:
        """An operand with new names."""
        match operand:
            case Register(name):
                return Register(self.name(name))
            case Negated(register):
                return Negated(Register(self.name(register.name)))
            case Symbol():
                return self._symbol(operand)
            case Address(Register(name), offset):
                return Address(Register(self.name(name)), offset)
            case Address(Symbol() as symbol, offset):
                return Address(self._symbol(symbol), offset)
            case Vector(items):
                return Vector(tuple(self.operand(item) for item in items))
            case Pair(first, second):
                return Pair(self._register(first), self._register(second))
            case Label(name):
                return Label(self.name(name))
        return operand

    def _argument(self, argument: str | Operand) -> str | Operand:
        if isinstance(argument, str):
            return self._symbol(Symbol(argument)).name
        renamed = self.operand(argument)
        assert renamed is not None
        return renamed

    def instruction(self, instruction: Instruction, end: str) -> Instruction:
        """A copy with new names."""
        returns = instruction.opcode == "ret"
        return replace(
            instruction,
            opcode="bra" if returns else instruction.opcode,
            modifiers=() if returns else instruction.modifiers,
            operands=((Label(end),) if returns else tuple(map(self.operand, instruction.operands))),
            guard=self._register(instruction.guard),
            results=tuple(self._symbol(Symbol(r)).name for r in instruction.results),
            arguments=tuple(map(self._argument, instruction.arguments)),
            target=self.operand(instruction.target)
            if isinstance(instruction.target, Register)
            else instruction.target,
        )
