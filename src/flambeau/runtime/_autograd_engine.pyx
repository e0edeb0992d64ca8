# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The backward pass: nodes in reverse order of the forward, each on the stream of its forward.

Where a gradient was made on one stream and is used on another, the second waits for the first. At
the end the caller's streams wait for those on which leaves got their gradients, so that the pass as
a whole is ordered like one operation on the caller's stream.
"""
from heapq import heappop, heappush

from libc.stdint cimport int64_t

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _state
from flambeau.runtime._autograd cimport (
    AccumulateGrad, AutogradMeta, Node, edge_of, grad_state, meta_of, tracked)
from flambeau.runtime._dtype cimport dtype_of, type_category
from flambeau.runtime._stream cimport make_stream
from flambeau.runtime._tensor cimport Tensor, result_class

cdef bint _override_stale = False       # of the streams of nodes that were made before a capture


def set_override_stale_capture_stream(bint enabled):
    """Have backward nodes from before a capture run on the capturing stream, instead of an error."""
    global _override_stale
    _override_stale = enabled


def get_override_stale_capture_stream():
    """Whether that is so."""
    return _override_stale


# What one pass knows.
cdef class Pass:
    cdef dict waiting                   # node -> how many gradients are still to come
    cdef dict buffers                   # node -> list of gradients by output
    cdef set needed                     # nodes on the way to the inputs asked for; None: all
    cdef dict captures                  # node -> {output: number of the input asked for}
    cdef list captured
    cdef list ready                     # heap of (-sequence, tie, node)
    cdef int64_t ties
    cdef bint keep
    cdef bint accumulate
    cdef set leaf_streams               # (device, handle, id) of streams that hold results

    cdef int push(self, Node node) except -1:
        self.ties += 1
        heappush(self.ready, (-node.sequence, self.ties, node))
        return 0


cdef int _count(Pass work, list roots) except -1:
    """For every reachable node, how many edges lead to it."""
    cdef list stack = list(roots)
    cdef set seen = set(roots)
    cdef Node node, next
    while stack:
        node = stack.pop()
        for edge in node.edges:
            if edge is None:
                continue
            next = <Node>(<tuple>edge)[0]
            work.waiting[next] = work.waiting.get(next, 0) + 1
            if next not in seen:
                seen.add(next)
                stack.append(next)
    return 0


cdef int _mark_needed(Pass work, list roots) except -1:
    """Which nodes lead to an input that was asked for."""
    cdef dict state = {}                # node -> True, False, or None while under way
    cdef list stack = [(root, False) for root in roots]
    cdef Node node
    while stack:
        node, left = stack.pop()
        if left:
            found = node in work.captures
            for edge in node.edges:
                if edge is not None and (state.get(edge[0]) or edge[0] in work.captures):
                    found = True
            state[node] = found
        elif node not in state:
            state[node] = None
            stack.append((node, True))
            for edge in node.edges:
                if edge is not None and edge[0] not in state:
                    stack.append((edge[0], False))
    work.needed = {node for node, found in state.items() if found}
    return 0


# -- gradients between nodes ------------------------------------------------------------------------

cdef object _shaped(Node node, int output, object gradient, Node giver, int place):
    """A gradient with shape, dtype and device of what it is the gradient of."""
    cdef Tensor t
    cdef tuple wanted
    if not isinstance(gradient, Tensor):
        raise TypeError(
            f"{_name(giver)} returned a {type(gradient).__name__} as gradient {place}, expected a Tensor or None")
    t = <Tensor>gradient
    if output >= len(node.results):
        return gradient
    wanted = <tuple>node.results[output]
    if t.device_index != <int>wanted[2]:
        if t.ndim_ and t.device_index >= 0 and <int>wanted[2] >= 0 or (t.ndim_ and len(wanted[0])):
            raise RuntimeError(
                f"Function {_name(giver)} returned an invalid gradient at index {place} - expected device "
                f"{'cpu' if <int>wanted[2] < 0 else 'cuda:%d' % wanted[2]} but got {gradient.device}")
    shape = gradient.shape
    if shape != wanted[0]:
        if not _expands(wanted[0], shape):
            raise RuntimeError(
                f"Function {_name(giver)} returned an invalid gradient at index {place} - got {list(shape)} but "
                f"expected shape compatible with {list(wanted[0])}")
        from flambeau.ops.derivatives import sum_to
        gradient = sum_to(gradient, wanted[0])
        t = <Tensor>gradient
    if t.scalar_type != <int>wanted[1]:
        if type_category[t.scalar_type] == 3 and type_category[<int>wanted[1]] != 3:
            gradient = gradient.real
        gradient = gradient.to(dtype_of(<int>wanted[1]))
        t = <Tensor>gradient
    if t.device_index != <int>wanted[2]:
        gradient = gradient.to("cpu" if <int>wanted[2] < 0 else f"cuda:{wanted[2]}")
    return gradient


cdef str _name(Node node):
    return "backward" if node is None else node.name()


cdef bint _expands(shape, to):
    """Whether the first shape broadcasts to the second."""
    cdef int shift = len(to) - len(shape), i
    if shift < 0:
        return False
    for i in range(len(shape)):
        if shape[i] != 1 and shape[i] != to[i + shift]:
            return False
    return True


cdef int _deliver(Pass work, Node node, int output, Tensor gradient) except -1:
    """Put a gradient, made on its device's current stream, into a node's buffer."""
    cdef list buffer = <list>work.buffers.get(node)
    cdef int device = gradient.device_index
    cdef CUstream made_on
    cdef bint switched = False
    cdef bint first
    cdef _state.ThreadState* state
    first = buffer is None
    if first:
        buffer = work.buffers[node] = [None] * max(len(node.results), output + 1)
    if device >= 0 and device == node.device:
        state = _state.thread_state()
        made_on = state.streams[device]
        if not work.accumulate and type(node) is AccumulateGrad and first:
            node.stream, node.stream_id = made_on, state.stream_ids[device]     # it is only looked at
        elif made_on != node.stream:
            _cross(node, gradient, device, made_on, state.stream_ids[device])
            switched = made_on != node.stream
    if buffer[output] is None:
        buffer[output] = gradient
    elif switched:
        with _entered(device, node.stream, node.stream_id):
            buffer[output] = buffer[output] + gradient
    else:
        buffer[output] = buffer[output] + gradient
    return 0


cdef object _entered(int device, CUstream stream, int64_t id):
    from flambeau.runtime._stream_context import stream as entered
    return entered(make_stream(device, stream, id))


cdef int _cross(Node node, Tensor gradient, int device, CUstream made_on, int64_t made_id) except -1:
    """Have the node's stream wait for the one a gradient was made on."""
    if _state.captures and _state.is_captured(made_on) and not _state.is_captured(node.stream):
        if _override_stale:
            node.stream, node.stream_id = made_on, made_id
            return 0
        if node.stream_id == 0:
            raise RuntimeError(
                f"{node.name()} holds a stale reference to the default stream: it was made there before this graph "
                "capture, so its backward cannot be captured. Drop the outputs of earlier passes before the capture, "
                "run the warm-up on a side stream, or call "
                "torch.autograd.graph.set_override_stale_capture_stream(True).")
    to = make_stream(device, node.stream, node.stream_id)
    to.wait_stream(make_stream(device, made_on, made_id))
    gradient.record_stream(to)
    return 0


# -- running ---------------------------------------------------------------------------------------------

cdef object _replaced(object hook, object gradient):
    given = hook(gradient)
    if given is None:
        return gradient
    if not isinstance(given, Tensor):
        raise TypeError(f"a hook returned {type(given).__name__}, expected a Tensor or None")
    return given


cdef int _run_hooks(Node node, list gradients) except -1:
    cdef AutogradMeta meta
    cdef dict hooks
    cdef int i
    if type(node) is AccumulateGrad:
        meta = meta_of((<AccumulateGrad>node).variable)
        if meta.hooks and gradients[0] is not None:
            for hook in list(meta.hooks.values()):
                gradients[0] = _replaced(hook, gradients[0])
    elif node.tensor_hooks is not None:
        for i in range(len(gradients)):
            hooks = node.tensor_hooks.get(i)
            if hooks and gradients[i] is not None:
                for hook in list(hooks.values()):
                    gradients[i] = _replaced(hook, gradients[i])
    if node.pre_hooks:
        for hook in list(node.pre_hooks.values()):
            given = hook(tuple(gradients))
            if given is not None:
                gradients[:] = given if isinstance(given, (tuple, list)) else (given,)
    if node.retained is not None:
        for number, reference in node.retained.items():
            kept = reference()
            if kept is not None and number < len(gradients) and gradients[number] is not None:
                meta_of(<Tensor>kept).grad = gradients[number]
    return 0


cdef int _take_captures(Pass work, Node node, list gradients) except -1:
    for output, number in (<dict>work.captures[node]).items():
        if output < len(gradients):
            work.captured[number] = gradients[output]
            _note_leaf(work, node, gradients[output])
    return 0


cdef int _note_leaf(Pass work, Node node, object gradient) except -1:
    cdef int device
    if gradient is not None and (<Tensor>gradient).device_index >= 0:
        device = (<Tensor>gradient).device_index
        work.leaf_streams.add((device, <int64_t>_state.thread_state().streams[device],
                               _state.thread_state().stream_ids[device]))
    return 0


cdef int _step(Pass work, Node node) except -1:
    """Run one node on its stream and pass its gradients on."""
    cdef list gradients = <list>work.buffers.pop(node, None)
    cdef list made
    cdef Node next
    cdef int i
    if gradients is None:
        gradients = [None] * len(node.results)
    _run_hooks(node, gradients)
    if node in work.captures:
        _take_captures(work, node, gradients)
    if not _wanted(work, node):
        made = [None] * len(node.edges)
    elif type(node) is AccumulateGrad:
        _note_leaf(work, node, gradients[0])
        node.run(gradients)
        return 0
    else:
        given = tuple(gradients) if node.post_hooks else None
        made = _run_in_scope(node, gradients)
        if not work.keep:
            node.release()
        if given is not None:
            for hook in list(node.post_hooks.values()):
                replaced = hook(tuple(made), given)
                if replaced is not None:
                    made = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
        if len(made) != len(node.edges):
            raise RuntimeError(
                f"function {node.name()} returned an incorrect number of gradients (expected {len(node.edges)}, got "
                f"{len(made)})")
    for i in range(len(node.edges)):
        edge = node.edges[i]
        if edge is None:
            continue
        next = <Node>(<tuple>edge)[0]
        gradient = made[i]
        made[i] = None
        if gradient is not None and (work.needed is None or next in work.needed):
            _deliver(work, next, (<tuple>edge)[1], <Tensor>_shaped(next, (<tuple>edge)[1], gradient, node, i))
        gradient = None
        work.waiting[next] -= 1
        if work.waiting[next] == 0:
            work.push(next)
    return 0


cdef bint _wanted(Pass work, Node node):
    """Whether a node is to run: it leads to an input that was asked for."""
    if work.needed is None:
        return True
    if type(node) is AccumulateGrad:
        return work.accumulate and node in work.needed
    for edge in node.edges:
        if edge is not None and edge[0] in work.needed:
            return True
    return False


cdef list _run_in_scope(Node node, list gradients):
    if node.scope is None:
        return node.run(gradients)
    with node.scope:
        return node.run(gradients)


cdef int _run_node(Pass work, Node node) except -1:
    cdef _state.ThreadState* state
    if node.device < 0:
        return _step(work, node)
    state = _state.thread_state()
    if state.device == node.device and state.streams[node.device] == node.stream:
        return _step(work, node)
    with _entered(node.device, node.stream, node.stream_id):
        return _step(work, node)


cdef int _join(Pass work) except -1:
    """The caller's streams wait for those on which results were made."""
    cdef _state.ThreadState* state = _state.thread_state()
    for device, handle, id in work.leaf_streams:
        if <int64_t>state.streams[<int>device] != <int64_t>handle:
            own = make_stream(device, state.streams[<int>device], state.stream_ids[<int>device])
            own.wait_stream(make_stream(device, <CUstream><int64_t>handle, id))
    return 0


def run_backward(list outputs not None, list gradients not None, bint keep_graph, bint create_graph,
                 list inputs=None, bint accumulate=True):
    """Run a backward pass.

    Parameters
    ----------
    outputs, gradients
        Tensors, and the gradients with respect to them.
    keep_graph
        Whether saved tensors stay.
    create_graph
        Whether the pass is recorded.
    inputs
        Tensors to compute gradients of; None for all leaves.
    accumulate
        Whether the gradients are added to ``grad``, or returned.

    Returns
    -------
    list
        Gradients of `inputs`, or None where there is no path; empty if they are accumulated.
    """
    cdef Pass work = Pass.__new__(Pass)
    cdef Node node
    cdef list roots = []
    cdef int i
    cdef bint before = grad_state().grad
    cdef bint cast = grad_state().autocast
    work.waiting, work.buffers, work.captures, work.ready, work.leaf_streams = {}, {}, {}, [], set()
    work.keep, work.accumulate = keep_graph, accumulate
    work.captured = [] if inputs is None else [None] * len(inputs)
    grad_state().grad = create_graph
    grad_state().autocast = False
    try:
        for i in range(len(outputs)):
            node, number = edge_of(<Tensor>outputs[i])
            if node not in roots:
                roots.append(node)
            _deliver(work, node, number, <Tensor>_shaped(node, number, gradients[i], None, i))
        if inputs is not None:
            _ask_for(work, inputs)
        _count(work, roots)
        if inputs is not None:
            _mark_needed(work, roots)
            if accumulate:
                work.captures = {node: wanted for node, wanted in work.captures.items()
                                 if type(node) is not AccumulateGrad}
        for node in roots:
            if not work.waiting.get(node):
                work.push(node)
        while work.ready:
            node = <Node>heappop(work.ready)[2]
            _run_node(work, node)
            node = None
        if accumulate and work.captures:
            _accumulate_captured(work, inputs)
        _join(work)
    finally:
        grad_state().grad = before
        grad_state().autocast = cast
    return [] if accumulate else _results(work, inputs)


cdef int _ask_for(Pass work, list inputs) except -1:
    cdef int number
    for number, one in enumerate(inputs):
        node, output = edge_of(<Tensor>one)
        wanted = work.captures.setdefault(node, {})
        while output in wanted:          # the same tensor twice
            inputs[number] = wanted[output]
            break
        else:
            wanted[output] = number
    return 0


cdef int _accumulate_captured(Pass work, list inputs) except -1:
    """Add gradients of inputs that are no leaves to their ``grad``."""
    cdef AutogradMeta meta
    for number, gradient in enumerate(work.captured):
        if gradient is not None:
            meta = meta_of(<Tensor>inputs[number])
            meta.grad = gradient if meta.grad is None else meta.grad + gradient


cdef list _results(Pass work, list inputs):
    return [work.captured[one] if isinstance(one, int) else work.captured[number]
            for number, one in enumerate(inputs)]
