# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The virtual machine's compiled part: it owns the one machine and fills the driver table."""
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUdeviceptr,
    CUfunction,
    CUresult,
    CUstream,
    CUuuid,
    DriverTable,
    GemmArgs,
    check,
)
from flambeau.driver.virtual.ptx._engine cimport KernelCode, KernelInfo, Launch, Outcome, info, run

cdef extern from "flambeau/driver/virtual/entries/table.hpp" namespace "flambeau::vgpu" nogil:
    cdef enum class Order(int):
        Fifo
        Random
        Adversarial
    cdef cppclass Model:
        string name
        int major, minor, multiprocessors
        uint64_t memory_bytes, context_bytes
        double memory_bandwidth, arithmetic_rate, matrix_rate, host_bandwidth, peer_bandwidth
        int clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes
        int threads_per_multiprocessor, blocks_per_multiprocessor
        int shared_per_multiprocessor, shared_per_block_optin
        cbool nvlink
    cdef cppclass Setup:
        vector[Model] models
        Order order
        uint64_t seed
        cbool progress
        int workers
    Setup& machine_setup()
    const DriverTable& driver_table()
    cbool end_process()
    cbool reset_process()
    vector[int] visible_devices_of "flambeau::vgpu::visible_devices"(const char*, const vector[string]&)
    cbool running()
    CUuuid uuid_of "flambeau::vgpu::device_uuid"(const string&, int)
    string uuid_text(const CUuuid&)
    string explain_status(int status)
    void apply_order()
    void apply_progress()
    uint64_t clock_now()
    void finish_work()
    void drain_work()
    uint64_t used_bytes_of(int physical)
    CUresult lose(int ordinal, CUresult status)
    cdef cppclass WorkDescription:
        int type
        CUfunction function
        unsigned grid[3]
        unsigned block[3]
        unsigned dynamic_shared, static_shared, registers
        uint64_t bytes
        const char* path
    cdef cppclass TracePlace:
        unsigned stream, graph, node
        uint64_t correlation
    cdef cppclass TracedWork:
        string name
        WorkDescription what
        int device
        TracePlace place
        uint64_t submitted, start, end
    cdef cppclass TracedCall:
        const char* name
        uint64_t correlation
        long thread
        uint64_t start, end
    void change_tracing "flambeau::vgpu::set_tracing"(cbool)
    void move_trace "flambeau::vgpu::take_trace"(vector[TracedWork]&, vector[TracedCall]&)
    unsigned traced_stream(uint64_t)
    cdef cppclass KernelEngine:
        void (*run)(const Launch*, Outcome*) noexcept nogil
        const KernelInfo* (*info)(const KernelCode*) noexcept nogil
    KernelEngine& kernel_engine()
    cdef cppclass GlobalInterpreterLock:
        cbool (*held)() noexcept nogil
        void* (*release)() noexcept nogil
        void (*acquire)(void*) noexcept nogil
    GlobalInterpreterLock& interpreter_lock()
    ctypedef CUresult (*GemmFunction)(const GemmArgs*, char*, size_t) noexcept nogil
    GemmFunction& gemm_function()

cdef extern from "flambeau/driver/virtual/entries/library.hpp" namespace "flambeau::vgpu" nogil:
    ctypedef CUresult (*LibraryFunction)(uint64_t, char*, size_t) noexcept nogil
    LibraryFunction& library_function()
    vector[uint64_t] take_unused_functions()
    cdef cppclass MemoryRange:
        uint64_t begin, bytes
        cbool writes
    cdef cppclass LibraryCall:
        uint64_t number
        string name
        vector[MemoryRange] ranges
        double bytes, operations
    CUresult submit_library(LibraryCall, CUstream)

cdef extern from "flambeau/driver/virtual/entries/table.hpp" namespace "flambeau::vgpu" nogil:
    CUresult allocate_variable(int, uint64_t, const void*, uint64_t, CUdeviceptr*)
    CUresult add_function(int, const KernelCode*, CUfunction*)
    uint64_t context_life(int)
    CUresult forget_module(int, uint64_t, const vector[uint64_t]&, const vector[uint64_t]&)
    void change_checks "flambeau::vgpu::set_checks"(unsigned)
    void change_watched "flambeau::vgpu::set_watched"(uint64_t, const KernelCode*)
    cdef cppclass CheckHooks:
        int (*stack)() noexcept nogil
        void (*prepare)(uint64_t) noexcept nogil
    cdef cppclass Actor:
        string work, access, source, stream
        cbool is_kernel
        unsigned block[3]
        unsigned thread[3]
        int stack
    cdef cppclass Finding:
        unsigned check
        string problem, space
        uint64_t address, bytes, block_begin, block_bytes, count
        Actor actor, other
        cbool has_block
        long long distance
        int born_stack, died_stack
    cdef cppclass Findings:
        vector[Finding] take()
    cdef cppclass Checker:
        CheckHooks hooks
        Findings findings
    Checker& checker()
    unsigned checks_on()
    cdef cppclass FileTransfer:
        int file
        cbool writes
        CUdeviceptr address
        uint64_t bytes, offset
    cdef cppclass FileOutcome:
        uint64_t moved
        int error
    cdef cppclass MeetingArgs:
        uint64_t communicator, meeting
        int ranks, rank
        double patience
        int kind, dtype, operation, root
        CUdeviceptr send, receive
        uint64_t count, send_bytes, receive_bytes
        const char* name
    cdef cppclass MeetingStep:
        const MeetingArgs* args
        int step, trouble, troubled_rank
        uint64_t start
    ctypedef CUresult (*MeetingFunction)(const MeetingStep*, double*, char*, size_t) noexcept nogil
    MeetingFunction& meeting_function()
    uint64_t map_meeting "flambeau::vgpu::open_meeting"(int, size_t)
    void unmap_meeting "flambeau::vgpu::close_meeting"(uint64_t)

cdef extern from "flambeau/driver/virtual/entries/table.hpp" namespace "flambeau::vgpu::entries" nogil:
    CUresult new_partition_stream "flambeau::vgpu::entries::create_partition_stream"(
        CUstream*, int, int, int, int)
    CUresult move_file "flambeau::vgpu::entries::transfer_file"(const FileTransfer&, FileOutcome&)
    CUresult submit_meeting "flambeau::vgpu::entries::join_meeting"(const MeetingArgs&, CUstream)

cdef extern from "flambeau/runtime/scalar_type.hpp" namespace "flambeau" nogil:
    enum ScalarType:
        Float16
        BFloat16
        Float32
        Float64
        Complex64
        Complex128

cdef dict _gemm_types = {
    <int>Float16: "float16",
    <int>BFloat16: "bfloat16",
    <int>Float32: "float32",
    <int>Float64: "float64",
    <int>Complex64: "complex64",
    <int>Complex128: "complex128",
}


cdef CUresult _gemm(const GemmArgs* g, char* message, size_t length) noexcept with gil:
    cdef bytes text
    try:
        from flambeau.driver.virtual.tasks import gemm
        gemm(_gemm_types[g.dtype], (g.m, g.n, g.k, g.batch), (g.a, g.b, g.c),
             (g.lda, g.ldb, g.ldc), (g.stride_a, g.stride_b, g.stride_c),
             (bool(g.transpose_a), bool(g.transpose_b)), kind=g.compute & 0xf, alpha=g.alpha,
             beta=g.beta, bias=g.bias)
    except Exception as error:  # noqa: BLE001 - becomes the device's fault, with this text
        text = f"{type(error).__name__}: {error}"[:400].encode()[:length - 1]
        memcpy(message, <const char*>text, len(text) + 1)
        return 719
    return 0


# The functions of library calls that have not been forgotten, by number.
cdef dict _library_calls = {}
cdef uint64_t _library_number = 0


cdef CUresult _library(uint64_t number, char* message, size_t length) noexcept with gil:
    cdef bytes text
    try:
        _library_calls[number]()
    except Exception as error:  # noqa: BLE001 - becomes the device's fault, with this text
        text = f"{type(error).__name__}: {error}"[:400].encode()[:length - 1]
        memcpy(message, <const char*>text, len(text) + 1)
        return 719
    return 0


cdef void _forget_unused():
    cdef uint64_t number
    for number in take_unused_functions():
        _library_calls.pop(number, None)


def submit_library_call(str name, function, ranges, double bytes, double operations, uintptr_t stream):
    global _library_number
    cdef LibraryCall call
    cdef MemoryRange range_
    _forget_unused()
    _library_number += 1
    call.number = _library_number
    call.name = name.encode()
    call.bytes = bytes
    call.operations = operations
    for range_.begin, range_.bytes, range_.writes in ranges:
        call.ranges.push_back(range_)
    _library_calls[call.number] = function
    check(submit_library(call, <CUstream>stream))


cdef CUresult _meet(const MeetingStep* s, double* duration, char* message, size_t length) noexcept with gil:
    cdef const MeetingArgs* a = s.args
    cdef bytes text
    try:
        from flambeau.driver.virtual.collectives import run_step
        duration[0] = run_step(
            a.communicator, s.step, s.start, (s.trouble, s.troubled_rank),
            (a.kind, a.dtype, a.operation, a.root, a.send, a.receive, a.count, a.send_bytes,
             a.receive_bytes))
    except Exception as error:  # noqa: BLE001 - becomes the device's fault, with this text
        status = getattr(error, "status", 719)
        text = (str(error) if status != 719 else f"A collective failed: {error}").encode()[:length - 1]
        memcpy(message, <const char*>text, len(text) + 1)
        return status
    return 0


cdef extern from "Python.h" nogil:
    ctypedef struct PyThreadState:
        pass
    int PyGILState_Check()
    PyThreadState* PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState*)


cdef cbool _gil_held() noexcept nogil:
    return PyGILState_Check() != 0


cdef void* _gil_release() noexcept nogil:
    return PyEval_SaveThread()


cdef void _gil_acquire(void* state) noexcept nogil:
    PyEval_RestoreThread(<PyThreadState*>state)


interpreter_lock().held = _gil_held
interpreter_lock().release = _gil_release
interpreter_lock().acquire = _gil_acquire
kernel_engine().run = run
kernel_engine().info = info
(&gemm_function())[0] = <GemmFunction>_gemm
(&library_function())[0] = <LibraryFunction>_library
(&meeting_function())[0] = <MeetingFunction>_meet


_ORDERS = {"fifo": 0, "random": 1, "adversarial": 2}


cdef Model _model(object m):
    cdef Model out
    out.name = m.name.encode()
    out.major, out.minor = m.capability
    out.multiprocessors = m.multiprocessors
    out.memory_bytes = m.memory_bytes
    out.context_bytes = m.context_bytes
    out.memory_bandwidth = m.memory_bandwidth
    out.arithmetic_rate = m.arithmetic_rate
    out.matrix_rate = m.matrix_rate
    out.host_bandwidth = m.host_bandwidth
    out.peer_bandwidth = m.peer_bandwidth
    out.clock_khz = m.clock_khz
    out.memory_clock_khz = m.memory_clock_khz
    out.memory_bus_bits = m.memory_bus_bits
    out.l2_bytes = m.l2_bytes
    out.threads_per_multiprocessor = m.threads_per_multiprocessor
    out.blocks_per_multiprocessor = m.blocks_per_multiprocessor
    out.shared_per_multiprocessor = m.shared_per_multiprocessor
    out.shared_per_block_optin = m.shared_per_block_optin
    out.nvlink = m.nvlink
    return out


def configure(models, int workers):
    if running():
        raise RuntimeError("the virtual machine is running; reset it before changing its devices")
    cdef Setup* setup = &machine_setup()
    setup.models.clear()
    for model in models:
        setup.models.push_back(_model(model))
    setup.workers = workers


def set_schedule(str order, uint64_t seed):
    cdef Setup* setup = &machine_setup()
    setup.order = <Order><int>_ORDERS[order]
    setup.seed = seed
    apply_order()


def set_progress(bint on):
    machine_setup().progress = on
    apply_progress()


def is_running():
    return running()


def table():
    return <uintptr_t>&driver_table()


def shutdown(code):
    cdef bint still
    with nogil:
        still = end_process()
    if not still:
        Py_INCREF(code)


def reset(code):
    cdef bint still
    with nogil:
        still = reset_process()
    if not still:
        Py_INCREF(code)


def explain(int status):
    cdef string text = explain_status(status)
    return text.decode() if text.size() else None


def clock():
    return clock_now()


def visible_devices(variable, list uuids):
    cdef vector[string] texts
    for u in uuids:
        texts.push_back(u.encode())
    if variable is None:
        return visible_devices_of(NULL, texts)
    cdef bytes encoded = variable.encode()
    return visible_devices_of(encoded, texts)


def device_uuid(str name, int index):
    return uuid_text(uuid_of(name.encode(), index)).decode()


def set_tracing(bint on):
    with nogil:
        change_tracing(on)


def take_trace():
    cdef vector[TracedWork] work
    cdef vector[TracedCall] calls
    cdef const TracedWork* w
    cdef size_t i
    with nogil:
        move_trace(work, calls)
    done = []
    for i in range(work.size()):
        w = &work[i]
        done.append((
            w.what.type, w.name.decode(errors="replace"), w.device, w.place.stream,
            w.place.correlation, w.place.graph, w.place.node, w.submitted, w.start, w.end,
            w.what.bytes, (<bytes>w.what.path).decode(),
            (w.what.grid[0], w.what.grid[1], w.what.grid[2]),
            (w.what.block[0], w.what.block[1], w.what.block[2]),
            w.what.dynamic_shared, w.what.static_shared, w.what.registers,
            <uintptr_t>w.what.function))
    return done, [
        ((<bytes>calls[i].name).decode(), calls[i].correlation, calls[i].thread, calls[i].start,
         calls[i].end) for i in range(calls.size())]


def stream_number(uint64_t handle):
    return traced_stream(handle)


def used_bytes(int physical):
    return used_bytes_of(physical)


def lose_device(int ordinal, int status):
    check(lose(ordinal, status))


def allocate_global(int ordinal, uint64_t size, bytes initial):
    cdef CUdeviceptr pointer = 0
    check(allocate_variable(ordinal, size, <const char*>initial, len(initial), &pointer))
    return pointer


def register_function(int ordinal, uintptr_t code):
    cdef CUfunction handle = NULL
    check(add_function(ordinal, <const KernelCode*>code, &handle))
    return <uintptr_t>handle


def life_of_context(int ordinal):
    return context_life(ordinal)


def unregister(int ordinal, uint64_t life, functions, variables):
    cdef vector[uint64_t] handles = functions
    cdef vector[uint64_t] pointers = variables
    cdef CUresult status
    with nogil:
        status = forget_module(ordinal, life, handles, pointers)
    return status


# -- collectives, green contexts, files -------------------------------------------------------------

_names = {}


def open_meeting(int file, size_t size):
    cdef uint64_t address = map_meeting(file, size)
    if address == 0:
        raise MemoryError(f"{size} bytes of shared memory could not be mapped")
    return address


def close_meeting(uint64_t address):
    unmap_meeting(address)


def join_meeting(uintptr_t stream, str name, uint64_t communicator, uint64_t meeting, int ranks,
                 int rank, double patience, int kind, int dtype, int operation, int root,
                 CUdeviceptr send, CUdeviceptr receive, uint64_t count, uint64_t send_bytes,
                 uint64_t receive_bytes):
    cdef MeetingArgs args
    cdef bytes text = _names.setdefault(name, name.encode())   # kept for ever
    args.communicator, args.meeting = communicator, meeting
    args.ranks, args.rank, args.patience = ranks, rank, patience
    args.kind, args.dtype, args.operation, args.root = kind, dtype, operation, root
    args.send, args.receive, args.count = send, receive, count
    args.send_bytes, args.receive_bytes = send_bytes, receive_bytes
    args.name = text
    check(submit_meeting(args, <CUstream>stream))


def partition_stream(int ordinal, int first, int count, int priority):
    cdef CUstream handle = NULL
    check(new_partition_stream(&handle, ordinal, first, count, priority))
    return <uintptr_t>handle


def transfer_file(int file, bint writes, CUdeviceptr address, uint64_t size, uint64_t offset):
    cdef FileTransfer transfer
    cdef FileOutcome outcome
    cdef CUresult status
    transfer.file, transfer.writes, transfer.address = file, writes, address
    transfer.bytes, transfer.offset = size, offset
    with nogil:
        status = move_file(transfer, outcome)
    check(status)
    return outcome.moved, outcome.error


# -- checks ----------------------------------------------------------------------------------------

cdef int _present_stack() noexcept nogil:
    if not PyGILState_Check():
        return -1
    with gil:
        try:
            from flambeau.driver.virtual.checks import stacks
            return stacks.capture()
        except Exception:  # noqa: BLE001 - a report without a stack is better than none
            return -1


cdef void _prepare(uint64_t function) noexcept nogil:
    with gil:
        error = None
        code = 0
        try:
            from flambeau.driver.virtual.modules import watched_code
            code = watched_code(function)
        except Exception as caught:  # noqa: BLE001 - the kernel still runs, unwatched
            error = caught
        change_watched(function, <const KernelCode*><uintptr_t>code)
        if error is not None:  # a warning that is an error goes to sys.unraisablehook from here
            import warnings
            warnings.warn(f"a kernel cannot be checked: {error}", RuntimeWarning, stacklevel=1)


checker().hooks.stack = _present_stack
checker().hooks.prepare = _prepare


def finish():
    with nogil:
        finish_work()


def drain():
    with nogil:
        drain_work()


def checks():
    return checks_on()


def set_checks(unsigned checks):
    with nogil:
        change_checks(checks)


cdef dict _actor(const Actor& a):
    return {
        "work": a.work.decode(errors="replace"),
        "access": a.access.decode(),
        "block": (a.block[0], a.block[1], a.block[2]) if a.is_kernel else None,
        "thread": (a.thread[0], a.thread[1], a.thread[2]) if a.is_kernel else None,
        "source": a.source.decode(errors="replace"),
        "stream": a.stream.decode(errors="replace"),
        "stack": a.stack,
    }


def take_findings():
    cdef vector[Finding] found = checker().findings.take()
    cdef size_t i
    result = []
    for i in range(found.size()):
        f = &found[i]
        result.append({
            "check": <int>f.check,
            "problem": f.problem.decode(),
            "space": f.space.decode(),
            "address": f.address,
            "size": f.bytes,
            "actor": _actor(f.actor),
            "other": _actor(f.other) if f.other.work.size() else None,
            "block": (f.block_begin, f.block_bytes, f.distance) if f.has_block else None,
            "born_stack": f.born_stack,
            "died_stack": f.died_stack,
            "count": f.count,
        })
    return result
