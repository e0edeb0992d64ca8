# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""What tensors have to do with gradients: their properties and methods."""
from flambeau.runtime cimport _tensor
from flambeau.runtime._autograd cimport (
    AccumulateGrad, AutogradMeta, Node, edge_of, meta_of, tracked)
from flambeau.runtime._dtype cimport dtype_of, type_category
from flambeau.runtime._tensor cimport UNCOUNTED, Tensor

import warnings
import weakref

from flambeau.runtime import _tensor as _tensor_module
from flambeau.runtime._autograd import add_hook, is_inference_mode_enabled


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
    if value and is_inference(self) and not is_inference_mode_enabled():
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed: nobody counts "
            "writes to it. Set it on a clone().")
    meta_of(self).requires_grad = value


def requires_grad_(Tensor self, requires_grad=True):
    """Set ``requires_grad`` and return this tensor."""
    _set_requires_grad(self, requires_grad)
    return self


def is_inference(Tensor self):
    """Whether it was made inside `inference_mode`, or is a view of what was.

    Such a tensor has no version counter: it cannot be written outside the mode, nor be kept for
    a backward pass.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.inference_mode():
    ...     x = torch.ones(2)
    >>> x.is_inference(), x.clone().is_inference()
    (True, False)
    """
    return self.storage != NULL and (self.storage.version & UNCOUNTED) != 0


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
    "is_inference": is_inference,
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
