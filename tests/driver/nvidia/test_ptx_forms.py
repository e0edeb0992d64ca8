# SPDX-License-Identifier: Apache-2.0
"""The tables of PTX forms on a GPU: the references that virtual GPUs are held to are true of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cuda.bindings import driver as cuda

from driver.virtual.ptx.forms_block import (
    PARAMETER,
    THREADS,
    WORDS,
    disagreement,
    kernel,
    most_outputs,
)
from driver.virtual.ptx.forms_block_inputs import inputs_for
from driver.virtual.ptx.forms_block_table import families
from driver.virtual.ptx.forms_element import (
    HEAD,
    ROW,
    disagreements,
    entry,
    group_name,
    groups,
    operands_of,
    storage,
)
from driver.virtual.ptx.reference import BF16, F64, FORMATS, Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.virtual.ptx.forms import Form

pytestmark = pytest.mark.gpu
KERNELS_OF_FORMS = 64  # in one module: a form that the assembler refuses is found among these


def checked(result: tuple) -> object:
    status, *values = result
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(status))
    return values[0] if values else None


@pytest.fixture(scope="module", autouse=True)
def context() -> Iterator[None]:
    checked(cuda.cuInit(0))
    device = checked(cuda.cuDeviceGet(0))
    checked(cuda.cuCtxSetCurrent(checked(cuda.cuDevicePrimaryCtxRetain(device))))
    yield
    checked(cuda.cuDevicePrimaryCtxRelease(device))


class Assembled:
    """A module on the GPU whose kernels take NumPy arrays.

    Parameters
    ----------
    ptx
        The module; what the assembler says about it is in the error.
    """

    def __init__(self, ptx: str) -> None:
        log = b" " * 4000
        option = cuda.CUjit_option
        names = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        status, self._module = cuda.cuModuleLoadDataEx(ptx.encode(), 2, names, [log, len(log)])
        if status != cuda.CUresult.CUDA_SUCCESS:
            said = log.rstrip(b"\0 ").decode(errors="replace")
            raise ValueError(f"{status!s}: {said[:600]}")

    def run(self, name: str, grid: int, block: int, *arguments: np.ndarray | bytes) -> None:
        """Launch and copy all arrays back."""
        function = checked(cuda.cuModuleGetFunction(self._module, name.encode()))
        places, packed = {}, []
        for n, argument in enumerate(arguments):
            if isinstance(argument, bytes):
                packed.append(np.frombuffer(argument, np.uint8))
                continue
            places[n] = checked(cuda.cuMemAlloc(argument.nbytes))
            checked(cuda.cuMemcpyHtoD(places[n], argument.ctypes.data, argument.nbytes))
            packed.append(np.array([int(places[n])], np.uint64))
        pointers = np.array([p.ctypes.data for p in packed], np.uint64)
        checked(
            cuda.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, 0, pointers.ctypes.data, 0)
        )
        checked(cuda.cuCtxSynchronize())
        for n, place in places.items():
            array = arguments[n]
            assert isinstance(array, np.ndarray)
            checked(cuda.cuMemcpyDtoH(array.ctypes.data, place, array.nbytes))
            checked(cuda.cuMemFree(place))

    def close(self) -> None:
        checked(cuda.cuModuleUnload(self._module))


def assemble(text_of, forms: list) -> tuple[Assembled | None, list, list[str]]:
    """A module of all forms that the assembler takes, and what it says about the others."""
    try:
        return Assembled(text_of(forms)), forms, []
    except ValueError:
        good, bad = [], []
        for form in forms:
            try:
                Assembled(text_of([form])).close()
            except ValueError as error:
                bad.append(f"{form.text} is refused: {error}")
            else:
                good.append(form)
        return Assembled(text_of(good)) if good else None, good, bad


@pytest.mark.parametrize("family", families())
def test_forms_of_blocks(family):
    every = [form for form in families()[family] if form.hardware]
    wrong = []
    for start in range(0, len(every), KERNELS_OF_FORMS):
        module, forms, refused = assemble(kernel, every[start : start + KERNELS_OF_FORMS])
        wrong += refused
        if module is None:
            continue
        most = most_outputs(forms)
        words = inputs_for(family, 1)
        out = np.zeros((len(forms), THREADS, most), np.uint32)
        own = np.zeros((THREADS, WORDS), np.uint32)
        module.run("forms", 1, THREADS, words, out, own, PARAMETER)
        module.close()
        for form, got in zip(forms, out, strict=True):
            wrong.append(disagreement(form, words, got[:, : form.outputs]))
    assert not any(wrong), "\n".join(filter(None, wrong))


def left_open(form: Form, operands: tuple[int, ...], got: int, wanted: int) -> bool:
    """Whether PTX lets a GPU give something else than the reference.

    That is: any bits of a NaN; bit fields, and numbers of bits to find, past 255; subnormal
    numbers in sums that are made in global memory; and approximations.
    """
    opcode = form.text.split(".")[0]
    if opcode in {"bfe", "bfi", "fns"}:
        return max(operands[-1:] if opcode == "fns" else operands[-2:]) > 255
    kind = "f32" if form.result == "tf32" else form.result
    single = kind.removesuffix("x2")
    if single not in FORMATS:
        return False
    number = FORMATS[single]
    if opcode in {"atom", "red"}:
        values = (*operands, got, wanted, got ^ operands[0], wanted ^ operands[0])
        return "shared" not in form.text and any(map(number.is_subnormal, values))
    if kind.endswith("x2"):
        pairs = [(got >> n & 0xFFFF, wanted >> n & 0xFFFF) for n in (0, 16)]
    else:
        pairs = [(got, wanted)]
    approximate = not {"approx", "full"}.isdisjoint(form.text.split("."))
    return all(
        g == w
        or (number.is_nan(g) and number.is_nan(w))
        or (approximate and near(form, number, operands, g, w))
        for g, w in pairs
    )


def near(form: Form, number: Format, operands: tuple[int, ...], got: int, wanted: int) -> bool:
    """Whether an approximation is as good as PTX says, where it says something."""
    x = [number.number(bits) for bits in operands]
    opcode = form.text.split(".")[0]
    if opcode in {"sin", "cos"} and abs(x[0]) > math.pi:
        return True
    if opcode == "div" and abs(x[1]) > 2.0**126:
        return True
    if number is F64:  # which look at the upper half alone
        return number.is_nan(operands[0])
    if opcode in {"sin", "cos", "lg2"} or number.bits == 16 or opcode == "tanh":
        bits = {16: 7 if number is BF16 else 9}.get(number.bits, 10 if opcode == "tanh" else 19)
        size = abs(number.number(wanted))
        return abs(number.number(got) - number.number(wanted)) <= max(1, size) * 2.0**-bits
    return abs(got - wanted) <= 2


@pytest.mark.parametrize("signature", groups(), ids=group_name)
def test_forms_of_elements(signature):
    result, sources, _ = signature
    rows = operands_of(sources)
    arrays = [
        np.array(column, f"u{storage(kind)}")
        for column, kind in zip(zip(*rows, strict=True), sources, strict=True)
    ]
    module, forms, wrong = assemble(lambda some: HEAD + entry(signature, some), groups()[signature])
    assert module is not None, "\n".join(wrong)
    out = np.zeros((len(forms), len(rows)), f"u{storage(result)}")
    module.run(group_name(signature), len(rows) // ROW, ROW, out, *arrays)
    module.close()
    wrong += disagreements(signature, forms, rows, out, left_open)
    assert not wrong, "\n".join(wrong)
