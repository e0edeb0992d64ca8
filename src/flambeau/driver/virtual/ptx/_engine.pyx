# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The block executor: kernels that the JIT compiled, run on worker threads without the GIL."""
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from dataclasses import dataclass

cdef extern from "flambeau/driver/virtual/ptx/engine_run.hpp" namespace "flambeau::ptx" nogil:
    cdef enum class Access(uint32_t):
        read
    cdef cppclass Site:
        Access access
        uint32_t bytes, ptx_line, file, line
    ctypedef int (*RunFunction)(void*, uint64_t, uint64_t)
    ctypedef int (*StepFunction)(void*, void*)
    cdef cppclass CompiledKernel "flambeau::ptx::KernelCode":
        KernelInfo info
        string name
        vector[uint32_t] offsets, sizes
        vector[Site] sites
        vector[string] files
        vector[uint64_t] globals
        RunFunction run
        StepFunction step
        uint32_t frame_bytes, local_bytes
        bint in_order, uses_clock
    void run_grid_of "flambeau::ptx::run"(const Launch&, Outcome&)
    const KernelInfo& info_of "flambeau::ptx::info"(const KernelCode*)

cdef extern from *:
    """
    #include "flambeau/driver/virtual/ptx/engine_heap.hpp"
    #include "flambeau/driver/virtual/ptx/engine_helpers.hpp"
    #include "flambeau/driver/virtual/ptx/engine_run.hpp"
    namespace {
    struct Field { const char *name; std::size_t offset; };
    #define FLAMBEAU_FIELD(type, field) \\
        {#type "." #field, offsetof(flambeau::ptx::type, field)}
    // Offsets that lowered code is written with.
    const Field *layout_fields(std::size_t &count) {
      static const Field fields[] = {
        FLAMBEAU_FIELD(Context, origin),
        FLAMBEAU_FIELD(Context, parameters), FLAMBEAU_FIELD(Context, globals),
        FLAMBEAU_FIELD(Context, shared), FLAMBEAU_FIELD(Context, shared_size),
        FLAMBEAU_FIELD(Context, sites), FLAMBEAU_FIELD(Context, local),
        FLAMBEAU_FIELD(Context, local_limit), FLAMBEAU_FIELD(Context, clock),
        FLAMBEAU_FIELD(Context, clock_start), FLAMBEAU_FIELD(Context, clock_end),
        FLAMBEAU_FIELD(Context, workspace),
        FLAMBEAU_FIELD(Context, block_dim), FLAMBEAU_FIELD(Context, grid_dim),
        FLAMBEAU_FIELD(Context, block_index), FLAMBEAU_FIELD(Context, dynamic_shared),
        FLAMBEAU_FIELD(Context, total_shared), FLAMBEAU_FIELD(Context, multiprocessor),
        FLAMBEAU_FIELD(Context, multiprocessors),
        FLAMBEAU_FIELD(Frame, tid), FLAMBEAU_FIELD(Frame, flat), FLAMBEAU_FIELD(Frame, state),
        FLAMBEAU_FIELD(Frame, op), FLAMBEAU_FIELD(Frame, mask), FLAMBEAU_FIELD(Frame, value),
        FLAMBEAU_FIELD(Frame, argument), FLAMBEAU_FIELD(Frame, predicate),
        FLAMBEAU_FIELD(Frame, local), FLAMBEAU_FIELD(Frame, saved),
      };
      count = sizeof fields / sizeof *fields;
      return fields;
    }
    void set_site(flambeau::ptx::Site &site, unsigned access, unsigned bytes, unsigned ptx_line,
                  unsigned file, unsigned line) {
      site = {static_cast<flambeau::ptx::Access>(access), bytes, ptx_line, file, line};
    }
    // What outlives the code: reports name accesses of kernels that may be unloaded by then.
    void name_places(flambeau::ptx::KernelCode &code) {
      auto places = std::make_shared<std::vector<std::string>>();
      for (const auto &site : code.sites) {
        char text[256];
        flambeau::ptx::describe_source(code, site, text, sizeof text);
        places->emplace_back(text);
      }
      code.info.places = places;
    }
    }
    """
    cdef struct Field:
        const char* name
        size_t offset
    int LAYOUT_VERSION "flambeau::ptx::LAYOUT_VERSION"
    const Field* layout_fields(size_t& count)
    void set_site(Site& site, unsigned access, unsigned bytes, unsigned ptx_line, unsigned file,
                  unsigned line)
    void name_places(CompiledKernel&)
    cdef cppclass Symbol "flambeau::ptx::helpers::Symbol":
        const char* name
        const void* address
    const vector[Symbol]& symbols "flambeau::ptx::helpers::symbols"()
    const void* heap_allocate "(const void*)flambeau::ptx::heap::allocate"
    const void* heap_release "(const void*)flambeau::ptx::heap::release"


cdef void run(const Launch* launch, Outcome* outcome) noexcept nogil:
    run_grid_of(launch[0], outcome[0])


cdef const KernelInfo* info(const KernelCode* code) noexcept nogil:
    return &info_of(code)


def context_layout() -> dict[str, int]:
    cdef size_t count = 0
    cdef const Field* fields = layout_fields(count)
    layout = {fields[i].name.decode(): fields[i].offset for i in range(count)}
    layout["version"] = LAYOUT_VERSION
    return layout


def helper_symbols() -> dict[str, int]:
    cdef size_t i
    cdef const vector[Symbol]* table = &symbols()
    found = {table[0][i].name.decode(): <size_t>table[0][i].address for i in range(table.size())}
    found["fl_malloc"] = <size_t>heap_allocate
    found["fl_free"] = <size_t>heap_release
    return found


def create_kernel(
    *, str name, size_t run_address, size_t step_address, parameters, sites, files, globals,
    uint32_t static_shared, uint32_t local_bytes, uint32_t max_threads, uint32_t registers,
    uint32_t frame_bytes, bint in_order, bint uses_clock, double global_bytes, double operations,
    bint watched=False,
) -> int:
    cdef CompiledKernel* code = new CompiledKernel()
    cdef Site site
    code.name = name.encode()
    code.run = <RunFunction>run_address
    code.step = <StepFunction>step_address
    for offset, size in parameters:
        code.offsets.push_back(offset)
        code.sizes.push_back(size)
    for access, size, ptx_line, file, line in sites:
        set_site(site, access, size, ptx_line, file, line)
        code.sites.push_back(site)
    for file_name in files:
        code.files.push_back((<str>file_name).encode())
    for address in globals:
        code.globals.push_back(address)
    code.frame_bytes = frame_bytes
    code.local_bytes = local_bytes
    code.in_order = in_order
    code.uses_clock = uses_clock
    code.info.name = code.name.c_str()
    code.info.static_shared = static_shared
    code.info.local_bytes = local_bytes
    code.info.max_threads = max_threads
    code.info.registers = registers
    code.info.parameter_count = <uint32_t>code.offsets.size()
    code.info.parameter_offsets = code.offsets.data()
    code.info.parameter_sizes = code.sizes.data()
    code.info.parameter_bytes = max((o + n for o, n in parameters), default=0)
    code.info.global_bytes_per_thread = global_bytes
    code.info.operations_per_thread = operations
    if watched:
        name_places(code[0])
    return <size_t>code


def destroy_kernel(size_t address) -> None:
    cdef CompiledKernel* code = <CompiledKernel*>address
    del code


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """What `kernel_info` says of a kernel; sizes in bytes, costs per thread."""

    name: str
    static_shared: int
    local_bytes: int
    max_threads: int
    registers: int
    parameters: tuple[tuple[int, int], ...]
    global_bytes_per_thread: float
    operations_per_thread: float
    yields: bool


@dataclass(frozen=True, slots=True)
class GridOutcome:
    """How a grid ended; `status` is a CUDA status, 0 for a good end."""

    status: int
    address: int
    access_bytes: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    access: str
    source: str
    message: str
    clock_cycles: int
    global_bytes: float
    operations: float


def kernel_info(size_t address) -> KernelSummary:
    cdef CompiledKernel* code = <CompiledKernel*>address
    return KernelSummary(
        code.name.decode(), code.info.static_shared, code.info.local_bytes, code.info.max_threads,
        code.info.registers, tuple(zip(code.offsets, code.sizes)),
        code.info.global_bytes_per_thread, code.info.operations_per_thread,
        code.step != NULL)


def run_grid(
    size_t kernel_address, grid, block, uint32_t shared, bytes params, ranges, int workers=1,
    *, int multiprocessors=1, uint64_t clock_start=0, bint cooperative=False,
) -> GridOutcome:
    cdef Launch launch
    cdef Outcome out
    cdef MemoryMap memory
    cdef MemoryRange r
    cdef const unsigned char[::1] view = params + bytes(16)
    for begin, end in sorted(ranges):
        r.begin = begin
        r.end = end
        memory.ranges.push_back(r)
    launch.code = <const KernelCode*>kernel_address
    for i in range(3):
        launch.grid[i] = grid[i] if i < len(grid) else 1
        launch.block[i] = block[i] if i < len(block) else 1
    launch.dynamic_shared = shared
    launch.parameters = <const void*>&view[0]
    launch.memory = &memory
    launch.workers = workers
    launch.multiprocessors = multiprocessors
    launch.clock_start = clock_start
    launch.cooperative = cooperative
    launch.watcher = NULL
    with nogil:
        run(&launch, &out)
    return GridOutcome(
        out.status, out.address, out.access_bytes, (out.block[0], out.block[1], out.block[2]),
        (out.thread[0], out.thread[1], out.thread[2]), (<bytes>out.access).decode(),
        (<bytes>out.source).decode(errors="replace"), (<bytes>out.message).decode(errors="replace"),
        out.clock_cycles, out.global_bytes, out.operations)
