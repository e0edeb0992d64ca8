# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Graphs: capturing the work of streams once and launching it many times."""
import warnings

from libc.stdint cimport uintptr_t
from libcpp.optional cimport optional

from flambeau.driver._table cimport (
    CUDA_SUCCESS, CUdeviceptr, CUresult, check, driver, raise_status,
)
from flambeau.runtime cimport _launch, _state
from flambeau.runtime._allocator_pools cimport begin_allocate_to_pool, end_allocate_to_pool
from flambeau.runtime._allocator_types cimport PoolId, RouteFilter
from flambeau.runtime._generator cimport Generator, PhiloxArguments

from flambeau.driver import errors
from flambeau.runtime import (
    _allocator, _allocator_pools, _generator, _graph_data, capture_report, lazy_init,
)
from flambeau.runtime._state import defer_call, has_context

cdef extern from "flambeau/runtime/driver_scope.hpp" namespace "flambeau" nogil:
    cdef cppclass OutsideCapture:
        pass

cdef extern from "flambeau/runtime/graph_pool.hpp" namespace "flambeau" nogil:
    bint is_of_capture "flambeau::is_of_capture"(void*, CUstream) noexcept nogil

cdef enum:
    AUTO_FREE_ON_LAUNCH = 1
    USE_NODE_PRIORITY = 8
    DISABLE_TIMING = 2
    NOT_READY = 600
    CELL_BYTES = 16                     # of a generator: seed and offset
    MOST_GENERATORS = 16                # that one graph can draw from

cdef dict _modes = {"global": 0, "thread_local": 1, "relaxed": 2}
cdef bint replay_hooks = False          # somebody wants to hear of all graphs' replays
cdef list _capturing = []               # graphs whose capture is under way, the newest last
cdef object _close_bodies = None        # of a capture that ends with bodies open
cdef list _leftovers = []               # (kind, handle, epoch): to destroy when no capture is under way
cdef list _running = []                 # (event, host functions that may be called before it, epoch)


# -- what must wait for the end of all captures ----------------------------------------------------

cdef int discard(str kind, uintptr_t handle, int made_in, bint later=False) except -1:
    """Destroy a template, an executable or an event: later, if asked or while a capture is under way."""
    if not handle or made_in != _state.epoch:
        return 0
    _leftovers.append((kind, handle, made_in))
    if later:
        defer_call(destroy_all)
    elif not _state.captures:
        destroy_leftovers()
    return 0


cdef int destroy_leftovers() except -1:
    cdef uintptr_t handle
    while _leftovers and not _state.captures:
        kind, handle, made_in = _leftovers.pop()
        if made_in != _state.epoch:
            continue
        # What fails here concerns nobody: the owner is gone.
        if kind == "exec":
            driver.GraphExecDestroy(<CUgraphExec>handle)
        elif kind == "graph":
            driver.GraphDestroy(<CUgraph>handle)
        else:
            driver.EventDestroy(<CUevent>handle)
    if _running and not _state.captures:
        let_functions_go()
    return 0


cdef int let_functions_go() except -1:
    """Drop the host functions of graphs that are gone, once their last replays are done."""
    cdef optional[OutsideCapture] scope     # another library may be capturing
    cdef CUevent event
    scope.emplace(driver)
    for entry in list(_running):
        event = <CUevent><uintptr_t>entry[0]
        if entry[2] == _state.epoch:
            if driver.EventQuery(event) == NOT_READY:
                continue
            driver.EventDestroy(event)
        _running.remove(entry)
    return 0


def destroy_all():
    """Destroy what finalizers left, unless a capture is under way: its end does it then."""
    destroy_leftovers()


def forget():
    """Every handle is void."""
    _capturing.clear()
    _leftovers.clear()
    _running.clear()
    capture_report.forget()


def set_replay_hooks(bint on):
    global replay_hooks
    replay_hooks = on


def any_capturing():
    return _state.captures > 0


def currently_capturing():
    """The graph whose capture the calling thread's current stream belongs to, or None."""
    cdef _state.ThreadState* state = _state.thread_state()
    cdef CapturedGraph graph
    for graph in reversed(_capturing):
        if is_part(graph, state.streams[state.device]):
            return graph
    return None


cdef bint is_part(CapturedGraph graph, CUstream stream) noexcept:
    """Whether a stream is captured into the graph or into one of its bodies."""
    cdef ConditionalBody body
    if is_of_capture(&graph.filter, stream):
        return True
    for body in graph.bodies:
        if is_of_capture(&body.filter, stream):
            return True
    return False


def set_body_closer(close_bodies):
    """`_graph_conditional` says what ends the bodies that are open."""
    global _close_bodies
    _close_bodies = close_bodies


def keep(tensor):
    """Captured work copies pinned memory: the graph holds it as long as it may be replayed."""
    cdef CapturedGraph graph = currently_capturing()
    if graph is not None:
        graph.kept.append(tensor)


def keep_function(uintptr_t stream, function):
    """A captured stream is to call a host function: its graph holds it as long as it may be replayed.

    False if no graph here captures the stream.
    """
    cdef CapturedGraph graph
    for graph in _capturing:
        if is_part(graph, <CUstream>stream):
            graph.functions.append(function)
            return True
    return False


def note_pool(int device, pool_id):
    """A thread takes memory from a pool: the capture that it is in, if any, becomes a user of it."""
    cdef CapturedGraph graph = currently_capturing() if _state.captures else None
    if graph is not None and pool_id != graph.pool_id and (device, pool_id) not in graph.shared_pools:
        _allocator_pools.retain_pool(device, pool_id)
        graph.shared_pools.append((device, pool_id))


# -- random numbers --------------------------------------------------------------------------------

cdef class CapturedGenerator:
    pass


cdef class ConditionalBody:
    def __cinit__(self):
        self.devices = []


def join_generator(Generator generator not None):
    """Have a generator that a capture draws from read its seed and offset from device memory.

    Nothing if the current stream of the generator's device is not captured.
    """
    cdef CapturedGraph graph
    cdef CapturedGenerator joined
    cdef uint64_t address
    cdef int device = generator.device.index
    cdef CUstream stream = _state.thread_state().streams[device]
    for graph in _capturing:
        if graph.bodies and generator.philox is not None and is_part(graph, stream):
            raise RuntimeError(
                "random numbers cannot be drawn in the body of a conditional node: how often it runs, and "
                "so by how much the generator advances, is known on the device only. Draw them before it")
        if generator.philox is None or not is_of_capture(&graph.filter, stream):
            continue
        if len(graph.generators) == MOST_GENERATORS:
            raise RuntimeError(f"a graph can draw from at most {MOST_GENERATORS} generators")
        if device not in graph.cells:       # its kernels read them, so they are where it is
            graph.cells[device] = _allocator.allocate(CELL_BYTES * MOST_GENERATORS, device, <uintptr_t>stream)
        address = graph.cells[device].address + CELL_BYTES * <uint64_t>generators_on(graph, device)
        joined = CapturedGenerator.__new__(CapturedGenerator)
        joined.device = device
        joined.state = generator.philox
        joined.state.cells = PhiloxArguments(address, address + 8, 0, 1)
        graph.generators.append(joined)


cdef int generators_on(CapturedGraph graph, int device) noexcept:
    cdef CapturedGenerator joined
    cdef int count = 0
    for joined in graph.generators:
        count += joined.device == device
    return count


cdef int release_generators(CapturedGraph graph) noexcept:
    cdef CapturedGenerator joined
    for joined in graph.generators:
        joined.total = joined.state.cells.graph_offset
        joined.state.cells = PhiloxArguments(0, 0, 0, 0)
    return 0


cdef int write_cells(CapturedGraph graph, CUstream stream) except -1:
    """Give the next launch its seeds and offsets, in a small copy a device, and advance the generators."""
    cdef uint64_t values[2 * MOST_GENERATORS]
    cdef CapturedGenerator joined
    cdef CUdeviceptr cells
    cdef CUresult status
    cdef int i, device
    if graph.last_launch != NULL and graph.last_stream != stream:
        check(driver.StreamWaitEvent(stream, graph.last_launch, 0))
    for device, allocation in graph.cells.items():
        cells = allocation.address
        i = 0
        for joined in graph.generators:
            if joined.device == device:
                values[i] = joined.state.seed
                values[i + 1] = joined.state.offset
                i += 2
        with nogil:  # the driver copies so few bytes of pageable memory before it returns
            status = driver.MemcpyHtoDAsync(cells, values, i * sizeof(uint64_t), stream)
        check(status)
    for joined in graph.generators:
        joined.state.offset += joined.total
    return 0


cdef int mark_launch(CapturedGraph graph, CUstream stream) except -1:
    """The cells must not be written again, on whatever stream, before this launch is done."""
    if graph.last_launch == NULL:
        check(driver.EventCreate(&graph.last_launch, DISABLE_TIMING))
    graph.last_stream = stream
    return check(driver.EventRecord(graph.last_launch, stream))


# -- graphs ----------------------------------------------------------------------------------------

cdef int tell_launch(CapturedGraph graph) except -1:
    from flambeau.runtime import observers
    observers.notify(
        "graph_launch", graph.filter.id, <uintptr_t>_state.thread_state().streams[graph.device],
        graph.device)
    return 0


cdef class CapturedGraph:
    """A graph's handles, memory and generators; `flambeau.cuda.CUDAGraph` adds hooks and export."""

    def __cinit__(self, bint keep_graph=False):
        self.keep_graph = keep_graph
        self.device = -1
        self.made_in = _state.epoch
        self.generators = []
        self.cells = {}
        self.bodies = []
        self.kept = []
        self.functions = []
        self.shared_pools = []
        self.pool_devices = []

    def __del__(self):
        if self.pool_devices is not None:  # else it was never made
            self._release(later=True)

    # -- capturing -------------------------------------------------------------------------------

    def capture_begin(self, pool=None, capture_error_mode="global", check_input_liveness=False):
        cdef CUresult status
        cdef int mode, capture_status = 0
        cdef CUstream stream
        if self.captured or self.capturing:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance, or reset() this one.")
        if capture_error_mode not in _modes:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}")
        _state.require_initialized()
        _state.note_call()
        self.device = _state.thread_state().device
        stream = _state.thread_state().streams[self.device]
        if stream == NULL:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                "replay them on the default stream.) Use `with torch.cuda.graph(g):`, or make a stream current "
                "with torch.cuda.stream().")
        self.made_in = _state.epoch
        self.pool_id = _allocator_pools.new_graph_id() if pool is None else pool_pair(pool)
        _state.ensure_context(self.device)
        mode = _modes[capture_error_mode]
        with nogil:
            status = driver.StreamBeginCapture(stream, mode)
        check(status)
        self.stream = stream
        self.filter.driver = driver
        status = driver.StreamGetCaptureInfo(
            stream, &capture_status, &self.filter.id, NULL, NULL, NULL, NULL)
        if status != CUDA_SUCCESS:
            end_quietly(stream)
            check(status)
        self.capturing = True
        _state.captures += 1
        _capturing.append(self)
        self.report = capture_report.begin(
            f"stream 0x{<uintptr_t>stream:x} of cuda:{self.device}", self.is_broken)
        try:
            begin_routes(self)
        except BaseException:
            give_up(self)
            raise

    def is_broken(self):
        """Whether the capture under way was invalidated."""
        cdef int status = 0
        if self.capturing:
            driver.StreamIsCapturing(self.stream, &status)
        return status == 2

    def first_error(self):
        """The error that broke the capture under way, or None."""
        return None if self.report is None else self.report.first

    def capture_end_pre(self):
        cdef CUresult status
        cdef CUgraph graph = NULL
        cdef CUstream stream
        if not self.capturing:
            raise RuntimeError("capture_end() must be preceded by a call to capture_begin().")
        if self.bodies:
            raise RuntimeError(
                "the capture cannot end in the body of a conditional node: call "
                "end_capture_to_conditional_node() first")
        stream = _state.thread_state().streams[self.device]
        if stream != self.stream:
            raise RuntimeError(
                "Capture must end on the same stream it began on. Make that stream current again: "
                f"it is 0x{<uintptr_t>self.stream:x}, and 0x{<uintptr_t>stream:x} is current.")
        _state.ensure_context(self.device)
        report = self.report
        try:
            loose = unjoined_forks(self)
        except errors.AcceleratorError:
            loose = []  # what the driver does not tell cannot be reported
        with nogil:
            status = driver.StreamEndCapture(self.stream, &graph)
        if status != CUDA_SUCCESS:
            end_quietly(self.stream)
        finish_capture(self)
        if status != CUDA_SUCCESS:
            drop_pools(self)
            self.forget_work()
            raise_broken(status, report, loose)
        self.template_ = graph
        self.captured = True
        if not self.quiet:
            self.warn(report)

    cdef int warn(self, report) except -1:
        for stream_pointer, where in report.uncaptured.items():
            warnings.warn(
                f"Work was given to stream 0x{stream_pointer:x} during the capture, which is no part of it: "
                f"it ran at once and no replay will run it. It was first done by {where}. Let the stream wait "
                "for the capturing one first, and that one for it before the end.", UserWarning, stacklevel=2)
        if not node_count(self.template_):
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
                "wrong device or stream.", UserWarning, stacklevel=2)

        return 0

    def _warn_at_end(self, bint on):
        """Whether the end of the capture warns of what is odd about it."""
        self.quiet = not on

    def capture_end_post(self):
        """Drop what replays do not need."""
        if not self.keep_graph and self.template_ != NULL:
            discard("graph", <uintptr_t>self.template_, self.made_in)
            self.template_ = NULL

    # -- running -----------------------------------------------------------------------------------

    def _instantiate(self):
        """Make an executable; the old one goes. False if there is nothing to make it of."""
        cdef CUgraphExec made = NULL
        cdef CUresult status
        cdef optional[OutsideCapture] scope
        if not self.captured:
            raise RuntimeError(
                "capture_end() must have been called before calling instantiate: this CUDAGraph has "
                "no captured graph yet. Capture one with `with torch.cuda.graph(g):`.")
        if self.exec_ != NULL and not self.keep_graph:
            raise RuntimeError(
                "instantiate() is intended to be called by the user only when keep_graph=true: otherwise "
                "the end of the capture does it, once.")
        if self.template_ == NULL:
            raise RuntimeError("No cudaGraph_t is available: the template was dropped after the capture.")
        _state.note_call()
        _state.ensure_context(self.device)
        if not _state.captures:         # one's own capture forbids it, another library's does not
            scope.emplace(driver)
        with nogil:
            status = driver.GraphInstantiateWithFlags(
                &made, self.template_, AUTO_FREE_ON_LAUNCH | USE_NODE_PRIORITY)
        scope.reset()
        _state.restore_context()
        check(status)
        discard("exec", <uintptr_t>self.exec_, self.made_in)
        self.exec_ = made
        self.plain = not self.generators and not self.functions

    def replay(self):
        """replay()\n--\n
        Launch it on the current stream of its device (``cuGraphLaunch``); returns at once.

        A graph never overlaps itself. The current seeds of the generators that it draws from count.

        Raises
        ------
        RuntimeError
            Nothing was captured, or an input that was to be watched is gone.
        """
        if self.plain and not self.hooked and not replay_hooks:
            self.replay_plainly()
        else:
            self._replay_with_hooks()

    def _replay_with_hooks(self):
        """What a replay is when something goes with it; subclasses say what."""
        self._launch()

    def _follow_replays(self, bint on):
        """Whether every replay has to go through `_replay_with_hooks`."""
        self.hooked = on

    cdef int replay_plainly(self) except -1:
        _state.note_call()
        _state.ensure_context(self.device)
        _launch.launch_graph(self.exec_, _state.thread_state().streams[self.device])
        if _launch.observed:
            tell_launch(self)
        if _state.thread_state().device != self.device:
            _state.restore_context()
        return 0

    def _launch(self):
        """Launch it on the current stream of its device."""
        cdef CUstream stream
        if self.plain:
            self.replay_plainly()
            return
        if self.exec_ == NULL:
            raise RuntimeError(
                "capture_end() must have been called before calling instantiate or replay: this "
                "CUDAGraph has no captured graph. Capture one with `with torch.cuda.graph(g):`.")
        _state.note_call()
        _state.ensure_context(self.device)
        stream = _state.thread_state().streams[self.device]
        if self.generators:
            write_cells(self, stream)
        _launch.launch_graph(self.exec_, stream)
        if self.generators or self.functions:
            mark_launch(self, stream)
        if _launch.observed:
            tell_launch(self)
        if _state.thread_state().device != self.device:
            _state.restore_context()

    def _release(self, bint later=False):
        """Give everything back; `later`: destroy nothing now. A capture under way is given up."""
        if self.capturing and self.made_in == _state.epoch:
            give_up(self)
        self.capturing = False
        if _launch.observed and self.captured:
            from flambeau.runtime import observers
            observers.notify("graph_release", self.filter.id)
        if self.functions and self.last_launch != NULL and self.made_in == _state.epoch:
            _running.append((<uintptr_t>self.last_launch, self.functions, self.made_in))
            self.last_launch = NULL
        discard("exec", <uintptr_t>self.exec_, self.made_in, later)
        discard("graph", <uintptr_t>self.template_, self.made_in, later)
        discard("event", <uintptr_t>self.last_launch, self.made_in, later)
        self.exec_ = NULL
        self.template_ = NULL
        self.last_launch = NULL
        self.captured = self.plain = False
        self.forget_work()
        drop_pools(self)

    cdef int forget_work(self) except -1:
        self.generators = []
        self.kept = []
        self.functions = []
        self.cells = {}
        return 0

    # -- what it is --------------------------------------------------------------------------------

    @property
    def _has_graph_exec(self):
        return self.exec_ != NULL

    @property
    def _is_capturing(self):
        return self.capturing

    @property
    def _has_graph(self):
        return self.template_ != NULL

    @property
    def _device(self):
        return self.device

    def _keep(self):
        self.keep_graph = True

    def _keeps_graph(self):
        return self.keep_graph

    def pool(self):
        if self.pool_id is None:
            raise RuntimeError(
                "Called CUDAGraph::pool() without a preceding successful capture: it has no memory yet.")
        return self.pool_id

    def pools(self):
        return [self.pool(), *dict.fromkeys(pool for _, pool in self.shared_pools)]

    def raw_cuda_graph(self):
        if self.template_ == NULL:
            raise RuntimeError(
                "No cudaGraph_t is available: capture a graph, and create it with keep_graph=True to keep the "
                "template after the capture.")
        return <uintptr_t>self.template_

    def raw_cuda_graph_exec(self):
        if self.exec_ == NULL:
            raise RuntimeError(
                "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called.")
        return <uintptr_t>self.exec_


# -- steps of a capture ----------------------------------------------------------------------------

cdef object pool_pair(pool):
    """A pool argument as its id: a pair of ints, or what has one as `id`."""
    pair = getattr(pool, "id", pool)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(
            "pool is what graph_pool_handle() or another graph's pool() gave, or a MemPool, got "
            f"{type(pool).__name__}")
    return (int(pair[0]), int(pair[1]))


cdef int begin_routes(CapturedGraph graph) except -1:
    """Take the capture's memory from the graph's pool, on every device that is in use."""
    cdef int device
    cdef PoolId pool = PoolId(graph.pool_id[0], graph.pool_id[1])
    for device in range(_state.device_total):
        if has_context(device):
            begin_allocate_to_pool(
                device, pool, <RouteFilter>is_of_capture, &graph.filter, True)
            graph.pool_devices.append(device)
    return 0


cdef int finish_capture(CapturedGraph graph) except -1:
    """The driver's capture is over, well or not."""
    cdef PoolId pool = PoolId(graph.pool_id[0], graph.pool_id[1])
    graph.capturing = False
    _state.captures -= 1
    _launch.forget_captured()
    if graph in _capturing:
        _capturing.remove(graph)
    capture_report.end(graph.report)
    graph.report = None
    release_generators(graph)
    for device in graph.pool_devices:
        end_allocate_to_pool(device, pool, &graph.filter, True)
    destroy_leftovers()
    return 0


cdef int end_quietly(CUstream stream) noexcept:
    """End the driver's capture of a stream, if there is one still, and drop what it made."""
    cdef CUgraph made = NULL
    cdef int status = 0
    driver.StreamIsCapturing(stream, &status)
    if status and driver.StreamEndCapture(stream, &made) == CUDA_SUCCESS:
        driver.GraphDestroy(made)
    return 0


cdef int give_up(CapturedGraph graph) except -1:
    """End the driver's capture and keep nothing of it."""
    if graph.bodies:
        _close_bodies(graph)
    end_quietly(graph.stream)
    finish_capture(graph)
    graph.forget_work()
    drop_pools(graph)
    return 0


cdef int drop_pools(CapturedGraph graph) except -1:
    for device in graph.pool_devices:
        _allocator_pools.drop_pool(device, graph.pool_id)
    for device, pool in graph.shared_pools:
        _allocator_pools.drop_pool(device, pool)
    graph.pool_devices = []
    graph.shared_pools = []
    graph.pool_id = None
    return 0


cdef size_t node_count(CUgraph graph) except? 0:
    cdef size_t count = 0
    check(driver.GraphGetNodes(graph, NULL, &count))
    return count


cdef object unjoined_forks(CapturedGraph graph):
    """Where the streams forked that the capture's origin does not wait for, as far as can be told."""
    cdef uintptr_t stream
    if not graph.report.forks or graph.is_broken():
        return []
    loose = []
    joined = None
    for stream, where in graph.report.forks.items():
        if not is_of_capture(&graph.filter, <CUstream>stream) or <CUstream>stream == graph.stream:
            continue
        _, frontier = _graph_data.frontier(stream)
        if joined is None:
            joined = _graph_data.waited_for(<uintptr_t>graph.stream)
        if not joined.issuperset(frontier):
            loose.append(f"stream 0x{stream:x}, which joined at {where}")
    return loose


cdef int raise_broken(CUresult status, report, loose) except -1:
    """The capture ended badly: raise what broke it first."""
    first = report.first
    if first is not None:
        raise errors.from_status(
            first.error_code, f"The capture of {report.name} was broken earlier, by this:\n{first}") from first
    try:
        raise_status(status)
    except errors.AcceleratorError as error:
        lines = [str(error), f"The capture: {report.name}, begun at {report.began}."]
        lines.extend(f"Not waited for: {text}." for text in loose)
        raise errors.AcceleratorError("\n".join(lines), error.error_code) from None


def launch_seconds(CapturedGraph graph not None, int count):
    """Seconds that one bare cuGraphLaunch takes, of `count` in a row; for benchmarks."""
    cdef CUstream stream = _state.thread_state().streams[graph.device]
    cdef int i
    import time
    _state.ensure_context(graph.device)
    start = time.perf_counter()
    for i in range(count):
        check(driver.GraphLaunch(graph.exec_, stream))
    return (time.perf_counter() - start) / count


_generator.set_joiner(join_generator)
lazy_init.on_forget(forget)
