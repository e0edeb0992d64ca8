# SPDX-License-Identifier: Apache-2.0
"""LLVM IR to machine code, and machine code into the process."""

from __future__ import annotations

from functools import cache
from typing import Any

from flambeau.driver.errors import AcceleratorError, MissingExtraError

__all__ = ["Code", "compile_ir", "host"]

OPTIMIZATION = 1  # runs as fast as 2 and compiles faster


@cache
def binding() -> Any:
    """Llvmlite's binding, ready to compile for this machine."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise MissingExtraError(
            "virtual GPUs compile kernels with llvmlite, which is not installed; "
            "pip install 'flambeau[virtual]'"
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def host() -> tuple[str, str, str]:
    """Llvmlite's version, the CPU's name and its features: what machine code depends on."""
    import llvmlite

    llvm = binding()
    features = llvm.get_host_cpu_features().flatten()
    return llvmlite.__version__, llvm.get_host_cpu_name(), features


@cache
def target_machine() -> Any:
    """The machine that this process runs on."""
    llvm = binding()
    _, cpu, features = host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=cpu, features=features, opt=OPTIMIZATION, reloc="pic", codemodel="small"
    )


def compile_ir(text: str) -> bytes:
    """Compile IR.

    Parameters
    ----------
    text
        A module in LLVM's textual form.

    Returns
    -------
    bytes
        An object file for this machine.

    Raises
    ------
    AcceleratorError
        The text is not LLVM's (218): the PTX that it was made from was wrong.
    """
    llvm = binding()
    machine = target_machine()
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as error:  # operands that do not fit together show here at the latest
        raise AcceleratorError(f"a PTX JIT compilation failed: {error}", 218) from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


@cache
def jit() -> Any:
    """The linker of object files into this process, made once.

    JITLink lays all sections of an object in one piece of memory. The older linker maps each for
    itself, and next to the large address ranges of virtual devices they come to lie further apart
    than a relative address reaches.
    """
    return binding().create_lljit_compiler(target_machine(), use_jit_link=True)


class Code:
    """An object file that is linked into the process.

    Parameters
    ----------
    image
        The object file.
    name
        Unique in the process.
    symbols
        Functions to look up.
    helpers
        Addresses of what the code calls.
    """

    def __init__(
        self, image: bytes, name: str, symbols: list[str], helpers: dict[str, int]
    ) -> None:
        library = binding().JITLibraryBuilder()
        library.add_object_img(image)
        for helper, address in helpers.items():
            library.import_symbol(helper, address)
        for symbol in symbols:
            library.export_symbol(symbol)
        self._tracker = library.link(jit(), name)

    def address(self, symbol: str) -> int:
        """Where a function lies."""
        return int(self._tracker[symbol])

    def close(self) -> None:
        """Unload the code; nothing of it may be running."""
        self._tracker.close()
