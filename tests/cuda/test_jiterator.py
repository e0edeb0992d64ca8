# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.cuda import _jiterator_launch
from support import TWO_VIRTUAL, run_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

create = torch.cuda.jiterator._create_jit_fn
create_multi = torch.cuda.jiterator._create_multi_output_jit_fn

SCALE = "template <typename T> T scale(T x, T a) { return x * a; }"
ADD = "template <typename T> T add(T x, T y) { return x + y; }"
REALS = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def cuda(values: Any, dtype: Any = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="cuda")


def of_type(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


# --- dtypes and extras -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REALS, "uint16", "uint32", "uint64"])
def test_each_dtype_gives_its_own(gpu: Any, name: str) -> None:
    x = torch.tensor([0, 1, 2, 3, 60]).to(of_type(name)).to(gpu)
    result = create(SCALE, a=1)(x, a=2)
    assert result.dtype == of_type(name)
    assert result.device == gpu
    assert result.tolist() == [0, 2, 4, 6, 120]


def test_bool_computes_in_bool(gpu: Any) -> None:
    result = create(SCALE, a=1)(cuda([True, False]))
    assert result.dtype == torch.bool
    assert result.tolist() == [True, False]


@pytest.mark.parametrize("name", ["complex32", "complex64", "complex128"])
def test_complex_numbers(gpu: Any, name: str) -> None:
    x = torch.tensor([1 + 2j, -3j, 0], dtype=of_type(name), device=gpu)
    scale = create(SCALE, a=1)
    assert scale(x, a=2).dtype == of_type(name)
    assert scale(x, a=2).tolist() == [2 + 4j, -6j, 0]
    assert scale(x, a=1j).tolist() == [-2 + 1j, 3, 0]
    assert scale(x, a=0.5).tolist() == [0.5 + 1j, -1.5j, 0]


def test_std_functions_of_complex_numbers(gpu: Any) -> None:
    code = """template <typename T> T k(T x) {
      return std::exp(x) / std::abs(x) + std::conj(std::sqrt(x)) * 2 - T(x.imag(), std::arg(x));
    }"""
    z = np.array([1 + 2j, -0.5 + 0.25j, 3 - 1j])
    want = np.exp(z) / np.abs(z) + 2 * np.conj(np.sqrt(z)) - (z.imag + 1j * np.angle(z))
    np.testing.assert_allclose(create(code)(torch.from_numpy(z).to(gpu)).cpu().numpy(), want)


FUNCTIONS = {
    "exp": np.exp, "log": np.log, "log10": np.log10, "log2": np.log2, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "conj": np.conj, "abs": np.abs, "arg": np.angle,
    "real": np.real, "imag": np.imag, "norm": lambda z: np.abs(z) ** 2,
    "polar(x.real() * 0 + 1.5).real() *": lambda z: 1.5 * z,
}  # fmt: skip


@pytest.mark.parametrize(("name", "tolerance"), [("complex64", 5e-6), ("complex128", 1e-14)])
@pytest.mark.parametrize("first", range(0, len(FUNCTIONS), 8))
def test_every_function_of_complex_numbers(
    gpu: Any, name: str, tolerance: float, first: int
) -> None:
    chosen = dict(list(FUNCTIONS.items())[first : first + 8])
    outputs = ", ".join(f"T& o{k}" for k in range(len(chosen)))
    body = " ".join(f"o{k} = std::{function}(x);" for k, function in enumerate(chosen))
    rng = np.random.default_rng(3)
    z = (2 * rng.normal(size=400) + 2j * rng.normal(size=400)).astype(name)
    code = f"template <typename T> void k(T x, {outputs}) {{ {body} }}"
    results = create_multi(code, len(chosen))(torch.from_numpy(z).to(gpu))
    for result, function in zip(results, chosen.values(), strict=True):
        want = function(z.astype("complex128"))
        apart = np.abs(result.cpu().numpy() - want) / (1 + np.abs(want))
        assert apart.max() < tolerance, function


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_arithmetic_of_complex_numbers(gpu: Any, dtype: str) -> None:
    code = """template <typename T> void k(T x, T y, T& a, T& b, T& c, T& d) {
      a = x * y + 2 - y / 3.0 + 1 / x;  b = x;  b /= y;  b += 1;  b *= x;  b -= y;
      c = std::pow(x, y) + std::pow(x, 2);  d = T(x == y, -x != +y);
    }"""
    x = np.array([1 + 2j, 1e-3 - 1j, 2, -1j, 3e30 + 3e30j], dtype)
    y = np.array([1 - 1j, 2, 2, 0.5j, 1e30 + 2e30j], dtype)
    a, b, c, d = create_multi(code, 4)(torch.from_numpy(x).to(gpu), torch.from_numpy(y).to(gpu))
    u, v = x[:4].astype("complex128"), y[:4].astype("complex128")
    rtol = 2e-6 if dtype == "complex64" else 1e-13
    np.testing.assert_allclose(a.cpu().numpy()[:4], u * v + 2 - v / 3 + 1 / u, rtol, rtol)
    np.testing.assert_allclose(b.cpu().numpy()[:4], (u / v + 1) * u - v, rtol, rtol)
    np.testing.assert_allclose(c.cpu().numpy()[:4], u**v + u**2, rtol, rtol)
    assert d.tolist() == [1j, 1j, 1 + 1j, 1j, 1j]
    quotient = create("template <typename T> T k(T x, T y) { return x / y; }")
    large = quotient(torch.from_numpy(x).to(gpu), torch.from_numpy(y).to(gpu))[4].item()
    assert large == pytest.approx(1.8 - 0.6j, rel=1e-6)


def test_a_complex_extra_needs_complex_inputs(gpu: Any) -> None:
    with pytest.raises(RuntimeError, match="an extra argument is complex"):
        create(SCALE, a=1)(cuda([1.0]), a=1j)


def test_half_types_compute_in_float(gpu: Any) -> None:
    code = "template <typename T> T k(T x) { return sizeof(T) + (x + 10000.0f) - 10000.0f; }"
    for dtype in (torch.float16, torch.bfloat16):
        assert create(code)(cuda([0.5], dtype)).item() == 4.5


def test_an_extra_takes_the_type_of_its_parameter(gpu: Any) -> None:
    scale = create(SCALE, a=1)
    assert scale(cuda([1, 2, 3]), a=1.5).tolist() == [1, 2, 3]
    assert scale(cuda([1.0, 2.0]), a=1.5).tolist() == [1.5, 3]
    assert scale(cuda([1.0, 2.0]), a=True).tolist() == [1, 2]
    wide = create("template <typename T> T k(T x, double a) { return x * a; }", a=0.0)
    assert wide(cuda([1, 2, 3]), a=1.5).tolist() == [1, 3, 4]


def test_the_type_of_an_extra_is_that_of_the_python_number(gpu: Any) -> None:
    size = create("template <typename T, typename U> T k(T x, U a) { return sizeof(a); }", a=0)
    x = cuda([0])
    assert [size(x, a=a).item() for a in (1, 1.0, True)] == [8, 8, 1]
    half = create("template <typename T, typename U> T k(T x, U a) { return x * (a / 2); }", a=1)
    assert half(cuda([8.0])).item() == 0
    assert half(cuda([8.0]), a=1.0).item() == 4


def test_extras_follow_the_inputs_as_declared(gpu: Any) -> None:
    code = "template <typename T> T k(T x, T y, T a, T b) { return 1000*x + 100*y + 10*a + b; }"
    function = create(code, a=3, b=4)
    assert function(cuda([1]), cuda([2])).item() == 1234
    assert function(cuda([1]), cuda([2]), b=6, a=5).item() == 1256
    assert create(code, b=3, a=4)(cuda([1]), cuda([2]), a=9).item() == 1239


@pytest.mark.parametrize("value", [np.float64(2.5), np.float32(2.5), torch.tensor(2.5)])
def test_numbers_of_other_libraries_and_tensors_of_one_element(gpu: Any, value: Any) -> None:
    scale = create(SCALE, a=1)
    assert scale(cuda([2.0]), a=value).item() == 5
    assert scale(cuda([2.0]), a=cuda(2.5)).item() == 5
    assert scale(cuda([2]), a=np.int32(3)).item() == 6


def test_large_ints_arrive_whole(gpu: Any) -> None:
    scale = create(SCALE, a=1)
    assert scale(cuda([1]), a=2**62 + 1).item() == 2**62 + 1
    assert scale(cuda([1]), a=-(2**63)).item() == -(2**63)
    with pytest.raises(OverflowError, match="extra argument a has 64 bits"):
        scale(cuda([1]), a=2**63)


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("int32", "int64", "int64"),
        ("uint8", "int8", "int16"),
        ("int64", "float16", "float16"),
        ("float16", "bfloat16", "float32"),
        ("float32", "complex32", "complex64"),
        ("bool", "float64", "float64"),
        ("bool", "complex64", "complex64"),
    ],
)
def test_inputs_promote_to_a_common_dtype(gpu: Any, a: str, b: str, common: str) -> None:
    x, y = (torch.tensor([1, 0, 1]).to(of_type(name)).to(gpu) for name in (a, b))
    for result in (create(ADD)(x, y), create(ADD)(y, x)):
        assert result.dtype == of_type(common)
        assert result.tolist() == [2, 0, 2]


def test_a_zero_dimensional_input_does_not_widen(gpu: Any) -> None:
    result = create(ADD)(cuda([1, 2], torch.float16), cuda(0.5, torch.float64))
    assert result.dtype == torch.float16
    assert result.tolist() == [1.5, 2.5]


def test_unsupported_dtypes_are_named(gpu: Any) -> None:
    x = torch.zeros(2, dtype=torch.float8_e4m3fn, device=gpu)
    with pytest.raises(NotImplementedError, match=r"not implemented for torch\.float8_e4m3fn"):
        create(ADD)(x, x)


# --- shapes and layouts ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 4, 255, 256, 1025])
def test_any_number_of_elements(gpu: Any, count: int) -> None:
    x = torch.arange(count, dtype=torch.float32, device=gpu)
    assert torch.equal(create(SCALE, a=3)(x), x * 3)


def test_broadcasting(gpu: Any) -> None:
    x, y = cuda([[1], [2], [3]]), cuda([10, 20])
    assert create(ADD)(x, y).tolist() == [[11, 21], [12, 22], [13, 23]]
    assert create(ADD)(cuda(5), y).tolist() == [15, 25]
    assert create(ADD)(cuda(5), cuda(6)).shape == ()
    assert create(ADD)(x[:0], y).shape == (0, 2)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        create(ADD)(cuda([1, 2]), cuda([1, 2, 3]))


def test_misaligned_and_strided_inputs(gpu: Any) -> None:
    x = torch.arange(40, dtype=torch.float32, device=gpu)
    scale = create(SCALE, a=2)
    for view in (x[1:], x[::3], x[3:23].view(4, 5).t(), x.view(5, 8)[:, 2:5], x[:4].expand(3, 4)):
        result = scale(view)
        assert torch.equal(result, view * 2)


def test_the_order_in_memory_is_kept(gpu: Any) -> None:
    x = torch.arange(120, dtype=torch.float32, device=gpu).view(2, 3, 4, 5)
    channels_last = x.contiguous(memory_format=torch.channels_last)
    for view in (channels_last, x.permute(3, 1, 0, 2), x.transpose(0, 3)):
        result = create(SCALE, a=2)(view)
        assert result.stride() == view.stride()
        assert torch.equal(result, view * 2)
    mixed = create(ADD)(channels_last, cuda([[[1.0]], [[2.0]], [[3.0]]]))
    assert mixed.stride() == channels_last.stride()


def test_order_of_dims_by_the_first_operand_that_tells() -> None:
    order = _jiterator_launch.order_of_dims
    assert order((2, 3, 4), [(12, 4, 1)]) == [2, 1, 0]
    assert order((2, 3, 4), [(1, 2, 6)]) == [0, 1, 2]
    assert order((2, 3), [(0, 1), (1, 2)]) == [0, 1]
    assert order((2, 3), [(0, 0)]) == [1, 0]


@st.composite
def operand(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array that broadcasts to a shape: sliced, transposed or expanded."""
    own = [size if draw(st.booleans()) else 1 for size in shape]
    own = own[draw(st.integers(0, len(own))) :]
    order = draw(st.permutations(range(len(own))))
    steps = [draw(st.integers(1, 2)) for _ in own]
    base = np.arange(
        int(np.prod([own[d] * steps[d] for d in order], dtype=int)), dtype=np.float64
    ).reshape([own[d] * steps[d] for d in order])
    sliced = base[tuple(slice(None, None, steps[d]) for d in order)]
    return sliced.transpose([order.index(d) for d in range(len(own))])


def on_gpu(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The array on the GPU with its strides."""
    base = array
    while base.base is not None:
        base = base.base
    flat = torch.from_numpy(base.reshape(-1).copy()).cuda()
    return flat.as_strided(array.shape, [step // 8 for step in array.strides])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(0, 4), max_size=5).map(tuple))
def test_as_numpy_for_any_layout(data: st.DataObject, shape: tuple[int, ...]) -> None:
    a, b = data.draw(operand(shape)), data.draw(operand(shape))
    code = (
        "template <typename T> void k(T x, T y, T& sum, T& product) { sum = x + y; product = x*y; }"
    )
    total, product = create_multi(code, 2)(on_gpu(a), on_gpu(b))
    np.testing.assert_array_equal(total.cpu().numpy(), a + b)
    np.testing.assert_array_equal(product.cpu().numpy(), a * b)


# --- many operands -----------------------------------------------------------------------------


def test_8_inputs_and_8_outputs(gpu: Any) -> None:
    inputs = ", ".join(f"T x{k}" for k in range(8))
    outputs = ", ".join(f"T& o{k}" for k in range(8))
    body = " ".join(f"o{k} = x{k} * 2 + x{7 - k} + a;" for k in range(8))
    function = create_multi(
        f"template <typename T> void k({inputs}, T a, {outputs}) {{ {body} }}", 8, a=0
    )
    x = [torch.arange(5, device=gpu) + 10 * k for k in range(8)]
    for view in (x, [v[::2] for v in x]):
        results = function(*view, a=1)
        assert isinstance(results, tuple)
        for k, result in enumerate(results):
            assert torch.equal(result, view[k] * 2 + view[7 - k] + 1)


def test_9_of_each_are_refused(gpu: Any) -> None:
    x = [cuda([1])] * 9
    names = ", ".join(f"T x{k}" for k in range(9))
    nine = create(f"template <typename T> T k({names}) {{ return x0; }}")
    with pytest.raises(
        AssertionError, match="jiterator only supports up to 8 tensor inputs, got 9"
    ):
        nine(*x)
    references = ", ".join(f"T& o{k}" for k in range(9))
    many = create_multi(f"template <typename T> void k(T x, {references}) {{ o0 = x; }}", 9)
    with pytest.raises(AssertionError, match="jiterator only supports 1 to 8 outputs, got 9"):
        many(x[0])


def test_one_output_by_reference_is_a_bare_tensor(gpu: Any) -> None:
    function = create_multi("template <typename T> void k(T x, T& out) { out = x + 1; }", 1)
    assert function(cuda([1, 2])).tolist() == [2, 3]


# --- the code ----------------------------------------------------------------------------------


def test_helpers_and_what_is_predefined(gpu: Any) -> None:
    code = """template <typename T> T clip(T x, T low) { return ::max(x, low); }
    static inline int64_t twice(int64_t x) { return 2 * x; }
    template <typename T> T k(T x) {
      T y = clip<T>(x, T(0)) + std::sqrt(x * x) + T(twice(3));
      return isnan(NAN) && INFINITY > y && NEG_INFINITY < y ? y : POS_INFINITY;
    }"""
    assert create(code)(cuda([-1.0, 2.0])).tolist() == [7, 10]


def test_names_of_the_frame_are_free_for_users(gpu: Any) -> None:
    code = """template <typename T> T convert(T x) { return x + 1; }
    struct Vector { int n; }; typedef int In0; typedef float Out; struct Dims {};
    template <typename T> T element(T n) { Vector v = {2}; return convert<T>(n) * v.n; }"""
    assert create(code)(cuda([1, 2, 3])[::2]).tolist() == [4, 8]


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("template <typename T> bool k(T x) { return x > 1; }", [0, 1]),
        ("template <typename T> int k(T x) { return 1.9; }", [1, 1]),
        ("template <typename T> auto k(T x) { return x * 0.5; }", [0.5, 1]),
        ("template <typename T, typename Unused> T k(T x) { return x; }", [1, 2]),
        ("template <class T> T k(T x, T unused = T(3)) { return x; }", [1, 2]),
    ],
)
def test_return_types_and_unused_parameters(gpu: Any, code: str, wanted: list[float]) -> None:
    assert create(code)(cuda([1.0, 2.0])).tolist() == wanted


def test_code_that_does_not_parse_is_refused_when_made() -> None:
    with pytest.raises(Exception, match="Couldn't parse code, please check correctness"):
        create("__global__ void k(float* x) {}")
    with pytest.raises(torch.cuda.jiterator.CodeError, match="line 1, column 24"):
        create("template <typename T> T* k(T x) { return &x; }")


def test_what_does_not_compile_is_shown_in_the_user_s_own_lines(gpu: Any) -> None:
    code = "template <typename T> T broken(T x) {\n  T y = x;\n  return y + missing;\n}"
    function = create(code)
    with pytest.raises(RuntimeError, match='missing" is undefined') as caught:
        function(cuda([1.0]))
    text = str(caught.value)
    assert 'broken.cu(3): error: identifier "missing" is undefined' in text
    assert "   3 |   return y + missing;" in text
    assert "T = float" in text
    assert "flambeau_jiterator" not in text


FAULT = """
f = torch.cuda.jiterator._create_jit_fn('''template <typename T> T astray(T x) {
  const T* nowhere = (const T*)(int64_t(x) * 4096);
  return *nowhere + x;
}''')
f(torch.ones(3, device="cuda"))
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
"""


def test_a_fault_names_the_line_of_the_user_s_code() -> None:
    said = run_script(FAULT, TWO_VIRTUAL).stdout
    assert "illegal memory access" in said
    assert "Kernel jiterator_astray failed" in said
    assert "astray.cu:3" in said


def test_code_may_fit_some_types_only(gpu: Any) -> None:
    function = create("template <typename T> T k(T x) { return x % T(3); }")
    with pytest.raises(RuntimeError, match=r"k\.cu\(1\): error"):
        function(cuda([1.0]))
    assert function(cuda([4])).item() == 1


# --- arguments ---------------------------------------------------------------------------------


def test_an_unknown_extra(gpu: Any) -> None:
    function = create(SCALE, a=1)
    for kind in (KeyError, TypeError):
        with pytest.raises(kind, match="b is not declared in function definition"):
            function(cuda([1]), b=2)


def test_an_extra_that_is_no_number(gpu: Any) -> None:
    function = create(SCALE, a=1)
    for value in ("1", None, [1], cuda([1, 2])):
        with pytest.raises(TypeError, match="extra argument a"):
            function(cuda([1]), a=value)


def test_inputs_that_are_no_tensors(gpu: Any) -> None:
    function = create(ADD)
    for kind in (RuntimeError, TypeError):
        with pytest.raises(kind, match="1 of input tensors tuple is not a Tensor"):
            function(cuda([1]), 2)
    with pytest.raises(RuntimeError, match="without an input tensor"):
        function()


def test_host_tensors_get_a_sentence(gpu: Any) -> None:
    function = create("template <typename T> T twice(T x) { return x + x; }")
    with pytest.raises(RuntimeError, match=r"on cpu.*CUDA"):
        function(torch.ones(3))
    assert function(torch.ones(3, device=gpu)).tolist() == [2, 2, 2]


def test_devices_must_agree(gpus: Callable[[int], list[Any]]) -> None:
    first, second = (torch.ones(2, device=device) for device in gpus(2))
    function = create(ADD)
    for other in (second, torch.ones(2), torch.tensor(1.0)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            function(first, other)
    result = function(second, second)
    assert result.device == second.device
    assert result.tolist() == [2, 2]
    assert torch.cuda.current_device() == 0


def test_the_number_of_arguments_is_checked(gpu: Any) -> None:
    with pytest.raises(RuntimeError, match="add has 2 parameters and was called with 1 inputs"):
        create(ADD)(cuda([1]))
    function = create_multi("template <typename T> void k(T x, T& a, T b) { a = x; }", 2)
    with pytest.raises(RuntimeError, match="have to be references"):
        function(cuda([1]))
    with pytest.raises(AssertionError, match="Return by value only works for single output"):
        torch.cuda.jiterator._JittedFunction(ADD, False, 2)


def test_it_runs_on_the_current_stream(gpu: Any, schedule: str) -> None:
    stream, x = torch.cuda.Stream(), cuda([1.0, 2.0])
    scale = create(SCALE, a=2)
    scale(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = scale(scale(x))
        done = stream.record_event()
    done.synchronize()
    assert y.tolist() == [4, 8]


# --- availability and the cache ----------------------------------------------------------------


def test_availability_is_asked_at_the_call() -> None:
    done = run_script(
        """
        f = torch.cuda.jiterator._create_jit_fn("template <typename T> T k(T x) { return x; }")
        for kind in (AssertionError, RuntimeError):
            try:
                f(torch.ones(2))
            except kind as error:
                assert "Jiterator is only supported on CUDA" in str(error), error
            else:
                raise SystemExit("no error")
        assert not torch.cuda.is_initialized()
        """,
        {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0


CACHED = """
from flambeau.kernels import compile
def refuse(*args):
    raise SystemExit("compiled again")
if {again}:
    compile._compile = refuse
f = torch.cuda.jiterator._create_jit_fn("template <typename T> T k(T x) {{ return x + T({number}); }}")
assert f(torch.ones(3, device="cuda")).tolist() == [{number} + 1.0] * 3
"""  # noqa: E501


def test_a_second_process_finds_the_kernel_on_disk(tmp_path: Path) -> None:
    environment = {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    run_script(CACHED.format(again=False, number=5), environment)
    run_script(CACHED.format(again=True, number=5), environment)


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="needs a folder nobody can write")
def test_a_folder_that_cannot_be_written_costs_one_warning() -> None:
    done = run_script(
        "import warnings\nwarnings.simplefilter('always')\n" + CACHED.format(again=False, number=6),
        {"FLAMBEAU_CACHE_DIR": "/proc/self/nowhere"},
    )
    assert done.stderr.count("cannot be written") == 1, done.stderr
