# SPDX-License-Identifier: Apache-2.0
"""The CUDA C++ around a user's function: loads, conversions, the call, stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.cuda._jiterator_parser import EntryFunction

__all__ = ["THREADS", "Shape", "Signature", "kernel_name", "kernel_source", "launch_signature"]

THREADS = 256

_REAL = {
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
}
_COMPLEX_PARTS = {"complex32": "float16", "complex64": "float", "complex128": "double"}
_COMPUTE_PARTS = {"float16": "float", "float": "float", "double": "double"}
_EXTRAS = {bool: "int64", int: "int64", float: "double", complex: "double"}

_COMPLEX_CONVERSIONS = """\
using ::std::complex;
struct alignas(4) complex32 { float16 re, im; };
template <class T, class Part, class In> struct Lift {
  typedef typename T::value_type Real;
  static T from(In x) { return T(convert<Real>(convert<Part>(x)), Real(0)); }
};
template <class T, class Part, class R> struct Lift<T, Part, complex<R>> {
  static T from(complex<R> x) { return T(x.real(), x.imag()); }
};
template <class T, class Part> struct Lift<T, Part, complex32> {
  static T from(complex32 x) { return T(to_float(x.re), to_float(x.im)); }
};
template <class Out> struct Lower {
  template <class T> static Out from(T x) { return x; }
};
template <> struct Lower<complex32> {
  static complex32 from(complex<float> x) {
    return complex32{to_float16(x.real()), to_float16(x.imag())};
  }
};
"""

Access = Literal["vector", "flat", "strided32", "strided64"]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel is compiled for, apart from how its operands lie in memory.

    Parameters
    ----------
    inputs
        Names of the inputs' dtypes.
    common
        Name of the dtype that they promote to and the outputs have.
    extras
        The Python types of the extra arguments.
    outputs
        How many outputs there are.
    by_reference
        Whether the function takes them as references, instead of returning the only one.
    """

    inputs: tuple[str, ...]
    common: str
    extras: tuple[type, ...]
    outputs: int
    by_reference: bool

    @property
    def is_complex(self) -> bool:
        return self.common in _COMPLEX_PARTS

    @property
    def compute(self) -> str:
        """The C++ type that the function computes in."""
        if self.is_complex:
            return f"complex<{_COMPUTE_PARTS[_COMPLEX_PARTS[self.common]]}>"
        return "float" if self.common in {"float16", "bfloat16"} else _REAL[self.common]

    @property
    def vector_width(self) -> int:
        """How many neighbouring elements a thread does with one access of 16 bytes."""
        names = (self.common, *self.inputs)
        return max(1, 16 // max(_dtype.dtypes[name].itemsize for name in names))

    def check(self) -> None:
        """Refuse dtypes that kernels are not generated for, and complex extras of real ones.

        Raises
        ------
        NotImplementedError
            A dtype is not supported.
        RuntimeError
            An extra argument is complex and the inputs are not.
        """
        for name in (*self.inputs, self.common):
            if name not in _REAL and name not in _COMPLEX_PARTS:
                raise NotImplementedError(
                    f"jiterator is not implemented for torch.{name}; it is for "
                    f"{', '.join([*_REAL, *_COMPLEX_PARTS])}. Convert with .to(dtype) first."
                )
        if complex in self.extras and not self.is_complex:
            raise RuntimeError(
                f"an extra argument is complex, but the inputs are torch.{self.common}; a complex "
                "number needs complex inputs"
            )


@dataclass(frozen=True, slots=True)
class Shape:
    """How operands are reached.

    Parameters
    ----------
    access
        ``"vector"``: neighbours, several a thread. ``"flat"``: neighbours, one a thread.
        ``"strided32"`` and ``"strided64"``: by strides, with an index of so many bits.
    dims
        The most dimensions that the layout passed to a strided kernel has.
    """

    access: Access
    dims: int = 0


def cuda_type(name: str) -> str:
    """The C++ type of a dtype in memory."""
    if name in _COMPLEX_PARTS:
        return "complex32" if name == "complex32" else f"complex<{_COMPLEX_PARTS[name]}>"
    return _REAL[name]


def kernel_name(entry: EntryFunction) -> str:
    """What the kernel around a user's function is called, in messages too."""
    return f"jiterator_{entry.name}"


def launch_signature(signature: Signature, shape: Shape) -> str:
    """The letters of `Kernel` for the parameters of `kernel_source`."""
    letters = "P" * signature.outputs + "R" * len(signature.inputs)
    for kind in signature.extras:
        letters += {bool: "q", int: "q", float: "d", complex: "dd"}[kind]
    return letters + ("qB" if shape.access.startswith("strided") else "q")


def kernel_source(code: str, entry: EntryFunction, signature: Signature, shape: Shape) -> str:
    """The whole source of a kernel, in which the user's code keeps its line numbers.

    Parameters
    ----------
    code, entry
        The user's code and the function in it that is called for each element.
    signature, shape
        What to compile it for.

    Returns
    -------
    str
        CUDA C++ with the kernel of `kernel_name`. Its parameters are the pointers of outputs and
        inputs, the extras, the number of elements, and the layout if it needs one.
    """
    return "".join(
        [
            '#include "std_math.cuh"\n',
            '#include "std_complex.cuh"\n' if signature.is_complex else "",
            f'#line 1 "{entry.name}.cu"\n{code}\n',
            '#line 1 "jiterator"\nnamespace flambeau_jiterator {\n#include "types.cuh"\n',
            _COMPLEX_CONVERSIONS if signature.is_complex else "",
            *_kernel(entry, signature, shape),
            "}\n",
        ]
    )


def _kernel(entry: EntryFunction, signature: Signature, shape: Shape) -> list[str]:
    inputs, outputs = range(len(signature.inputs)), range(signature.outputs)
    lines = [f"typedef {signature.compute} T;", f"typedef {cuda_type(signature.common)} Out;"]
    if signature.is_complex:
        lines.append(f"typedef {_COMPLEX_PARTS[signature.common]} Part;")
    lines += [f"typedef {cuda_type(signature.inputs[k])} In{k};" for k in inputs]
    strided = shape.access.startswith("strided")
    if strided:
        operands = len(inputs) + len(outputs)
        dims = shape.dims
        lines.append(f"struct Dims {{ int64 ndim, sizes[{dims}], strides[{operands}][{dims}]; }};")
    parameters = [f"Out *o{k}" for k in outputs]
    parameters += [f"const In{k} *p{k}" for k in inputs]
    for k, kind in enumerate(signature.extras):
        names = [f"e{k}", f"f{k}"] if kind is complex else [f"e{k}"]
        parameters += [f"{_EXTRAS[kind]} {name}" for name in names]
    parameters.append("int64 n")
    if strided:
        parameters.append("const Dims dims")
    one = _element(entry, signature)
    lines += [
        f"__device__ inline void element({', '.join(_element_parameters(signature))}) {{",
        *(f"  {line}" for line in one),
        "}",
        f'extern "C" __global__ void __launch_bounds__({THREADS})',
        f"{kernel_name(entry)}({', '.join(parameters)}) {{",
        *(f"  {line}" for line in _body(signature, shape)),
        "}",
    ]
    return [line + "\n" for line in lines]


def _element_parameters(signature: Signature) -> list[str]:
    parameters = [f"Out &o{k}" for k in range(signature.outputs)]
    parameters += [f"const In{k} &p{k}" for k in range(len(signature.inputs))]
    kinds = {bool: "bool", int: "int64", float: "double", complex: "T"}
    return parameters + [f"{kinds[kind]} e{k}" for k, kind in enumerate(signature.extras)]


def _element(entry: EntryFunction, signature: Signature) -> list[str]:
    """The statements for one element."""
    load = (
        "Lift<T, Part, In{k}>::from(p{k})"
        if signature.is_complex
        else "convert<T>(convert<Out>(p{k}))"
    )
    lines = [f"const T a{k} = {load.format(k=k)};" for k in range(len(signature.inputs))]
    arguments = [f"a{k}" for k in range(len(signature.inputs))]
    arguments += [f"e{k}" for k in range(len(signature.extras))]
    types = ", ".join(["T"] * entry.type_arguments)
    store = "Lower<Out>::from(T({}))" if signature.is_complex else "convert<Out>({})"
    if not signature.by_reference:
        call = f"::{entry.name}<{types}>({', '.join(arguments)})"
        return [*lines, f"o0 = {store.format(call)};"]
    results = [f"r{k}" for k in range(signature.outputs)]
    lines += [f"T {', '.join(results)};"]
    lines += [f"::{entry.name}<{types}>({', '.join([*arguments, *results])});"]
    return [*lines, *(f"o{k} = {store.format(r)};" for k, r in enumerate(results))]


def _call(signature: Signature, output: str, input: str) -> str:
    """A call of ``element``; `output` and `input` are forms with ``{k}`` for the operand."""
    arguments = [output.format(k=k) for k in range(signature.outputs)]
    arguments += [input.format(k=k) for k in range(len(signature.inputs))]
    forms = {bool: "e{k} != 0", int: "e{k}", float: "e{k}", complex: "T(e{k}, f{k})"}
    arguments += [forms[kind].format(k=k) for k, kind in enumerate(signature.extras)]
    return f"element({', '.join(arguments)});"


def _body(signature: Signature, shape: Shape) -> list[str]:
    linear = "blockIdx.x * (int64)blockDim.x + threadIdx.x"
    if shape.access == "flat":
        return [
            f"const int64 i = {linear};",
            f"if (i < n) {_call(signature, 'o{k}[i]', 'p{k}[i]')}",
        ]
    if shape.access == "vector":
        return _vector_body(signature, linear)
    index = "uint32" if shape.access == "strided32" else "int64"
    operands = signature.outputs + len(signature.inputs)
    return [
        f"const int64 linear = {linear};",
        "if (linear >= n) return;",
        f"{index} i = ({index})linear, at[{operands}] = {{}};",
        "#pragma unroll 1",
        "for (int d = 0; d < dims.ndim; ++d) {",
        f"  const {index} size = ({index})dims.sizes[d], rest = i / size, here = i - rest * size;",
        "  i = rest;",
        "#pragma unroll",
        f"  for (int k = 0; k < {operands}; ++k) at[k] += here * ({index})dims.strides[k][d];",
        "}",
        _call(signature, "o{k}[at[{k}]]", f"p{{k}}[at[{signature.outputs} + {{k}}]]"),
    ]


def _vector_body(signature: Signature, linear: str) -> list[str]:
    width = signature.vector_width
    inputs, outputs = range(len(signature.inputs)), range(signature.outputs)
    return [
        f"int64 i = ({linear}) * {width};",
        f"if (i + {width} <= n) {{",
        *(
            f"  const Vector<In{k}, {width}> v{k} = *(const Vector<In{k}, {width}> *)(p{k} + i);"
            for k in inputs
        ),
        *(f"  Vector<Out, {width}> w{k};" for k in outputs),
        "#pragma unroll",
        f"  for (int j = 0; j < {width}; ++j) {_call(signature, 'w{k}.at[j]', 'v{k}.at[j]')}",
        *(f"  *(Vector<Out, {width}> *)(o{k} + i) = w{k};" for k in outputs),
        "} else {",
        "#pragma unroll 1",
        f"  for (; i < n; ++i) {_call(signature, 'o{k}[i]', 'p{k}[i]')}",
        "}",
    ]
