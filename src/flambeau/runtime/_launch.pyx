# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Launching kernels: with the GIL held as a rule, let go where that could block for long."""
import os

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from flambeau.driver._table cimport CUresult, DriverTable, check, driver
from flambeau.runtime cimport _state

cdef extern from "flambeau/runtime/launch_throttle.hpp" namespace "flambeau" nogil:
    cdef cppclass LaunchThrottle:
        bint crowded
        bint due()
        CUresult look(const DriverTable*, CUstream)
    cdef cppclass LaunchThrottles:
        LaunchThrottle* of_ "of"(int, CUstream)
        void forget()
    CUresult launch_programmatic(
        const DriverTable*, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
        unsigned, CUstream, void**)

cdef extern from "flambeau/runtime/graph_launch.hpp" namespace "flambeau" nogil:
    cdef struct KernelShape:
        unsigned[3] grid
        unsigned[3] block
        unsigned dynamic_shared
    cdef cppclass GraphLaunches:
        CUresult launch(const DriverTable*, CUfunction, const KernelShape&, CUstream, void**)
        void clear(const DriverTable*)
        void forget()
        size_t size()

cdef enum:
    MAX_PARAMETERS = 64
    PARAMETER_BYTES = 4096  # what the driver lets a kernel take

cdef LaunchThrottles throttles
cdef GraphLaunches graph_launches
cdef bint as_graphs = os.environ.get("FLAMBEAU_GRAPH_LAUNCH") == "1"
cdef bint blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
# What the driver offers; -1 before it was asked.
cdef int programmatic = -1  # launches that overlap the end of their predecessor
cdef int quick_queries = -1  # queries that run nothing, so that they may keep the GIL

observed = False
known_captured = <CUstream><uintptr_t>-1


cdef inline int launch_as(
    bint overlapping, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
    unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned dynamic_shared, CUstream stream, void** parameters,
) except -1:
    cdef CUresult status
    cdef KernelShape shape
    cdef LaunchThrottle* throttle = throttles.of_(_state.thread_state().context_device, stream)
    if throttle.due():
        _state.note_call()
        if quick_queries < 0:
            ask_driver()
        if quick_queries:
            status = throttle.look(driver, stream)
        else:
            with nogil:  # the query may run host callbacks, which need the GIL
                status = throttle.look(driver, stream)
        check(status)
    if throttle.crowded:
        with nogil:
            if overlapping:
                status = launch_programmatic(
                    driver, f, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                    dynamic_shared, stream, parameters)
            else:
                status = driver.LaunchKernel(
                    f, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                    dynamic_shared, stream, parameters, NULL)
    elif as_graphs and not _state.captures:
        shape.grid[0], shape.grid[1], shape.grid[2] = grid_x, grid_y, grid_z
        shape.block[0], shape.block[1], shape.block[2] = block_x, block_y, block_z
        shape.dynamic_shared = dynamic_shared
        status = graph_launches.launch(driver, f, shape, stream, parameters)
    elif overlapping:
        status = launch_programmatic(
            driver, f, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            dynamic_shared, stream, parameters)
    else:
        status = driver.LaunchKernel(
            f, grid_x, grid_y, grid_z, block_x, block_y, block_z,
            dynamic_shared, stream, parameters, NULL)
    if status != 0:
        check(status)
    if blocking:
        finish(stream)
    if _state.captures and stream != known_captured:
        note_uncaptured(stream)
    if observed:
        from flambeau.runtime import observers
        observers.notify("launch", <uintptr_t>f, <uintptr_t>stream)
    return 0


cdef int note_uncaptured(CUstream stream) except -1:
    """While a graph is captured, remember work that runs at once beside it: hardly ever wanted."""
    global known_captured
    if _state.is_captured(stream):
        known_captured = stream
    else:
        from flambeau.runtime import capture_report
        capture_report.note_uncaptured(<uintptr_t>stream)
    return 0


cdef void forget_captured() noexcept:
    global known_captured
    known_captured = <CUstream><uintptr_t>-1            # no stream's handle


cdef int launch_graph(CUgraphExec exec, CUstream stream) except -1:
    cdef CUresult status
    cdef LaunchThrottle* throttle = throttles.of_(_state.thread_state().context_device, stream)
    if throttle.due():
        _state.note_call()
        with nogil:
            status = throttle.look(driver, stream)
        check(status)
    if throttle.crowded:
        with nogil:
            status = driver.GraphLaunch(exec, stream)
    else:
        status = driver.GraphLaunch(exec, stream)
    if status != 0:
        check(status)
    if blocking:
        finish(stream)
    return 0


cdef int finish(CUstream stream) except -1:
    """Wait for the launch, so that its error is raised at its own call."""
    cdef CUresult status
    cdef int capturing = 0
    check(driver.StreamIsCapturing(stream, &capturing))
    if capturing:
        return 0
    with nogil:
        status = driver.StreamSynchronize(stream)
    return check(status)


cdef int launch(
    CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
    unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned dynamic_shared, CUstream stream, void** parameters,
) except -1:
    return launch_as(
        False, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared, stream,
        parameters)


cdef int launch_overlapping(
    CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
    unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned dynamic_shared, CUstream stream, void** parameters,
) except -1:
    if programmatic < 0:
        ask_driver()
    return launch_as(
        programmatic == 1, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared,
        stream, parameters)


cdef int ask_driver() except -1:
    global programmatic, quick_queries
    from flambeau import driver as drivers
    current = drivers.current()
    programmatic = 1 if current.supports("programmatic_launch") else 0
    quick_queries = 1 if current.supports("quick_queries") else 0
    return 0


def forget():
    """Every handle is void."""
    global programmatic, quick_queries
    programmatic = quick_queries = -1
    throttles.forget()
    graph_launches.forget()


def set_graph_launch(bint on):
    global as_graphs
    as_graphs = on
    if not on:
        graph_launches.clear(driver)


def graph_launch():
    return as_graphs


def graph_launches_kept():
    return graph_launches.size()


def set_observed(bint on):
    global observed
    observed = on


def set_blocking(bint on):
    global blocking
    blocking = on


# -- kernels by signature --------------------------------------------------------------------------

cdef str LETTERS = "PRiIqQfdB"


cdef inline int read_extents(object dims, unsigned* extents) except -1:
    """1 to 3 extents of a grid or a block, filled up with ones."""
    cdef Py_ssize_t i
    extents[0] = extents[1] = extents[2] = 1
    if not isinstance(dims, tuple):
        extents[0] = dims
        return 0
    if not 1 <= len(<tuple>dims) <= 3:
        raise ValueError(f"a grid or block has 1 to 3 dimensions, got {dims!r}")
    for i in range(len(<tuple>dims)):
        extents[i] = (<tuple>dims)[i]
    return 0


cdef class Kernel:
    cdef CUfunction function_
    cdef char letters[MAX_PARAMETERS]
    cdef readonly str signature
    cdef readonly str name
    cdef readonly bint overlapping

    def __init__(self, uintptr_t function, str signature, *, bint overlapping=False,
                 str name="kernel"):
        unknown = set(signature) - set(LETTERS)
        if unknown:
            raise ValueError(
                f"signature {signature!r} has unknown letters {''.join(sorted(unknown))!r}; "
                "P pointer, R pointer that is only read, i int32, I uint32, q int64, Q uint64, "
                "f float, d double, B bytes")
        if len(signature) > MAX_PARAMETERS:
            raise ValueError(
                f"a kernel takes at most {MAX_PARAMETERS} parameters here, got {len(signature)}")
        self.function_ = <CUfunction>function
        self.signature = signature
        self.name = name
        self.overlapping = overlapping
        for i, letter in enumerate(signature):
            self.letters[i] = ord(letter)

    @property
    def function(self):
        return <uintptr_t>self.function_

    def __repr__(self):
        return f"<Kernel 0x{self.function:x} signature={self.signature!r}>"

    def __call__(self, int device, grid, block, unsigned shared_bytes, *arguments):
        cdef char packed[PARAMETER_BYTES]
        cdef void* addresses[MAX_PARAMETERS]
        cdef unsigned g[3]
        cdef unsigned b[3]
        read_extents(grid, g)
        read_extents(block, b)
        self.pack(arguments, packed, addresses)
        if not (g[0] and g[1] and g[2]):
            return
        _state.ensure_context(device)
        if self.overlapping:
            launch_overlapping(
                self.function_, g[0], g[1], g[2], b[0], b[1], b[2], shared_bytes,
                _state.thread_state().streams[device], addresses)
        else:
            launch(
                self.function_, g[0], g[1], g[2], b[0], b[1], b[2], shared_bytes,
                _state.thread_state().streams[device], addresses)
        if observed:
            self.tell(device, arguments)

    cdef int tell(self, int device, tuple arguments) except -1:
        from flambeau.runtime import observers
        given = [(letter, a) for letter, a in zip(self.signature, arguments)
                 if letter in "PR" and not isinstance(a, int)]
        observers.notify("operation", self.name,
                         tuple([a for letter, a in given if letter == "R"]),
                         tuple([a for letter, a in given if letter == "P"]),
                         <uintptr_t>_state.thread_state().streams[device])
        return 0

    cdef int pack(self, tuple arguments, char* packed, void** addresses) except -1:
        cdef Py_ssize_t i, offset = 0
        cdef char letter
        if len(arguments) != len(self.signature):
            raise TypeError(
                f"the kernel takes {len(self.signature)} arguments ({self.signature}), got "
                f"{len(arguments)}")
        for i in range(len(arguments)):
            offset = (offset + 15) & ~15
            if offset > PARAMETER_BYTES - 16:
                raise ValueError(f"the arguments exceed {PARAMETER_BYTES} bytes")
            letter = self.letters[i]
            argument = arguments[i]
            addresses[i] = packed + offset
            if letter == c"P" or letter == c"R":
                (<uint64_t*>(packed + offset))[0] = pointer_of(argument)
            elif letter == c"q":
                (<int64_t*>(packed + offset))[0] = argument
            elif letter == c"i":
                (<int32_t*>(packed + offset))[0] = argument
            elif letter == c"d":
                (<double*>(packed + offset))[0] = argument
            elif letter == c"f":
                (<float*>(packed + offset))[0] = argument
            elif letter == c"Q":
                (<uint64_t*>(packed + offset))[0] = argument
            elif letter == c"I":
                (<uint32_t*>(packed + offset))[0] = argument
            else:
                offset += pack_bytes(argument, packed + offset, PARAMETER_BYTES - offset)
                continue
            offset += 8
        return 0


cdef uint64_t pointer_of(argument) except? 0:
    if isinstance(argument, int):
        return argument
    return argument.data_ptr()


cdef Py_ssize_t pack_bytes(argument, char* target, Py_ssize_t room) except -1:
    cdef bytes value = argument
    if len(value) > room:
        raise ValueError(f"the arguments exceed {PARAMETER_BYTES} bytes")
    memcpy(target, <const char*>value, len(value))
    return len(value)
