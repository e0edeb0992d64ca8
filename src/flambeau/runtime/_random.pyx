# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Filling tensors with random numbers in place: memory order, split, launch.

The stream of a CUDA generator is dealt out to a logical grid that the number of elements and the
device's size determine, as in torch; random.cuh says how.
"""
from libc.math cimport sqrt
from libc.stdint cimport INT32_MAX, int8_t, int32_t, uint32_t, uintptr_t

from flambeau.driver._table cimport CUfunction
from flambeau.runtime cimport _dtype, _factory, _launch, _state
from flambeau.runtime._device cimport resolve_device
from flambeau.runtime._dims cimport parse_sizes, parse_varargs
from flambeau.runtime._dtype cimport item_bytes, legacy_name, type_category
from flambeau.runtime._generator cimport Generator, Mt19937, PhiloxArguments, choose, take
from flambeau.runtime._tensor cimport Tensor, mark_written, new_tensor, new_view

from flambeau.runtime import _cuda_device
from flambeau.runtime import _factory as _factories

cdef extern from "flambeau/runtime/_elementwise.hpp" namespace "flambeau" nogil:
    cdef struct Layout:
        int32_t ndim
    cdef cppclass Space:
        int ndim
        int operands
        int64_t sizes[64]
        int64_t strides[5][64]
        void simplify()
        int64_t reach()
        int64_t count()
        bint fill(Layout*)

cdef extern from "flambeau/runtime/_fast_factory.hpp" namespace "flambeau":
    object make_fast_rand "flambeau::make_fast_factory<0>"(
        const char* name, object whole, const char* documentation, object (*one_size)(object, object, object))
    object make_fast_randn "flambeau::make_fast_factory<1>"(
        const char* name, object whole, const char* documentation, object (*one_size)(object, object, object))

cdef extern from "flambeau/runtime/host_random.hpp" namespace "flambeau" nogil:
    void fill_host(Mt19937&, RandomKind, const RandomNumbers&, char*, int type, int ndim,
                   const int64_t* sizes, const int64_t* strides, int64_t n, bint contiguous)
    void host_bernoulli[P](Mt19937&, const P*, char*, int type, int64_t n)
    void host_permute(Mt19937&, int64_t*, int64_t n)
    void host_choices[P](Mt19937&, const P*, int64_t categories, int64_t* out, int64_t samples)
    double host_poisson(Mt19937&, double)

cdef enum:
    THREADS = 256                       # RANDOM_THREADS of random.cuh
    BLOCKS_WHEN_BUSY = 4                # times those that are on the device at once
    MULTIPROCESSORS = 16                # CU_DEVICE_ATTRIBUTE_...
    THREADS_PER_MULTIPROCESSOR = 39

cdef dict _kinds = {
    "uniform": UNIFORM, "normal": NORMAL, "log_normal": LOG_NORMAL, "exponential": EXPONENTIAL,
    "cauchy": CAUCHY, "geometric": GEOMETRIC, "bernoulli": BERNOULLI, "random32": RANDOM32,
    "random64": RANDOM64,
}
cdef list _fills = [None] * 9          # by kind
cdef int64_t[64] _most_blocks           # per device; 0: not asked yet
cdef int _most_blocks_epoch = -1


# -- geometry --------------------------------------------------------------------------------------

cdef int64_t blocks_for(int device, int64_t count) except -1:
    """Blocks of the logical grid: as many as the device holds at once, at most one per 256 elements."""
    global _most_blocks_epoch
    cdef int64_t wanted = (count + THREADS - 1) // THREADS
    cdef int i
    if _most_blocks_epoch != _state.epoch:
        for i in range(64):
            _most_blocks[i] = 0
        _most_blocks_epoch = _state.epoch
    if _most_blocks[device] == 0:
        _state.require_initialized()
        _most_blocks[device] = _cuda_device.attribute(device, MULTIPROCESSORS) * (
            _cuda_device.attribute(device, THREADS_PER_MULTIPROCESSOR) // THREADS)
    return min(wanted, _most_blocks[device])


def grid_threads(int device, int64_t count):
    return THREADS * blocks_for(device, count)


cdef inline uint64_t increment_of(int64_t count, int64_t threads, int values) noexcept:
    return 4 * <uint64_t>((count - 1) // (threads * values) + 1)


def draw(generator, int device, uint64_t increment):
    cdef PhiloxArguments arguments = take(choose(generator, device), increment)
    return (<char*>&arguments)[:sizeof(PhiloxArguments)]


# -- fills -----------------------------------------------------------------------------------------

cdef class RandomFill:
    def __init__(self, str name not None, compile):
        if name not in _kinds:
            raise ValueError(f"no distribution is called {name!r}; there are {', '.join(_kinds)}")
        self.name = name
        self.kind = _kinds[name]
        self.compile_kernel = compile
        self.epoch = -1
        _fills[<int>self.kind] = self

    def __call__(self, Tensor target not None, generator=None, double a=0, double b=0,
                 uint64_t range=0, int64_t base=0):
        cdef RandomNumbers numbers = RandomNumbers(a, b, range, 0, base)
        fill_tensor(self, target, generator, &numbers)
        return target


cdef int fill_tensor(RandomFill fill, Tensor target, object generator, RandomNumbers* numbers) except -1:
    cdef Generator source = choose(generator, target.device_index)
    cdef Tensor real = target
    cdef int d
    if target.count == 0:
        return 0
    for d in range(target.ndim_):
        if target.strides[d] == 0 and target.sizes[d] > 1:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the operation.")
    if type_category[target.scalar_type] == 3:
        real = real_view(target)
    if target.device_index < 0:
        fill_on_host(fill.kind, real, source, numbers)
    else:
        _state.ensure_context(target.device_index)
        fill_on_device(fill, real, source, numbers)
        if _launch.observed:
            tell_observers(fill, target)
    mark_written(target)
    return 0


cdef int tell_observers(RandomFill fill, Tensor target) except -1:
    from flambeau.runtime import observers
    observers.notify("operation", fill.name, (), (target,),
                     <uintptr_t>_state.thread_state().streams[target.device_index])
    return 0


cdef int8_t real_type(int8_t scalar_type) noexcept:
    if scalar_type == _dtype.Complex128:
        return _dtype.Float64
    return _dtype.Float32 if scalar_type == _dtype.Complex64 else _dtype.Float16


cdef Tensor real_view(Tensor target):
    """Real and imaginary parts as a last dimension."""
    cdef int64_t[65] sizes
    cdef int64_t[65] strides
    cdef int d, ndim = target.ndim_
    cdef Tensor view
    if ndim == 64:
        raise RuntimeError("a complex tensor of 64 dimensions has no real view")
    for d in range(ndim):
        sizes[d] = target.sizes[d]
        strides[d] = 2 * target.strides[d]
    sizes[ndim] = 2
    strides[ndim] = 1
    view = new_view(target, 0, ndim + 1, sizes, strides)
    view.scalar_type = real_type(target.scalar_type)
    return view


cdef int gather(Tensor target, Space* space) except -1:
    """The dimensions in the order of memory, merged where possible."""
    cdef int d, last = target.ndim_ - 1
    space.operands = 1
    if target.contiguous:
        space.ndim = 1
        space.sizes[0] = target.count
        space.strides[0][0] = 1
        return 0
    space.ndim = target.ndim_
    for d in range(target.ndim_):
        space.sizes[d] = target.sizes[last - d]
        space.strides[0][d] = target.strides[last - d]
    space.simplify()
    if space.ndim == 0:                 # one element
        space.ndim = 1
        space.sizes[0] = 1
        space.strides[0][0] = 1
    return 0


cdef int fill_on_host(RandomKind kind, Tensor target, Generator source, RandomNumbers* numbers) except -1:
    cdef Space space
    gather(target, &space)
    with nogil:
        fill_host(source.host[0], kind, numbers[0], target.data, target.scalar_type, space.ndim,
                  &space.sizes[0], &space.strides[0][0], target.count, target.contiguous)
    return 0


cdef int values_per_block(RandomKind kind, int scalar_type) noexcept:
    if kind == RANDOM32:
        return 4
    return 2 if kind == RANDOM64 or scalar_type == _dtype.Float64 else 4


cdef int fill_on_device(RandomFill fill, Tensor target, Generator source, RandomNumbers* numbers) except -1:
    cdef Space space
    cdef int values = values_per_block(fill.kind, target.scalar_type), device = target.device_index
    cdef int64_t threads
    gather(target, &space)
    if fill.kind == RANDOM32:
        numbers.reciprocal = (<uint64_t>1 << 32) // numbers.range if numbers.range > 1 else 0xFFFFFFFF
    elif fill.kind == RANDOM64 and numbers.range:
        numbers.reciprocal = reciprocal_of(numbers.range)
    if fits_in_32_bits(&space, item_bytes[target.scalar_type]):
        return launch_piece(fill, target, target.data, &space, source, numbers, values)
    # The whole tensor's share of the stream is taken and left unused; then each piece takes its own.
    threads = THREADS * blocks_for(device, target.count)
    take(source, increment_of(target.count, threads, values))
    return split(fill, target, target.data, &space, source, numbers, values)


cdef uint64_t reciprocal_of(uint64_t range) noexcept:
    """floor(2**64 / range), or 2**64 - 1 for 1."""
    cdef uint64_t most = <uint64_t>-1
    cdef uint64_t quotient = most // range
    if range == 1:
        return most
    return quotient + 1 if most % range == range - 1 else quotient


cdef bint fits_in_32_bits(Space* space, int item) noexcept:
    return space.count() <= INT32_MAX and space.reach() * item + 1 <= INT32_MAX


cdef int split(RandomFill fill, Tensor target, char* data, Space* space, Generator source,
               RandomNumbers* numbers, int values) except -1:
    """Halve the dimension that reaches furthest until offsets fit in 32 bits."""
    cdef Space part
    cdef int64_t longest = -1, first
    cdef int d, dim = 0
    if fits_in_32_bits(space, item_bytes[target.scalar_type]):
        return launch_piece(fill, target, data, space, source, numbers, values)
    for d in range(space.ndim):
        if (space.sizes[d] - 1) * space.strides[0][d] >= longest:
            longest = (space.sizes[d] - 1) * space.strides[0][d]
            dim = d
    first = space.sizes[dim] // 2
    part = space[0]
    part.sizes[dim] = first
    split(fill, target, data, &part, source, numbers, values)
    part.sizes[dim] = space.sizes[dim] - first
    return split(fill, target, data + first * space.strides[0][dim] * item_bytes[target.scalar_type],
                 &part, source, numbers, values)


cdef int launch_piece(RandomFill fill, Tensor target, char* data, Space* space, Generator source,
                      RandomNumbers* numbers, int values) except -1:
    cdef void* parameters[6]
    cdef Layout layout
    cdef int device = target.device_index
    cdef bint strided = space.ndim != 1 or space.strides[0][0] != 1
    cdef uint32_t count = <uint32_t>space.count()
    cdef uint32_t threads = <uint32_t>(THREADS * blocks_for(device, count))
    cdef uint64_t increment = increment_of(count, threads, values)
    cdef uint32_t per_block = THREADS if strided else THREADS * width_of(item_bytes[target.scalar_type])
    cdef uint32_t columns = (threads + per_block - 1) // per_block
    cdef int64_t rows = min(<int64_t>(increment // 4), most_rows(device, columns))
    cdef CUfunction function = kernel_of(fill, device, target.scalar_type, strided)
    cdef PhiloxArguments philox
    if strided and not space.fill(&layout):
        raise RuntimeError(
            f"{fill.name}_ handles at most 12 dimensions that cannot be merged, got {space.ndim}; fill a "
            "contiguous tensor and copy_() it")
    philox = take(source, increment)
    parameters[0] = &data
    parameters[1] = &philox
    parameters[2] = numbers
    parameters[3] = &count
    parameters[4] = &threads
    parameters[5] = &layout
    return _launch.launch_overlapping(
        function, columns, <unsigned>rows, 1, THREADS, 1, 1, 0, _state.thread_state().streams[device],
        parameters)


cdef inline int width_of(int item) noexcept:
    """Neighbouring logical threads per hardware thread: fill_width of random.cuh."""
    return 8 if item == 1 else 16 // item


cdef int64_t most_rows(int device, int64_t columns) noexcept:
    """Rounds side by side. More blocks than keep the device busy would each start anew for little."""
    cdef int64_t busy = BLOCKS_WHEN_BUSY * _most_blocks[device]
    return max(<int64_t>1, busy // columns)


cdef CUfunction kernel_of(RandomFill fill, int device, int scalar_type, bint strided) except NULL:
    cdef uint64_t key = 1 | strided << 1 | scalar_type << 2 | device << 8
    cdef uint64_t* found
    cdef uintptr_t function
    if fill.epoch != _state.epoch:
        fill.kernels.clear()
        fill.epoch = _state.epoch
    found = fill.kernels.find(key)
    if found != NULL:
        return <CUfunction><uintptr_t>found[0]
    function = fill.compile_kernel(fill, device, scalar_type, strided)
    if function == 0:
        raise RuntimeError(f"no kernel for {fill.name} of {legacy_name(scalar_type)}")
    fill.kernels.put(key, <uint64_t>function)
    return <CUfunction>function


# -- new tensors -----------------------------------------------------------------------------------

cdef Tensor fill_new(RandomKind kind, Tensor made, object generator):
    """Fill what was made for `rand` and `randn`."""
    cdef RandomNumbers numbers = RandomNumbers(0, 1, 0, 0, 0)
    if type_category[made.scalar_type] < 2:
        name = "check_uniform_bounds" if kind == UNIFORM else "normal_kernel"
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{legacy_name(made.scalar_type)}': it draws floating-point "
            "numbers")
    if kind == NORMAL and type_category[made.scalar_type] == 3:
        numbers.b = sqrt(0.5)
    fill_tensor(<RandomFill>_fills[<int>kind], made, generator, &numbers)
    return made


cdef Tensor make_new(int ndim, const int64_t* sizes, object dtype, object device):
    cdef int code = _factory.default_float if dtype is None else (<_dtype.dtype?>dtype).code
    cdef int index = resolve_device(device)
    if index >= 0:
        _state.ensure_context(index)
    return new_tensor(index, code, ndim, sizes)


cdef Tensor new_filled(RandomKind kind, tuple shape, size, generator, out, dtype, device, requires_grad,
                       pin_memory):
    cdef int64_t[64] sizes
    cdef Tensor made
    if out is None and not pin_memory:
        ndim = parse_varargs(shape, sizes) if size is None else parse_sizes(size, sizes)
        made = make_new(ndim, sizes, dtype, device)
    else:
        wanted = (shape[0] if len(shape) == 1 else shape) if size is None else size
        if out is None:
            made = _factories.new_empty(wanted, dtype, device, pin_memory)
        else:
            made = _factories.empty(wanted, out=out)
    fill_new(kind, made, generator)
    if requires_grad:
        made.requires_grad = True
    return made


cdef object _rand_of_one_size(object size, object device, object dtype):
    cdef int64_t extent = size
    return fill_new(UNIFORM, make_new(1, &extent, dtype, device), None)


cdef object _randn_of_one_size(object size, object device, object dtype):
    cdef int64_t extent = size
    return fill_new(NORMAL, make_new(1, &extent, dtype, device), None)


def rand(*shape, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
         requires_grad=False, pin_memory=False):
    return new_filled(UNIFORM, shape, size, generator, out, dtype, device, requires_grad, pin_memory)


def randn(*shape, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
          requires_grad=False, pin_memory=False):
    return new_filled(NORMAL, shape, size, generator, out, dtype, device, requires_grad, pin_memory)


cdef bytes _rand_documentation = b"""rand(*shape, size=None, generator=None, out=None, dtype=None, layout=None, \
device=None, requires_grad=False, pin_memory=False)
--

Draw numbers evenly from [0, 1).

Parameters
----------
shape, size
    ``rand(2, 3)``, ``rand((2, 3))`` or ``rand(size=(2, 3))``.
generator
    None is the default one of the device.
out
    A tensor to resize and fill instead.
dtype
    Floating-point or complex; by default the default dtype.
layout
    Accepted: tensors are strided.
device
    By default the default device.
requires_grad
    Whether gradients shall be recorded for it.
pin_memory
    Put a host tensor into pinned memory.

Returns
-------
Tensor
    On CUDA the same numbers as torch on a device with as many threads.

Examples
--------
>>> import flambeau as torch
>>> torch.cuda.manual_seed(0)
>>> torch.rand(2, device="cuda")
tensor([0.3990, 0.5167], device='cuda:0')
"""
cdef bytes _randn_documentation = b"""randn(*shape, size=None, generator=None, out=None, dtype=None, layout=None, \
device=None, requires_grad=False, pin_memory=False)
--

Draw from the standard normal distribution; parameters as for `rand`.

Complex numbers have variance 1: their parts have variance 1/2 each.
"""
rand = make_fast_rand("rand", rand, _rand_documentation, _rand_of_one_size)
randn = make_fast_randn("randn", randn, _randn_documentation, _randn_of_one_size)


# -- other draws on the host -------------------------------------------------------------------------

cdef Tensor _host_tensor(Tensor t, str what):
    if t.device_index >= 0 or not t.contiguous:
        raise RuntimeError(f"{what} must be a contiguous host tensor")
    return t


def bernoulli_on_host(Tensor out not None, Tensor p not None, generator=None):
    cdef Generator source = choose(generator, -1)
    _host_tensor(out, "out"), _host_tensor(p, "p")
    if p.count != out.count:
        raise RuntimeError(f"{p.count} probabilities were given for {out.count} elements")
    if p.scalar_type == _dtype.Float64:
        host_bernoulli[double](source.host[0], <double*>p.data, out.data, out.scalar_type, out.count)
    elif p.scalar_type == _dtype.Float32:
        host_bernoulli[float](source.host[0], <float*>p.data, out.data, out.scalar_type, out.count)
    else:
        raise RuntimeError(f"p must be float32 or float64, got {p.dtype}")
    mark_written(out)
    return out


def permute_on_host(int64_t n, generator=None):
    cdef Generator source = choose(generator, -1)
    cdef Tensor out = new_tensor(-1, _dtype.Int64, 1, &n)
    with nogil:
        host_permute(source.host[0], <int64_t*>out.data, n)
    return out


def choose_on_host(Tensor out not None, Tensor weights not None, generator=None):
    cdef Generator source = choose(generator, -1)
    cdef int64_t row, rows = weights.sizes[0], categories = weights.sizes[1], samples = out.sizes[1]
    _host_tensor(out, "out"), _host_tensor(weights, "weights")
    if out.scalar_type != _dtype.Int64 or out.sizes[0] != rows:
        raise RuntimeError(f"out must be int64 with {rows} rows")
    for row in range(rows):
        if weights.scalar_type == _dtype.Float64:
            host_choices[double](source.host[0], <double*>weights.data + row * categories, categories,
                                 <int64_t*>out.data + row * samples, samples)
        elif weights.scalar_type == _dtype.Float32:
            host_choices[float](source.host[0], <float*>weights.data + row * categories, categories,
                                <int64_t*>out.data + row * samples, samples)
        else:
            raise RuntimeError(f"weights must be float32 or float64, got {weights.dtype}")
    mark_written(out)
    return out


def poisson_on_host(Tensor out not None, Tensor rates not None, generator=None):
    cdef Generator source = choose(generator, -1)
    cdef double* rate = <double*>rates.data
    cdef double* to = <double*>out.data
    cdef int64_t i
    _host_tensor(out, "out"), _host_tensor(rates, "rates")
    if out.scalar_type != _dtype.Float64 or rates.scalar_type != _dtype.Float64 or out.count != rates.count:
        raise RuntimeError("rates and out must be float64 tensors of one size")
    with nogil:
        for i in range(out.count):
            to[i] = host_poisson(source.host[0], rate[i])
    mark_written(out)
    return out
