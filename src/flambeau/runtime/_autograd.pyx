# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The backward graph: nodes, leaves, saved tensors, and what a tensor knows of them.

A tensor that takes part in gradients has an `AutogradMeta` in its rare slot; every other tensor has
None there, which is all that a forward without gradients ever looks at.
"""
cimport cython
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport INT64_MAX

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _state, _tensor
from flambeau.runtime._device cimport device_of
from flambeau.runtime._dims cimport shape_text
from flambeau.runtime._dtype cimport dtype_of, make_size, set_public_name, type_category
from flambeau.runtime._tensor cimport Tensor, TensorExtra, new_strided, new_view, share

import itertools
import threading
import weakref

from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/grad_state.hpp" namespace "flambeau" nogil:
    GradState* grad_state_of_thread()

cdef int64_t _sequence = 0
_hook_ids = itertools.count()
_saving = threading.local()             # .hooks: a stack of (pack, unpack)
scope_of_annotations = None             # gives the present scope of kernel annotations


cdef GradState* grad_state() noexcept nogil:
    return grad_state_of_thread()


def is_grad_enabled():
    """Whether this thread records gradients."""
    return grad_state_of_thread().grad


def is_inference_mode_enabled():
    """Whether this thread is inside `inference_mode`."""
    return grad_state_of_thread().inference


def set_modes(bint grad, bint inference):
    """Set both flags of this thread."""
    grad_state_of_thread().grad = grad
    grad_state_of_thread().inference = inference
    _state.thread_state().first_version = _state.UNCOUNTED if inference else 0


def set_scope_source(source):
    """Have every node keep ``source()``, the scope of kernel annotations it was made in."""
    global scope_of_annotations
    scope_of_annotations = source


# -- nodes -----------------------------------------------------------------------------------------

class RemovableHandle:
    """Takes a hook away again: by `remove`, or at the end of a ``with`` block.

    Parameters
    ----------
    hooks
        The dict that holds the hook.
    """

    def __init__(self, hooks):
        self.id = next(_hook_ids)
        self._hooks = hooks

    def remove(self):
        """Take the hook away; once is enough."""
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def add_hook(dict hooks not None, hook):
    """Put a hook into a dict of them; the handle takes it away again."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@cython.trashcan(True)
cdef class Node:
    """One step of the backward graph.

    Attributes
    ----------
    next_functions : tuple
        Per input the node its gradient goes to and the number of that node's output.
    metadata : dict
        For the user.
    """

    def __cinit__(self):
        self.device = -1
        self.edges = []
        self.results = []

    cdef list run(self, list gradients):
        raise NotImplementedError(f"{self.name()} has no backward")

    cdef int release(self) except -1:
        return 0

    cdef int begin(self, Tensor result) except -1:
        global _sequence
        self.sequence = _sequence
        _sequence += 1
        if result is not None and result.device_index >= 0:
            self.device = result.device_index
            self.stream = _state.thread_state().streams[self.device]
            self.stream_id = _state.thread_state().stream_ids[self.device]
        if scope_of_annotations is not None:
            self.scope = scope_of_annotations()
        return 0

    def name(self):
        """The operation's name, such as ``MulBackward0``."""
        return type(self).__name__

    @property
    def next_functions(self):
        return tuple([(None, 0) if edge is None else edge for edge in self.edges])

    @property
    def metadata(self):
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def _sequence_nr(self):
        return self.sequence

    @property
    def _input_metadata(self):
        return [(make_size_of(shape), dtype_of(code), device_of(index)) for shape, code, index in self.results]

    def register_prehook(self, hook):
        """Have ``hook(grad_outputs)`` called before the node runs; what it returns replaces them."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return add_hook(self.pre_hooks, hook)

    def register_hook(self, hook):
        """Have ``hook(grad_inputs, grad_outputs)`` called after; what it returns replaces the first."""
        if self.post_hooks is None:
            self.post_hooks = {}
        return add_hook(self.post_hooks, hook)

    def __call__(self, *gradients):
        """Run the node by itself."""
        return tuple(self.run(list(gradients)))


def make_size_of(shape):
    cdef int64_t[64] sizes
    cdef int i, n = len(shape)
    for i in range(n):
        sizes[i] = shape[i]
    return make_size(n, sizes)


cdef class AccumulateGrad(Node):
    """Where the gradient of a leaf ends: in its ``grad``."""

    cdef list run(self, list gradients):
        cdef AutogradMeta meta = meta_of(self.variable)
        gradient = gradients[0]
        if gradient is None:
            return []
        if meta.grad is None:
            meta.grad = _fresh_gradient(self.variable, <Tensor?>gradient, gradients)
        elif grad_state_of_thread().grad:
            meta.grad = meta.grad + gradient
        else:
            meta.grad += gradient
        if meta.post_accumulate:
            for hook in list(meta.post_accumulate.values()):
                hook(self.variable)
        return []


cdef Tensor _fresh_gradient(Tensor variable, Tensor gradient, list holder):
    """The gradient itself if nobody else has it or its memory, else a copy; strides as the variable's."""
    cdef Tensor base
    cdef int64_t others = 0
    cdef bint sole, same = variable.ndim_ == gradient.ndim_
    cdef int i
    if grad_state_of_thread().grad:
        return gradient.clone()
    for i in range(variable.ndim_ if same else 0):
        if variable.sizes[i] > 1 and variable.strides[i] != gradient.strides[i]:
            same = False
    holder[0] = None
    base = _tensor.base_of(gradient)
    if base is not None and Py_REFCNT(base) == 2 and base.count == gradient.count:
        others = 1                      # only this view has the base
    sole = (Py_REFCNT(gradient) == 1 and gradient.storage != NULL
            and gradient.storage.references == 1 + others)
    if sole and (same or not dense(variable)) and type(gradient) is Tensor:
        return plain_alias(gradient)
    if same and gradient.contiguous or not dense(variable):
        return gradient.clone()
    base = new_strided(gradient.device_index, gradient.scalar_type, variable.ndim_, variable.sizes,
                       variable.strides)
    base.copy_(gradient)
    return base


cdef bint dense(Tensor t) noexcept:
    """Whether the elements fill their memory, each once, in some order of dimensions."""
    cdef int64_t step = 1
    cdef int i, found
    cdef uint32_t done = 0
    if t.contiguous:
        return True
    if t.ndim_ > 31:
        return False
    for i in range(t.ndim_):
        if t.sizes[i] == 1:
            done |= <uint32_t>1 << i
    while done != (<uint32_t>1 << t.ndim_) - 1:
        found = -1
        for i in range(t.ndim_):
            if not done >> i & 1 and t.strides[i] == step:
                found = i
                break
        if found < 0:
            return False
        done |= <uint32_t>1 << found
        step *= t.sizes[found]
    return True


# -- saved tensors ---------------------------------------------------------------------------------

cdef class SavedTensor:
    """A tensor that a node keeps."""

    def __call__(self, Node node=None):
        """The tensor."""
        return unpack(self, node)

    def release(self):
        """Give the tensor back."""
        self.tensor = None
        self.packed = None
        self.released = True

    @property
    def value(self):
        """The tensor, for those who look at a node from outside."""
        return unpack(self, None)


cdef SavedTensor _saved(Tensor t):
    cdef SavedTensor made = SavedTensor.__new__(SavedTensor)
    made.version = 0 if t.storage == NULL else t.storage.version
    if made.version & _state.UNCOUNTED:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward: nobody counts writes to them. Compute with a "
            "clone() of what was made inside torch.inference_mode(), or make it under torch.no_grad() instead.")
    return made


cdef SavedTensor save(Tensor t):
    cdef SavedTensor made = _saved(t)
    hooks = getattr(_saving, "hooks", None)
    if hooks:
        pack, made.unpack_hook = hooks[len(hooks) - 1]
        made.packed = pack(t)
    else:
        made.tensor = t
    return made


cdef SavedTensor save_output(Tensor t, int output):
    """A result of the node itself: without its history, which would be a cycle."""
    cdef SavedTensor made = save(plain_alias(t))
    made.is_output = True
    made.output = output
    return made


cdef Tensor unpack(SavedTensor saved, Node node):
    cdef Tensor t
    cdef uint32_t version
    if saved.released:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they "
            "have already been freed). Saved intermediate values of the graph are freed when you call .backward() "
            "or autograd.grad(). Specify retain_graph=True for the first of the two if both are needed.")
    if saved.unpack_hook is not None:
        return <Tensor?>saved.unpack_hook(saved.packed)
    t = saved.tensor
    version = 0 if t.storage == NULL else t.storage.version
    if version != saved.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{_type_text(t)} {shape_text(t.ndim_, t.sizes)}], which is output {saved.output} of "
            f"{'its operation' if node is None else node.name()}, is at version {version}; expected version "
            f"{saved.version} instead. Find the operation that writes in place between forward and backward, "
            "or give it a clone.")
    if saved.is_output and node is not None and grad_state_of_thread().grad:
        t = plain_alias(t)
        attach(t, node, saved.output)
    return t


cdef str _type_text(Tensor t):
    return t.type()


cdef Tensor plain_alias(Tensor t):
    cdef Tensor made = Tensor.__new__(Tensor)
    share(made, t)
    return made


def push_saved_tensor_hooks(pack, unpack):
    """Have tensors that nodes save go through these, in this thread."""
    if not hasattr(_saving, "hooks"):
        _saving.hooks = []
    _saving.hooks.append((pack, unpack))


def pop_saved_tensor_hooks():
    """End the innermost `push_saved_tensor_hooks`."""
    _saving.hooks.pop()


# -- a tensor's place in the graph ---------------------------------------------------------------------

@cython.trashcan(True)
cdef class AutogradMeta(TensorExtra):
    """What a tensor that takes part in gradients knows."""


_tensor.extra_class = AutogradMeta


cdef object _view_extra(Tensor root):
    """For a view of a tensor that may take part in gradients."""
    cdef AutogradMeta made = AutogradMeta.__new__(AutogradMeta)
    made.base = root
    made.silent = not grad_state_of_thread().grad
    return made


_tensor.view_extra = _view_extra


cdef bint tracked(Tensor t) noexcept:
    extra = t.extra
    if extra is None:
        return False
    if type(extra) is not AutogradMeta:         # a view: its base may have come into a graph later
        extra = (<Tensor>extra).extra
        return type(extra) is AutogradMeta and (<AutogradMeta>extra).node is not None
    if (<AutogradMeta>extra).requires_grad:
        return True
    if (<AutogradMeta>extra).base is None or (<AutogradMeta>extra).silent:
        return False
    extra = (<AutogradMeta>extra).base.extra
    return type(extra) is AutogradMeta and (<AutogradMeta>extra).requires_grad


cdef AutogradMeta meta_of(Tensor t):
    cdef AutogradMeta made
    if type(t.extra) is not AutogradMeta:
        made = AutogradMeta.__new__(AutogradMeta)
        made.base = <Tensor>t.extra
        t.extra = made
    return <AutogradMeta>t.extra


cdef uint32_t _version_of(Tensor t) noexcept:
    return 0 if t.storage == NULL else t.storage.version


cdef tuple edge_of(Tensor t):
    cdef AutogradMeta meta = meta_of(t)
    cdef AccumulateGrad leaf
    if meta.base is not None and not meta.silent and tracked(meta.base) and (
            meta.node is None or meta.view_version != _version_of(t)) and (
            meta.node is not None or not meta.requires_grad):
        _remake_view(t, meta)
    if meta.node is not None:
        return meta.node, meta.output
    leaf = meta.accumulator() if meta.accumulator is not None else None
    if leaf is None:
        leaf = AccumulateGrad.__new__(AccumulateGrad)
        leaf.variable = t
        leaf.begin(t)
        leaf.sequence = INT64_MAX
        leaf.scope = None
        leaf.results.append((t.shape, <int>t.scalar_type, <int>t.device_index))
        meta.accumulator = weakref.ref(leaf)
    return leaf, 0


cdef int attach(Tensor t, Node node, int output) except -1:
    cdef AutogradMeta meta = meta_of(t)
    meta.node = node
    meta.output = output
    meta.requires_grad = True
    meta.accumulator = None
    meta.silent = False
    meta.view_version = _version_of(t)
    return 0


cdef int set_history(Tensor t, Node node, bint of_many=False) except -1:
    attach(t, node, len(node.results))
    meta_of(t).of_many = of_many
    node.results.append((t.shape, <int>t.scalar_type, <int>t.device_index))
    return 0


cdef class AsStridedView(Node):
    """A view, seen again from its base after one of the two was written in place."""

    cdef tuple sizes, strides, base_sizes, base_strides
    cdef object offset
    cdef int base_parts                 # numbers in an element of the base, 2 of a complex one

    cdef list run(self, list gradients):
        if gradients[0] is None:
            return [None]
        from flambeau.ops.derivative_functions import part_into
        return [part_into(gradients[0], self.sizes, self.strides, self.offset, self.base_sizes,
                          self.base_strides, self.base_parts)]


cdef int64_t _offset_in(Tensor t, Tensor base) except? -1:
    return (t.data - base.data) // t.element_size()


cdef int _remake_view(Tensor t, AutogradMeta meta) except -1:
    cdef AsStridedView node = AsStridedView.__new__(AsStridedView)
    cdef Tensor base = meta.base
    if not dense(base):
        raise RuntimeError(
            "a view of a tensor with gaps or overlaps was written in place while gradients are recorded: "
            "clone() the tensor before that")
    node.begin(t)
    node.edges.append(edge_of(base))
    node.sizes, node.strides = tuple(t.shape), t.stride()
    node.base_sizes, node.base_strides = tuple(base.shape), base.stride()
    node.offset = _offset_in(t, base)
    node.base_parts = 2 if base.is_complex() else 1
    return set_history(t, node)


# -- writing in place ----------------------------------------------------------------------------------

cdef int check_in_place(Tensor t) except -1:
    cdef AutogradMeta meta
    cdef AutogradMeta base_meta
    if not tracked(t):
        if type(t.extra) is AutogradMeta and (<AutogradMeta>t.extra).silent:
            base_meta = meta_of((<AutogradMeta>t.extra).base)
            if base_meta.requires_grad:
                raise RuntimeError(
                    "A view was created in no_grad mode, or in inference mode, and is being modified inplace with "
                    "grad mode enabled. "
                    "Create the view where it is modified, or modify a clone() of it.")
        elif _base_is_leaf(t):
            _refuse_leaf_view()
        return 0
    meta = meta_of(t)
    if meta.of_many:
        raise RuntimeError(
            f"Output {meta.output} of {meta.node.name()} is a view and is being modified inplace. This view is the "
            "output of a function that returns multiple views. Such functions do not allow the output views to "
            "be modified inplace; use single slices, or clone().")
    if meta.base is not None and _base_is_leaf(t):
        _refuse_leaf_view()
    if meta.node is None and meta.requires_grad:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. Update it under "
            "torch.no_grad(), or work on a clone().")
    return 0


cdef bint _base_is_leaf(Tensor t):
    cdef Tensor base = _tensor.base_of(t)
    return (base is not None and type(base.extra) is AutogradMeta and (<AutogradMeta>base.extra).requires_grad
            and (<AutogradMeta>base.extra).node is None)


cdef int _refuse_leaf_view() except -1:
    raise RuntimeError(
        "a view of a leaf Variable that requires grad is being used in an in-place operation. Update it under "
        "torch.no_grad(), or work on a clone().")


cdef class CopySlices(Node):
    """An operation that wrote into a part of a tensor."""

    cdef Node inner
    cdef int own                        # edge of the inner node that is the old part, or -1
    cdef tuple sizes, strides, base_sizes, base_strides
    cdef object offset
    cdef int parts                      # numbers in an element of the part, 2 of a complex one

    cdef list run(self, list gradients):
        cdef list inside
        if gradients[0] is None:
            return [None] * len(self.edges)
        from flambeau.ops.derivatives import like_strided
        whole = like_strided(gradients[0], self.base_sizes, self.base_strides)
        from flambeau.ops.derivative_functions import part_of
        part = part_of(whole, self.sizes, self.strides, self.offset, self.parts)
        inside = self.inner.run([part.clone()])
        old = inside.pop(self.own) if self.own >= 0 else None
        if old is None:
            part.zero_()
        else:
            part.copy_(old)
        return [whole, *inside]

    cdef int release(self) except -1:
        return self.inner.release()


cdef int rebase_history(Tensor t, Node node, int own) except -1:
    cdef AutogradMeta meta = meta_of(t)
    cdef CopySlices outer
    cdef Tensor base = meta.base
    if base is None:
        node.results.clear()
        return set_history(t, node)
    if not dense(base):
        raise RuntimeError(
            "a view of a tensor with gaps or overlaps is written in place while gradients are recorded: "
            "clone() the tensor before that")
    outer = CopySlices.__new__(CopySlices)
    outer.begin(t)
    outer.inner, outer.own = node, own
    outer.sizes, outer.strides = tuple(t.shape), t.stride()
    outer.base_sizes, outer.base_strides = tuple(base.shape), base.stride()
    outer.offset = _offset_in(t, base)
    outer.parts = 2 if t.is_complex() else 1
    outer.edges.append(edge_of(base) if tracked(base) else None)
    outer.edges.extend([edge for i, edge in enumerate(node.edges) if i != own])
    set_history(base, outer)
    return _remake_view(t, meta)


def gradient_edge(Tensor t not None):
    """The node that a tensor's gradient goes to, and the number of its output."""
    return edge_of(t)


set_public_name(Node, b"flambeau.autograd.graph.Node")
