# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Functions that bring their own derivative: the node, and the history of their results."""
from flambeau.runtime._autograd cimport (
    AutogradMeta, Node, SavedTensor, attach, check_in_place, edge_of, meta_of, save, save_output, set_history,
    tracked, unpack)
from flambeau.runtime._device cimport device_of
from flambeau.runtime._dtype cimport dtype_of, type_category
from flambeau.runtime._tensor cimport Tensor


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
    return attach(t, node, output)
