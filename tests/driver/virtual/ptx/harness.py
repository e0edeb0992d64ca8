# SPDX-License-Identifier: Apache-2.0
"""Kernels on NumPy arrays: load PTX, launch through the engine, look at the outcome."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from flambeau.driver.virtual.ptx import _engine, jit
from flambeau.driver.virtual.ptx.loader import LoadedModule, load

Argument = np.ndarray | np.generic | bytes


def dimensions(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else value


class Globals:
    """Memory for module variables."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self._keep: list[np.ndarray] = []

    def allocate(self, size: int, align: int, initial: bytes) -> int:
        memory = np.zeros(size + align, np.uint8)
        self._keep.append(memory)
        base = memory.ctypes.data
        address = -(-base // align) * align
        start = address - base
        memory[start : start + len(initial)] = np.frombuffer(initial, np.uint8)
        self.ranges.append((address, address + size))
        return address


@cache
def plain_machine() -> Any:
    """A compiler that does not optimize, which takes a fifth of the time."""
    llvm = jit.binding()
    _, cpu, features = jit.host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=cpu, features=features, opt=0, reloc="pic", codemodel="small"
    )


def compile_plainly(text: str) -> bytes:
    llvm, machine = jit.binding(), plain_machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    return bytes(machine.emit_object(module))


class Module:
    """A loaded PTX module whose kernels take NumPy arrays.

    Parameters
    ----------
    ptx
        The module.
    optimized
        Whether it is compiled as usual. The cache on disk does not know the difference.
    """

    def __init__(self, ptx: str, *, optimized: bool = True) -> None:
        self.memory = Globals()
        plain = nullcontext() if optimized else patch.object(jit, "compile_ir", compile_plainly)
        with plain:
            self.loaded: LoadedModule = load(ptx, self.memory.allocate)

    def info(self, name: str) -> _engine.KernelSummary:
        return _engine.kernel_info(self.loaded.kernels[name])

    def launch(
        self,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *arguments: Argument,
        shared: int = 0,
        workers: int = 1,
        reachable: tuple[np.ndarray, ...] = (),
        **options: int,
    ) -> _engine.GridOutcome:
        """Run a kernel. Arrays are passed as pointers and may be touched, like `reachable`."""
        offsets = self.info(name).parameters
        assert len(offsets) == len(arguments)
        size = max((o + n for o, n in offsets), default=0)
        packed = bytearray(size)
        ranges = list(self.memory.ranges)
        for array in (*arguments, *reachable):
            if isinstance(array, np.ndarray):
                ranges.append((array.ctypes.data, array.ctypes.data + array.nbytes))
        for (offset, count), argument in zip(offsets, arguments, strict=True):
            data = argument
            if isinstance(argument, np.ndarray):
                data = np.uint64(argument.ctypes.data)
            raw = bytes(data) if isinstance(data, bytes) else data.tobytes()
            assert len(raw) == count, f"argument of {len(raw)} bytes where {count} are taken"
            packed[offset : offset + count] = raw
        return _engine.run_grid(
            self.loaded.kernels[name],
            dimensions(grid),
            dimensions(block),
            shared,
            bytes(packed),
            ranges,
            workers,
            **options,
        )

    def run(self, *arguments: object, **options: object) -> _engine.GridOutcome:
        """Launch, and expect a good end."""
        outcome = self.launch(*arguments, **options)  # type: ignore[arg-type]
        assert outcome.status == 0, outcome
        return outcome


_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
_KINDS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def register_type(array: np.ndarray) -> str:
    """The PTX type of a register that holds an element; 8-bit numbers sit in 16 bits."""
    return _KINDS[max(2, array.itemsize)]


def elementwise_ptx(body: str, arrays: list[np.ndarray]) -> str:
    """A kernel that runs instructions for each element: ``%d`` from ``%a``, ``%b``, ``%c``."""
    names = ["d", *"abce"[: len(arrays) - 1]]
    lines = [".reg .pred %p, %q;", ".reg .b64 %i, %o;", ".reg .b32 %t, %n, %s;"]
    parameters = ", ".join(f".param .u64 p_{name}" for name in names)
    lines += [f".reg .b64 %p_{name};" for name in names]
    lines += [f".reg .{register_type(a)} %{n};" for n, a in zip(names, arrays, strict=True)]
    lines += [
        "mov.u32 %t, %ctaid.x;",
        "mov.u32 %n, %ntid.x;",
        "mov.u32 %s, %tid.x;",
        "mad.lo.s32 %t, %t, %n, %s;",
        "cvt.u64.u32 %i, %t;",
    ]
    for name, array in zip(names, arrays, strict=True):
        lines.append(f"ld.param.u64 %p_{name}, [p_{name}];")
        lines.append(f"mad.lo.u64 %p_{name}, %i, {array.itemsize}, %p_{name};")
    for name, array in list(zip(names, arrays, strict=True))[1:]:
        lines.append(f"ld.global.{_KINDS[array.itemsize]} %{name}, [%p_{name}];")
    lines.append(body)
    lines.append(f"st.global.{_KINDS[arrays[0].itemsize]} [%p_d], %d;")
    text = "\n".join(f"\t{line}" for line in lines)
    return f"{_HEAD}.visible .entry kernel({parameters})\n{{\n{text}\n\tret;\n}}\n"


_modules: dict[str, Module] = {}


def apply(body: str, result: type | np.dtype, *arrays: np.ndarray) -> np.ndarray:
    """Run PTX instructions on arrays of one length; what ``%d`` holds for each element."""
    out = np.zeros(arrays[0].size, result)
    operands = [np.ascontiguousarray(a) for a in np.broadcast_arrays(*arrays)]
    text = elementwise_ptx(body, [out, *operands])
    module = _modules.get(text) or _modules.setdefault(text, Module(text))
    if out.size:
        module.run("kernel", out.size, 1, out, *operands)
    return out
