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
        _attach(t, node, saved.output)
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


cdef int _attach(Tensor t, Node node, int output) except -1:
    cdef AutogradMeta meta = meta_of(t)
    meta.node = node
    meta.output = output
    meta.requires_grad = True
    meta.accumulator = None
    meta.silent = False
    meta.view_version = _version_of(t)
    return 0


cdef int set_history(Tensor t, Node node, bint of_many=False) except -1:
    _attach(t, node, len(node.results))
    meta_of(t).of_many = of_many
    node.results.append((t.shape, <int>t.scalar_type, <int>t.device_index))
    return 0


cdef class AsStridedView(Node):
    """A view, seen again from its base after one of the two was written in place."""

    cdef tuple sizes, strides, base_sizes, base_strides
    cdef object offset

    cdef list run(self, list gradients):
        if gradients[0] is None:
            return [None]
        from flambeau.ops.derivatives import strided_into
        return [strided_into(gradients[0], self.sizes, self.strides, self.offset, self.base_sizes,
                             self.base_strides)]


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
                    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
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

    cdef list run(self, list gradients):
        cdef list inside
        if gradients[0] is None:
            return [None] * len(self.edges)
        from flambeau.ops.derivatives import like_strided
        whole = like_strided(gradients[0], self.base_sizes, self.base_strides)
        part = whole.as_strided(self.sizes, self.strides, self.offset)
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
    outer.edges.append(edge_of(base) if tracked(base) else None)
    outer.edges.extend([edge for i, edge in enumerate(node.edges) if i != own])
    set_history(base, outer)
    return _remake_view(t, meta)


def gradient_edge(Tensor t not None):
    """The node that a tensor's gradient goes to, and the number of its output."""
    return edge_of(t)


# -- functions with their own derivative -----------------------------------------------------------------

cdef class FunctionNode(Node):
    """The node of a user's function; also what its forward and backward share."""

    cdef list kept
    cdef tuple places                   # of each edge among the forward's arguments
    cdef int count                      # of the forward's arguments
    cdef dict __dict__
    cdef public object _dirty
    cdef public object _non_differentiable
    cdef tuple to_save

    def save_for_backward(self, *tensors):
        """Keep tensors for the backward; once they are written in place, it raises."""
        self.to_save = tensors

    @property
    def saved_tensors(self):
        if self.kept is None:
            return self.to_save or ()
        return tuple([unpack(<SavedTensor>one, self) if type(one) is SavedTensor else one for one in self.kept])

    cdef list run(self, list gradients):
        cdef int i
        if self.materialize_grads:
            from flambeau.ops.creation import zeros
            for i in range(len(gradients)):
                if gradients[i] is None:
                    shape, code, index = self.results[i]
                    gradients[i] = zeros(tuple(shape), dtype=dtype_of(<int>code), device=device_of(<int>index))
        made = self._run_backward(tuple(gradients))
        if not isinstance(made, (tuple, list)):
            made = (made,)
        if len(made) > self.count and all([one is None for one in made[self.count:]]):
            made = made[:self.count]
        if len(made) != self.count:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {self.count}, got "
                f"{len(made)})")
        return [made[place] for place in self.places]

    cdef int release(self) except -1:
        for one in self.kept or ():
            if type(one) is SavedTensor:
                one.release()
        return 0


def apply_function(FunctionNode node not None, tuple args, results, bint recording):
    """Give the results of a user's forward their history; returns them."""
    cdef Tensor one
    cdef Tensor alias
    cdef list given, made = []
    cdef int i
    single = not isinstance(results, tuple)
    given = [results] if single else list(results)
    if not recording:
        node.kept = []
        node.to_save = None
        return results
    dirty = node._dirty or ()
    constant = node._non_differentiable or ()
    node.count = len(args)
    places = []
    for i in range(len(args)):
        if isinstance(args[i], Tensor) and tracked(<Tensor>args[i]):
            places.append(i)
            if any([args[i] is d for d in dirty]):
                check_in_place(<Tensor>args[i])
            node.edges.append(edge_of(<Tensor>args[i]))
    node.places = tuple(places)
    node.begin(next((r for r in given if isinstance(r, Tensor)), None))
    outputs = {}
    for value in given:
        if not isinstance(value, Tensor):
            made.append(value)
            continue
        one = <Tensor>value
        if any([value is d for d in dirty]):
            node.results.append((one.shape, <int>one.scalar_type, <int>one.device_index))
            _rebase_dirty(one, node, len(node.results) - 1)
        else:
            if any([value is a for a in args]):
                one = <Tensor>one._alias(type(one))     # a result of its own over the same memory
            if type_category[one.scalar_type] < 2 or any([value is c for c in constant]):
                node.results.append((one.shape, <int>one.scalar_type, <int>one.device_index))
            else:
                if type(one.extra) is AutogradMeta and (<AutogradMeta>one.extra).node is not None:
                    one = <Tensor>one._alias(type(one))
                set_history(one, node)
        outputs[id(value)] = len(node.results) - 1
        made.append(one)
    node.kept = []
    for value in node.to_save or ():
        if not isinstance(value, Tensor):
            if value is not None:
                raise TypeError(f"save_for_backward can only save variables, but got {type(value).__name__}")
            node.kept.append(None)
        elif id(value) in outputs and not any([value is a for a in args]):
            node.kept.append(save_output(<Tensor>value, outputs[id(value)]))
        else:
            node.kept.append(save(<Tensor>value))
    node.to_save = None
    return made[0] if single else tuple(made)


cdef int _rebase_dirty(Tensor t, Node node, int output) except -1:
    if meta_of(t).base is not None:
        raise RuntimeError(
            "a custom Function wrote into a view in place; give it the base, or a clone() of the view")
    return _attach(t, node, output)


# -- tensor methods ------------------------------------------------------------------------------------

def _requires_grad(Tensor self):
    """Whether operations on this tensor are recorded for gradients."""
    return tracked(self)


def _set_requires_grad(Tensor self, bint value):
    if value and type_category[self.scalar_type] < 2:
        raise RuntimeError(
            "only Tensors of floating point and complex dtype can require gradients; this one is "
            f"torch.{dtype_of(self.scalar_type).name}")
    if value == tracked(self):
        return
    if not value and not _is_leaf(self):
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables. To use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach().")
    meta_of(self).requires_grad = value


def requires_grad_(Tensor self, requires_grad=True):
    """Set ``requires_grad`` and return this tensor."""
    _set_requires_grad(self, requires_grad)
    return self


def _is_leaf(Tensor self):
    """Whether the tensor was made by the user, not by an operation that is recorded."""
    return not tracked(self) or edge_of(self)[0].__class__ is AccumulateGrad


def _grad_fn(Tensor self):
    """The backward graph's node of the operation that made this tensor; None for a leaf."""
    if not tracked(self):
        return None
    node = edge_of(self)[0]
    return None if type(node) is AccumulateGrad else node


def _grad(Tensor self):
    """The gradient that backward passes accumulated, or None."""
    cdef AutogradMeta meta
    if type(self.extra) is not AutogradMeta:
        return None
    meta = <AutogradMeta>self.extra
    if meta.grad is None and meta.node is not None and not meta.retains:
        import warnings
        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't "
            "be populated during autograd.backward(). Call .retain_grad() on it before the backward if that is "
            "what you want, or look at the leaf.", UserWarning, stacklevel=2)
    return meta.grad


def _set_grad(Tensor self, value):
    cdef Tensor gradient
    if value is None:
        if type(self.extra) is AutogradMeta:
            meta_of(self).grad = None
        return
    if not isinstance(value, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value).__name__}")
    gradient = <Tensor>value
    if gradient is self:
        raise RuntimeError("can't assign Variable as its own grad")
    if gradient.device_index != self.device_index:
        raise RuntimeError(
            f"assigned grad has data located on a different device: {gradient.device}, the tensor is on "
            f"{self.device}")
    if gradient.scalar_type != self.scalar_type:
        raise RuntimeError(
            f"assigned grad has data of a different type: {gradient.dtype}, the tensor is {self.dtype}")
    if gradient.shape != self.shape:
        raise RuntimeError(
            f"assigned grad has data of a different size: {list(gradient.shape)}, the tensor has "
            f"{list(self.shape)}")
    meta_of(self).grad = value


def _del_grad(Tensor self):
    _set_grad(self, None)


def _output_nr(Tensor self):
    """The number of this tensor among the results of its `grad_fn`."""
    return edge_of(self)[1] if tracked(self) else 0


def retain_grad(Tensor self):
    """Have ``grad`` filled by backward passes although this tensor is no leaf."""
    cdef AutogradMeta meta
    cdef Node node
    if not tracked(self):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if _is_leaf(self):
        return
    node, number = edge_of(self)
    meta = meta_of(self)
    meta.retains = True
    if node.retained is None:
        node.retained = {}
    node.retained[number] = weakref.ref(self)


def _retains_grad(Tensor self):
    """Whether this tensor is no leaf and has `retain_grad` set."""
    return type(self.extra) is AutogradMeta and meta_of(self).retains


def register_hook(Tensor self, hook):
    """Have ``hook(grad)`` called when this tensor's gradient is computed.

    Parameters
    ----------
    hook
        Gets the gradient; if it returns a tensor, that one takes its place.

    Returns
    -------
    RemovableHandle
        Takes the hook away with ``remove()``.
    """
    cdef AutogradMeta meta
    cdef Node node
    if not tracked(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node, number = edge_of(self)
    if type(node) is AccumulateGrad:
        meta = meta_of(self)
        if meta.hooks is None:
            meta.hooks = {}
        return add_hook(meta.hooks, hook)
    if node.tensor_hooks is None:
        node.tensor_hooks = {}
    return add_hook(node.tensor_hooks.setdefault(number, {}), hook)


def register_post_accumulate_grad_hook(Tensor self, hook):
    """Have ``hook(param)`` called after a backward pass added to this leaf's ``grad``."""
    cdef AutogradMeta meta
    if not tracked(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not _is_leaf(self):
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = meta_of(self)
    if meta.post_accumulate is None:
        meta.post_accumulate = {}
    return add_hook(meta.post_accumulate, hook)


def detach(Tensor self):
    """A tensor over the same memory that takes no part in gradients."""
    return self._alias(_tensor.result_class(type(self)))


def detach_(Tensor self):
    """Take this tensor out of the graph, as a leaf without gradients, and return it."""
    cdef AutogradMeta meta
    if type(self.extra) is not AutogradMeta:
        return self
    meta = meta_of(self)
    if meta.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    meta.node = None
    meta.output = 0
    meta.requires_grad = False
    meta.accumulator = None
    return self


def backward(Tensor self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Compute the gradients of this tensor with respect to the leaves of its graph and add them there.

    Parameters
    ----------
    gradient
        Gradient with respect to this tensor; may be left out if it has one element.
    retain_graph
        Whether the graph stays usable for another pass; like `create_graph` unless given.
    create_graph
        Whether the pass is recorded itself, for higher derivatives.
    inputs
        Tensors whose ``grad`` is to be computed; all leaves unless given.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    from flambeau.autograd import backward as run
    run(self, gradient, retain_graph, create_graph, inputs=inputs)


_tensor_module.install_methods({
    "requires_grad": property(_requires_grad, _set_requires_grad),
    "requires_grad_": requires_grad_,
    "is_leaf": property(_is_leaf),
    "grad_fn": property(_grad_fn),
    "grad": property(_grad, _set_grad, _del_grad),
    "output_nr": property(_output_nr),
    "retain_grad": retain_grad,
    "retains_grad": property(_retains_grad),
    "register_hook": register_hook,
    "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
    "detach": detach, "detach_": detach_, "backward": backward,
})
set_public_name(Node, b"flambeau.autograd.graph.Node")
