# SPDX-License-Identifier: Apache-2.0
"""PTX text to kernels that can be launched."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import AcceleratorError
from flambeau.driver.virtual.ptx import _engine
from flambeau.driver.virtual.ptx.cache import Cache, cache_folder, key

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Module, Variable

__all__ = ["Allocate", "LoadedModule", "load"]

Allocate = Callable[[int, int, bytes], int]
_serial = itertools.count()
METADATA = (
    "!0 = !{}",
    '!1 = !{!"branch_weights", i32 100000, i32 1}',
    "!2 = distinct !{}",  # the accesses of rows of threads
    '!3 = !{!"llvm.loop.parallel_accesses", !2}',
)


@cache
def lowering_version() -> str:
    """A digest of this package's source: other code may lower the same PTX differently."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class LoadedModule:
    """A module in memory.

    Attributes
    ----------
    kernels : dict of str to int
        Addresses of the executor's kernel records, by kernel name.
    globals : dict of str to tuple of int
        Address and size in bytes of module variables that were allocated.
    """

    def __init__(
        self, kernels: dict[str, int], variables: dict[str, tuple[int, int]], code: Any
    ) -> None:
        self.kernels = kernels
        self.globals = variables
        self._code = code

    def close(self) -> None:
        """Free the code. No grid of it may be running or waiting; module variables stay."""
        kernels, self.kernels = self.kernels, {}
        for address in kernels.values():
            _engine.destroy_kernel(address)
        if self._code is not None:
            self._code.close()
            self._code = None


@dataclass(frozen=True, slots=True)
class GlobalRecord:
    """A module variable as the cache keeps it; ``initial`` in hexadecimal."""

    name: str
    align: int
    size: int
    initial: str
    patches: list[tuple[int, str, int]]


def load(ptx_text: str, allocate_global: Allocate, *, watched: bool = False) -> LoadedModule:
    """Load a PTX module (``cuModuleLoadData``).

    The compiled code is kept on disk, so that loading the same text again takes a few milliseconds.

    Parameters
    ----------
    ptx_text
        The module.
    allocate_global
        Called as ``allocate_global(size, align, initial_bytes)`` for each variable in global or
        constant memory; gives its address. The initial value may be shorter than the variable, the
        rest is zero.
    watched
        Compile code that tells a watcher of each access. It is slower, and it is another object in
        the cache.

    Returns
    -------
    LoadedModule

    Raises
    ------
    AcceleratorError
        The text is malformed (218).
    UnsupportedPtxError
        It holds an instruction that virtual GPUs do not know.
    MissingExtraError
        llvmlite is not installed.
    """
    from flambeau.driver.virtual.ptx import jit

    layout = _engine.context_layout()
    flavour = "watched" if watched else "plain"
    parts = (lowering_version(), repr(sorted(layout.items())), *jit.host(), flavour, ptx_text)
    name = key(*parts)
    store = Cache(cache_folder() / "ptx")
    entry = store.load(name)
    if entry is None:
        entry = translate(ptx_text, layout, watched=watched)
        store.store(name, *entry)
    record, image = entry
    return link(record, image, allocate_global, watched=watched)


def translate(
    ptx_text: str, layout: dict[str, int], *, watched: bool = False
) -> tuple[dict[str, Any], bytes]:
    """Parse, lower and compile: a JSON record of the module and its object code."""
    from flambeau.driver.virtual.ptx.jit import compile_ir
    from flambeau.driver.virtual.ptx.lexer import MALFORMED, syntax_error
    from flambeau.driver.virtual.ptx.parser import parse
    from flambeau.driver.virtual.ptx.program import Program

    module = parse(ptx_text)
    entries = [f for f in module.functions.values() if f.is_entry and f.defined]
    texts, kernels = [], []
    declarations: set[str] = set()
    for index, function in enumerate(entries):
        try:
            program = Program(module, function, index, layout, watched=watched)
            text, kernel = program.lower()
        except MALFORMED as error:
            raise syntax_error(function.line, f"{function.name} is not PTX") from error
        texts.append(text)
        kernels.append(asdict(kernel))
        declarations.update(program.unit.declarations.values())
    head = [*METADATA, *sorted(declarations)]
    image = compile_ir("\n".join((*head, *texts))) if texts else b""
    used = {name for kernel in kernels for name in kernel["globals"]}
    # the compiler puts its working directory in front of names that exist only in memory
    names = {n: PurePath(file).name for n, file in module.files.items()}
    files = [names.get(n, "") for n in range(max(names, default=-1) + 1)]
    record = {
        "kernels": kernels,
        "globals": [asdict(g) for g in globals_in_order(module, used)],
        "files": files,
    }
    return record, image


def globals_in_order(module: Module, used: set[str]) -> list[GlobalRecord]:
    """The variables to allocate, each behind those whose addresses its value holds."""
    ordered: dict[str, GlobalRecord] = {}

    def visit(variable: Variable, path: tuple[str, ...]) -> None:
        if variable.name in ordered or variable.name in path:
            return
        if variable.external:
            raise AcceleratorError(
                f"a PTX JIT compilation failed: the variable {variable.name} is extern, and no "
                "module defines it; define it in the same source",
                218,
            )
        initial, patches = bytearray(variable.initial), []
        for offset, symbol, addend in variable.patches:
            if symbol in module.variables:
                visit(module.variables[symbol], (*path, variable.name))
            if symbol in module.functions:
                address = module.function_address(symbol)
                initial[offset : offset + 8] = address.to_bytes(8, "little")
            else:
                patches.append((offset, symbol, addend))
        ordered[variable.name] = GlobalRecord(
            variable.name, variable.align, variable.size, initial.hex(), patches
        )

    for variable in module.variables.values():
        wanted = (variable.visible and not variable.external) or variable.name in used
        if variable.space in {"global", "const"} and wanted:
            visit(variable, ())
    return list(ordered.values())


def allocate(
    records: list[dict[str, Any]], allocate_global: Allocate
) -> dict[str, tuple[int, int]]:
    """Allocate module variables with their initial values."""
    places: dict[str, tuple[int, int]] = {}
    for fields in records:
        variable = GlobalRecord(**fields)
        data = bytearray.fromhex(variable.initial)
        for offset, symbol, addend in variable.patches:
            if symbol not in places:
                raise NotImplementedError(
                    f"the initial value of {variable.name} holds the address of {symbol}, which "
                    "virtual GPUs cannot resolve: it refers back to the variable"
                )
            address = places[symbol][0] + addend
            data[offset : offset + 8] = address.to_bytes(8, "little")
        size = max(variable.size, 1)
        places[variable.name] = (allocate_global(size, variable.align, bytes(data)), variable.size)
    return places


def link(
    record: dict[str, Any], image: bytes, allocate_global: Allocate, *, watched: bool = False
) -> LoadedModule:
    """Put compiled code and variables into the process."""
    from flambeau.driver.virtual.ptx.jit import Code

    places = allocate(record["globals"], allocate_global)
    if not record["kernels"]:
        return LoadedModule({}, places, None)
    symbols = [kernel["symbol"] for kernel in record["kernels"]]
    code = Code(image, f"module{next(_serial)}", symbols, _engine.helper_symbols())
    kernels = {}
    for kernel in record["kernels"]:
        address = code.address(kernel["symbol"])
        yields = kernel["yields"]
        kernels[kernel["name"]] = _engine.create_kernel(
            name=kernel["name"],
            run_address=0 if yields else address,
            step_address=address if yields else 0,
            parameters=kernel["parameters"],
            sites=kernel["sites"],
            files=record["files"],
            globals=[places[name][0] for name in kernel["globals"]],
            static_shared=kernel["static_shared"],
            local_bytes=kernel["local_bytes"],
            max_threads=kernel["max_threads"],
            registers=kernel["registers"],
            frame_bytes=kernel["frame_bytes"],
            in_order=kernel["in_order"],
            uses_clock=kernel["uses_clock"],
            global_bytes=kernel["global_bytes"],
            operations=kernel["operations"],
            watched=watched,
        )
    return LoadedModule(kernels, places, code)
