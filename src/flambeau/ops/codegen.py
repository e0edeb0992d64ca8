# SPDX-License-Identifier: Apache-2.0
"""From rows of the tables and dtypes to CUDA C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.ops.elementwise import Row

__all__ = ["arithmetic_type", "cuda_type", "elementwise_source"]

_CUDA_TYPES = {
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "complex64": "complex64",
    "complex128": "complex128",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
}
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_SMALL_FLOATS = {"float16", "bfloat16", *FLOAT8}
CONTIGUOUS, STRIDED, STRIDED_64, INNER, TRANSPOSED = range(5)  # the layout classes


def cuda_type(code: int) -> str:
    """The C++ name of a scalar type.

    Raises
    ------
    NotImplementedError
        Kernels are not generated for it.
    """
    name = _dtype.dtype_from_code(code).name
    if name not in _CUDA_TYPES:
        legacy = _dtype.legacy_type_name(_dtype.dtypes[name])
        raise NotImplementedError(
            f"CUDA kernels are not implemented for '{legacy}' (torch.{name}); they are for "
            f"{', '.join(_CUDA_TYPES)}"
        )
    return _CUDA_TYPES[name]


def arithmetic_type(code: int) -> str:
    """The C++ type arithmetic on a scalar type is done in: float for the 16-bit floats."""
    name = cuda_type(code)
    return "float" if name in _SMALL_FLOATS else name


def includes(header: str, *codes: int) -> str:
    """The include lines of a kernel; complex scalar types need their header first."""
    complex_types = any(_dtype.dtype_from_code(code).category == 3 for code in codes)
    first = '#include "complex.cuh"\n' if complex_types else ""
    return f'{first}#include "{header}"'


# A number passed by value, by category of what is computed.
_NUMBER_TYPES = ("int64", "int64", "double", "complex128")


def result_code(row: Row, compute_type: int) -> int:
    """The scalar type that the functor's value is rounded to before it is stored."""
    if row.kind in {"compare", "bool"}:
        return _dtype.dtypes["bool"].code
    return real_code(compute_type) if row.kind in {"real", "float_real"} else compute_type


def real_code(code: int) -> int:
    """The scalar type of the parts of a complex one; any other as it is."""
    return _dtype.dtype_from_code(code).to_real().code


def elementwise_source(
    row: Row,
    in_types: Sequence[int],
    scalar_mask: int,
    out_type: int,
    compute_type: int,
    layout_class: int,
) -> str:
    """The source of one elementwise kernel, called ``kernel``.

    Parameters
    ----------
    row
        The operation.
    in_types
        Scalar type of each operand; ignored for numbers.
    scalar_mask
        Bit k is set when operand k is a number passed by value.
    out_type, compute_type
        Scalar types of the output and of the computation.
    layout_class
        0 contiguous and vectorised, 1 strided with 32-bit indices, 2 strided with 64-bit indices, 3
        vectorised along an innermost dimension, 4 transposed through shared memory.

    Returns
    -------
    str
        CUDA C++ that includes ``elementwise.cuh``.
    """
    tensors = [k for k in range(row.arity) if not scalar_mask >> k & 1]
    numbers = [k for k in range(row.arity) if scalar_mask >> k & 1]
    number_type = _NUMBER_TYPES[_dtype.dtype_from_code(compute_type).category]
    parameters = [f"{cuda_type(out_type)} *out"]
    parameters += [f"const {cuda_type(in_types[k])} *p{k}" for k in tensors]
    parameters += [f"{number_type} n{k}" for k in numbers]
    parameters += [f"{number_type} e{k}" for k in range(row.scalars)]
    parameters.append("int64 n")
    if layout_class != CONTIGUOUS:
        parameters.append("const Layout layout")
    if layout_class == CONTIGUOUS:
        body = _contiguous_body(row, tensors, in_types, out_type)
    elif layout_class == INNER:
        body = _inner_body(row, tensors, in_types, out_type)
    elif layout_class == TRANSPOSED:
        body = _transposed_body(row, tensors[0])
    else:
        body = _strided_body(row, tensors, "uint32" if layout_class == STRIDED else "int64")
    operand_names = [*"abc"[: row.arity], *(f"s{k}" for k in range(row.scalars))]
    functor = ", ".join(f"T {name}" for name in operand_names)
    # A comparison rounds a number to the tensor's dtype, so that x == 0.1 can be true in half.
    via = "convert<T>(convert<Compute>({}))" if row.kind == "compare" else "convert<T>({})"
    values = [f"const T v{k} = {via.format(f'n{k}')};" for k in numbers]
    values += [f"const T x{k} = convert<T>(e{k});" for k in range(row.scalars)]
    types = [f"typedef {cuda_type(in_types[k])} In{k};" for k in tensors]
    result = result_code(row, compute_type)
    own_result = result == compute_type or row.kind in {"compare", "bool"}
    returned = "auto" if not own_result else "bool" if result != compute_type else "T"
    codes = [out_type, compute_type, *(in_types[k] for k in tensors)]
    return "\n".join(
        [
            includes("elementwise.cuh", *codes),
            *([f'#include "{row.header}"'] if row.header else []),
            f"// {row.name}",
            f"typedef {cuda_type(compute_type)} Compute;",
            "typedef arithmetic<Compute>::type T;",
            f"typedef {cuda_type(out_type)} Out;",
            f"typedef {cuda_type(result)} Result;",
            *types,
            f"__device__ inline {returned} apply({functor}) {{",
            f"  return {row.cuda};",
            "}",
            f"FLAMBEAU_KERNEL(256) kernel({', '.join(parameters)}) {{",
            "  FLAMBEAU_GRID_WAIT();",
            *("  " + line for line in [*values, *body]),
            "}",
            "",
        ]
    )


def _call(row: Row, loaded: dict[int, str]) -> str:
    operands = [
        f"Operand<In{k}, Compute>::from({loaded[k]})" if k in loaded else f"v{k}"
        for k in range(row.arity)
    ]
    operands += [f"x{k}" for k in range(row.scalars)]
    return f"store_as<Out, Result>(apply({', '.join(operands)}))"


def _width(tensors: Sequence[int], in_types: Sequence[int], out_type: int) -> int:
    """Neighbours that one access of 16 bytes takes of the widest operand."""
    types = [out_type, *(in_types[k] for k in tensors)]
    return max(1, 16 // max(_dtype.dtype_from_code(code).itemsize for code in types))


def _contiguous_body(
    row: Row, tensors: Sequence[int], in_types: Sequence[int], out_type: int
) -> list[str]:
    width = _width(tensors, in_types, out_type)
    single = _call(row, {k: f"p{k}[i]" for k in tensors})
    if width == 1:
        return ["const int64 i = linear_thread();", f"if (i < n) out[i] = {single};"]
    vector = _call(row, {k: f"w{k}.at[j]" for k in tensors})
    return [
        f"int64 i = linear_thread() * {width};",
        f"if (i + {width} <= n) {{",
        *(
            f"  const Vector<In{k}, {width}> w{k} = *(const Vector<In{k}, {width}> *)(p{k} + i);"
            for k in tensors
        ),
        f"  Vector<Out, {width}> results;",
        "#pragma unroll",
        f"  for (int j = 0; j < {width}; ++j) results.at[j] = {vector};",
        f"  *(Vector<Out, {width}> *)(out + i) = results;",
        "} else {",
        "#pragma unroll 1",
        f"  for (; i < n; ++i) out[i] = {single};",
        "}",
    ]


def _strided_body(row: Row, tensors: Sequence[int], index: str) -> list[str]:
    count = len(tensors) + 1
    loaded = {k: f"p{k}[at[{position}]]" for position, k in enumerate(tensors, 1)}
    return [
        "const int64 i = linear_thread();",
        "if (i >= n) return;",
        f"{index} at[{count}];",
        f"offsets_at<{count}, {index}>(({index})i, layout, at);",
        f"out[at[0]] = {_call(row, loaded)};",
    ]


def _inner_body(
    row: Row, tensors: Sequence[int], in_types: Sequence[int], out_type: int
) -> list[str]:
    count, width = len(tensors) + 1, _width(tensors, in_types, out_type)
    return [
        "const uint32 i = (uint32)linear_thread();",
        f"if (i >= (uint32)(n / {width})) return;",
        f"int64 at[{count}];",
        f"inner_offsets<{count}, {width}>(i, layout, at);",
        *(
            f"const Inner<In{k}, {width}> w{k}"
            f"(p{k} + at[{position}], layout.strides[{position}][0]);"
            for position, k in enumerate(tensors, 1)
        ),
        f"Vector<Out, {width}> results;",
        "#pragma unroll",
        f"for (int j = 0; j < {width}; ++j) "
        f"results.at[j] = {_call(row, {k: f'w{k}.at(j)' for k in tensors})};",
        f"*(Vector<Out, {width}> *)(out + at[0]) = results;",
    ]


def _transposed_body(row: Row, tensor: int) -> list[str]:
    call = _call(row, {tensor: "value"})
    return [f"transposed(out, p{tensor}, layout, [&](In{tensor} value) {{ return {call}; }});"]
