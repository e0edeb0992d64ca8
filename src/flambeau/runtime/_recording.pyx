# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Recording operations for the backward pass, by rules.

A rule says for the tensors that an operation takes how their gradients follow from those of its
results. The forward itself runs as if nothing were recorded; what it calls inside is not seen.
"""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from flambeau.runtime cimport _elementwise, _tensor
from flambeau.runtime._autograd cimport (
    AutogradMeta, Node, SavedTensor, check_in_place, edge_of, grad_state, meta_of, rebase_history, save, save_output,
    set_history, tracked, unpack)
from flambeau.runtime._dtype cimport dtype_of, type_category
from flambeau.runtime._tensor cimport Tensor, refuse_uncounted

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf)
    bint PyList_CheckExact(PyObject* value)
    bint PyTuple_CheckExact(PyObject* value)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject* value)
    PyObject** PySequence_Fast_ITEMS(PyObject* value)
    Py_ssize_t PyTuple_GET_SIZE(PyObject* value)

cdef extern from "flambeau/runtime/_recorded.hpp" namespace "flambeau":
    cdef cppclass RecordedStruct "flambeau::Recorded":
        PyObject* function
        PyObject* rule
        PyObject* cast
        bint in_place
        bint elementwise
    void set_recorded_rule(object self, object rule)
    void set_recorded_cast(object self, object name)
    int set_recorded_answer(object self, object operation, object capsule) except -1
    object new_recorded(object function, bint in_place, bint elementwise)
    object recorded_pass(PyObject* self, PyObject** args, size_t nargsf, PyObject* names)

cdef extern from *:
    """
    #include "flambeau/runtime/_recorded.hpp"
    static void install_recorded_call(PyObject *(*call)(PyObject *, PyObject **, size_t, PyObject *)) {
      flambeau::recorded_call = reinterpret_cast<vectorcallfunc>(call);
    }
    static inline int is_tensor(PyObject *value, PyObject *tensor) {
      return PyObject_TypeCheck(value, (PyTypeObject *)tensor);
    }
    // Numbers, names and None: nothing that could be or hold a tensor.
    static inline int is_plain(PyObject *value) {
      return value == Py_None || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
             PyFloat_CheckExact(value) || PyBool_Check(value);
    }
    static PyObject *type_of_recorded() { return Py_XNewRef((PyObject *)flambeau::recorded_type()); }
    """
    bint is_tensor(PyObject* value, PyObject* tensor)
    bint is_plain(PyObject* value)
    void install_recorded_call(object (*call)(PyObject*, PyObject**, size_t, PyObject*))
    object type_of_recorded()

cdef enum:
    COMPLEX = 3                         # a category of dtypes

cdef dict _elementwise_rules = {}       # ElementwiseOp -> Rule


# -- rules -----------------------------------------------------------------------------------------

# Where a value that a gradient needs comes from.
cdef enum Source:
    ARGUMENT, RESULT, SHAPE, DTYPE, DEVICE, STRIDE, OFFSET, NEEDS

_SUFFIXES = {"_shape": SHAPE, "_dtype": DTYPE, "_device": DEVICE, "_stride": STRIDE, "_offset": OFFSET}


cdef class Gradient:
    """How the gradients of some arguments are computed, together."""

    cdef readonly tuple arguments
    cdef object function
    cdef list needed                    # (name, Source, argument's name or number of the result)
    cdef bint all_results               # it wants the gradients of all results, as a list
    cdef bint joint                     # it returns a tuple, one for each of `arguments`

    def __init__(self, tuple arguments, function, bint joint, tuple parameters):
        cdef int i
        code = function.__code__
        names = code.co_varnames[:code.co_argcount]
        self.arguments, self.function, self.joint = arguments, function, joint
        self.all_results = names[0] == "grads"
        self.needed = []
        for name in names[1:]:
            self.needed.append((name, *_source_of(name, parameters)))


cdef tuple _source_of(str name, tuple parameters):
    if name == "out":
        return RESULT, 0
    if name.startswith("out") and name[3:].isdecimal():
        return RESULT, int(name[3:])
    if name in parameters:
        return ARGUMENT, name
    if name == "needs":
        return NEEDS, None
    for suffix, source in _SUFFIXES.items():
        if name.endswith(suffix) and name[:-len(suffix)] in parameters:
            return source, name[:-len(suffix)]
    raise TypeError(f"a gradient asks for {name!r}, which is neither an argument of {parameters} nor a result")


cdef class Rule:
    """How an operation is differentiated.

    Parameters
    ----------
    name
        Of the operation; its nodes are called after it.
    parameters
        The names of the forward's parameters; one that begins with ``*`` takes the rest.
    defaults
        Their defaults.
    gradients
        Pairs of an argument's name, or a tuple of names, and a function ``f(grad, ...)`` whose
        further parameters say what it needs: arguments by name, ``x_shape``, ``x_stride``,
        ``x_offset``, ``x_dtype`` or ``x_device`` of an argument, ``out`` (or ``out0``, ``out1``) for results, and ``needs``, a
        tuple of bools. With ``grads`` as its first parameter it gets those of all results.
    holomorphic
        The functions multiply with the derivative itself; where numbers are complex, the gradient
        is that of its conjugate, which is seen to here.
    """

    cdef readonly str name
    cdef readonly tuple parameters
    cdef dict defaults
    cdef str rest
    cdef list gradients
    cdef object node_class
    cdef bint holomorphic

    def __init__(self, str name not None, tuple parameters, dict defaults, gradients, bint holomorphic=False):
        self.holomorphic = holomorphic
        plain = tuple([p.lstrip("*") for p in parameters])
        self.name, self.parameters, self.defaults = name, plain, defaults
        self.rest = next((p[1:] for p in parameters if p.startswith("*")), None)
        self.gradients = [
            Gradient(key if isinstance(key, tuple) else (key,), function, isinstance(key, tuple), plain)
            for key, function in gradients]
        words = "".join([word[:1].upper() + word[1:] for word in name.strip("_").split("_")])
        self.node_class = type(words + "Backward0", (RuleNode,), {"__module__": "flambeau.autograd", "__slots__": ()})

    cdef dict bind(self, tuple args, dict kwargs):
        cdef dict bound = dict(self.defaults)
        cdef Py_ssize_t i, n = len(args)
        for i in range(n):
            if i >= len(self.parameters):
                break                   # too many: the function itself will say so
            name = self.parameters[i]
            if name == self.rest:
                bound[name] = args[i:]
                break
            bound[name] = args[i]
        if kwargs:
            bound.update(kwargs)
        return bound

    def __repr__(self):
        return f"<derivative of {self.name}>"


cdef class RuleNode(Node):
    """The backward of an operation that has a rule."""

    cdef list steps                     # (Gradient, ((argument's place, first edge, count or -1), ...))
    cdef dict values
    cdef tuple needs
    cdef bint holomorphic

    cdef list run(self, list gradients):
        cdef list found
        cdef bint any = False
        cdef bint turned = False
        for one in gradients:
            if one is not None:
                any = True
                turned |= self.holomorphic and type_category[(<Tensor>one).scalar_type] == COMPLEX
        if not any:
            return [None] * len(self.edges)
        if not turned:
            return self.follow(gradients)
        found = self.follow([_conjugate(one) for one in gradients])
        return [_conjugate(one) for one in found]

    cdef list follow(self, list gradients):
        cdef list found = [None] * len(self.edges)
        cdef Gradient gradient
        for gradient, places in self.steps:
            values = [self._value(name) for name, _, _ in gradient.needed]
            made = gradient.function(gradients if gradient.all_results else gradients[0], *values)
            for place, first, count in places:
                one = made[place] if gradient.joint else made
                if count < 0:
                    found[first] = one
                elif one is not None:
                    found[first:first + count] = one
        return found

    cdef object _value(self, str name):
        value = self.values[name]
        if type(value) is SavedTensor:
            return unpack(<SavedTensor>value, self)
        if type(value) is list or type(value) is tuple:
            items = [unpack(<SavedTensor>v, self) if type(v) is SavedTensor else v for v in value]
            return items if type(value) is list else tuple(items)
        return value

    cdef int release(self) except -1:
        for value in self.values.values():
            if type(value) is SavedTensor:
                value.release()
            elif type(value) is list or type(value) is tuple:
                for one in value:
                    if type(one) is SavedTensor:
                        one.release()
        return 0

    def __getattr__(self, str name):
        """``_saved_x``: what the node keeps under that name."""
        if name.startswith("_saved_") and name[7:] in self.values:
            return self._value(name[7:])
        raise AttributeError(f"{self.name()} has no attribute {name!r}")


# -- recording -------------------------------------------------------------------------------------

cdef object _conjugate(object value):
    if isinstance(value, Tensor) and type_category[(<Tensor>value).scalar_type] == COMPLEX:
        return value.conj()
    return value


cdef bint _any_tracked(object value):
    if isinstance(value, Tensor):
        return tracked(<Tensor>value)
    if isinstance(value, (list, tuple)):
        for one in value:
            if isinstance(one, Tensor) and tracked(<Tensor>one):
                return True
    return False


cdef int _add_edges(RuleNode node, Rule rule, dict bound) except -1:
    """An edge for each tensor that has a gradient; those that are not tracked lead nowhere."""
    cdef Gradient gradient
    cdef list places, needs = []
    cdef int place
    node.steps = []
    for gradient in rule.gradients:
        places = []
        for place, name in enumerate(gradient.arguments):
            value = bound.get(name)
            wanted = _any_tracked(value)
            needs.append(wanted)
            if not wanted:
                continue
            if isinstance(value, Tensor):
                places.append((place, len(node.edges), -1))
                node.edges.append(edge_of(<Tensor>value))
            else:
                places.append((place, len(node.edges), len(value)))
                for one in value:
                    node.edges.append(edge_of(<Tensor>one) if isinstance(one, Tensor) and tracked(<Tensor>one)
                                      else None)
        if places:
            node.steps.append((gradient, tuple(places)))
    node.needs = tuple(needs)
    return 0


cdef object _kept(object value):
    if isinstance(value, Tensor):
        return save(<Tensor>value)
    if isinstance(value, (list, tuple)) and any([isinstance(v, Tensor) for v in value]):
        kept = [save(<Tensor>v) if isinstance(v, Tensor) else v for v in value]
        return kept if isinstance(value, list) else tuple(kept)
    return value


cdef int _keep_values(RuleNode node, dict bound, list results) except -1:
    cdef Gradient gradient
    node.values = {}
    for gradient, _ in node.steps:
        for name, source, origin in gradient.needed:
            if name in node.values:
                continue
            if source == RESULT:
                node.values[name] = (save_output(<Tensor>results[origin], origin) if origin < len(results)
                                     else None)
            elif source == NEEDS:
                node.values[name] = node.needs
            elif source == ARGUMENT:
                node.values[name] = _kept(bound.get(origin))
            else:
                node.values[name] = _property(bound.get(origin), source)
    return 0


cdef object _property(object value, int source):
    if isinstance(value, (list, tuple)):
        return [_property(one, source) for one in value]
    if not isinstance(value, Tensor):
        return None
    if source == SHAPE:
        return value.shape
    if source == STRIDE:
        return value.stride()
    if source == OFFSET:
        return value.storage_offset()
    return value.dtype if source == DTYPE else value.device


cdef Tensor _before(Tensor t):
    """What a tensor was before it is written in place, with its history."""
    cdef Tensor copy
    cdef AutogradMeta meta
    grad_state().grad = False
    try:
        copy = <Tensor>(<object>t).clone()
    finally:
        grad_state().grad = True
    if tracked(t):
        meta = meta_of(copy)
        meta.node, meta.output = edge_of(t)
        meta.requires_grad = True
    return copy


cdef object _record(Rule rule, object function, tuple args, dict kwargs, dict bound, bint in_place):
    cdef RuleNode node
    cdef Tensor target = None
    cdef Tensor one
    cdef list results
    cdef int own = -1
    cdef bint many
    cdef Gradient gradient
    if not in_place and bound.get("out") is not None:
        raise RuntimeError(
            f"{rule.name}(): functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad.")
    node = <RuleNode>rule.node_class.__new__(rule.node_class)
    node.holomorphic = rule.holomorphic
    if in_place:
        target = <Tensor?>args[0]
        check_in_place(target)
    _add_edges(node, rule, bound)
    if in_place:
        first = rule.parameters[0]
        for gradient, places in node.steps:
            for place, start, _ in places:
                if gradient.arguments[place] == first:
                    own = start
            if any([name == first for name, _, _ in gradient.needed]) and bound[first] is target:
                bound[first] = _before(target)
    grad_state().grad = False
    try:
        out = function(*args, **kwargs)
    finally:
        grad_state().grad = True
    if not node.steps and (not in_place or not tracked(target)):
        return out
    if in_place:
        node.begin(target)
        node.results.append((target.shape, <int>target.scalar_type, <int>target.device_index))
        _keep_values(node, bound, [target])
        rebase_history(target, node, own)
        return out
    if isinstance(out, Tensor):
        for value in args:
            if value is out:
                return out
        results = [out]
    else:
        results = [value for value in out if isinstance(value, Tensor)] if isinstance(out, (tuple, list)) else []
    if not results:
        return out
    node.begin(<Tensor>results[0])
    many = len(results) > 1 and _tensor.base_of(<Tensor>results[0]) is not None
    for one in results:
        if type_category[one.scalar_type] >= 2:
            set_history(one, node, many)
    if node.results:
        _keep_values(node, bound, results)
    return out


# -- callables ------------------------------------------------------------------------------------------

cdef object _rule_of(RecordedStruct* r):
    if r.rule == <PyObject*>None:
        from flambeau.ops.derivatives import rule_for
        set_recorded_rule(<object><PyObject*>r, rule_for(<object>r.function, r.in_place))
    return <object>r.rule


cdef bint _has_extra(PyObject* o) noexcept:
    """Whether a tensor may take part in gradients, or a list of some."""
    cdef PyObject** items
    cdef Py_ssize_t i
    if is_plain(o):
        return False
    if type(<object>o) is Tensor:
        extra = (<Tensor>o).extra       # of a view its base, which may have something there itself
        return extra is not None and (type(extra) is not Tensor or (<Tensor>extra).extra is not None)
    if is_tensor(o, <PyObject*>Tensor):
        return (<Tensor>o).extra is not None
    if PyTuple_CheckExact(o) or PyList_CheckExact(o):
        items = PySequence_Fast_ITEMS(o)
        for i in range(PySequence_Fast_GET_SIZE(o)):
            if is_tensor(items[i], <PyObject*>Tensor) and (<Tensor>items[i]).extra is not None:
                return True
    return False


cdef int _casting = 0                   # threads whose operands autocast may look at


cdef object _call(PyObject* self, PyObject** args, size_t nargsf, PyObject* names):
    cdef RecordedStruct* r = <RecordedStruct*>self
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    if names != NULL:
        n += PyTuple_GET_SIZE(names)
    if _casting and r.cast != <PyObject*>None and grad_state().autocast:
        return _cast_call(r, self, args, nargsf, names)
    if r.in_place and n and is_tensor(args[0], <PyObject*>Tensor):
        refuse_uncounted(<Tensor>args[0])
        if (<Tensor>args[0]).extra is not None and grad_state().grad:
            check_in_place(<Tensor>args[0])
    if not r.elementwise:
        for i in range(n):
            if _has_extra(args[i]):
                if grad_state().grad:
                    return _recorded_call(r, args, PyVectorcall_NARGS(nargsf), names, self, nargsf)
                break
    return recorded_pass(self, args, nargsf, names)


cdef object _recorded_call(RecordedStruct* r, PyObject** args, Py_ssize_t n, PyObject* names, PyObject* self,
                           size_t nargsf):
    cdef tuple given
    cdef dict named = {}
    cdef Py_ssize_t i
    for i in range(n + (0 if names == NULL else PyTuple_GET_SIZE(names))):
        if _any_tracked(<object>args[i]):
            break
    else:
        return recorded_pass(self, args, nargsf, names)
    rule = _rule_of(r)
    if rule is False:                   # made of operations that are recorded themselves
        return _checked(<object>r.function, recorded_pass(self, args, nargsf, names), r.in_place)
    given = tuple([<object>args[i] for i in range(n)])
    if names != NULL:
        for i in range(PyTuple_GET_SIZE(names)):
            named[(<tuple>names)[i]] = <object>args[n + i]
    function = <object>r.function
    if type(rule) is not Rule:          # another way, for when gradients are wanted
        return rule(*given, **named)
    return _record(<Rule>rule, function, given, named, (<Rule>rule).bind(given, named), r.in_place)


cdef object _checked(object function, object out, bint in_place):
    """The results of a function that takes tracked tensors and has no rule: refused unless tracked."""
    cdef Tensor one
    results = out if isinstance(out, (tuple, list)) else (out,)
    for value in results:
        if isinstance(value, Tensor):
            one = <Tensor>value
            if type_category[one.scalar_type] >= 2 and not tracked(one):
                raise RuntimeError(
                    f"the derivative for '{function.__name__}' is not implemented. Call it under torch.no_grad(), or "
                    "on x.detach(), if no gradient is to flow through it.")
    return out


def recorded(function, *, bint in_place=False, bint elementwise=False, bint cast=True, short_answer=None):
    """A callable that records what `function` does when gradients are wanted.

    Parameters
    ----------
    function
        Works on tensors; its name leads to the rule in ``ops.derivatives``, at first need.
    in_place
        Whether it writes into its first argument.
    elementwise
        Whether it calls one elementwise operation, which records by itself.
    cast
        Whether autocast may look at its operands.
    short_answer
        ``(operation, capsule)``, the capsule from the operation's `short_answer`: how a call with
        nothing but that operation's operands is answered.
    """
    made = new_recorded(function, in_place, elementwise)
    if cast:
        set_recorded_cast(made, getattr(function, "__name__", None))
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        made.__dict__[name] = getattr(function, name, None)
    made.__dict__["__wrapped__"] = function
    if short_answer is not None:
        set_recorded_answer(made, short_answer[0], short_answer[1])
    return made


def with_rule(function, Rule rule not None, *, bint in_place=False):
    """`recorded` with a rule of one's own."""
    made = recorded(function, in_place=in_place)
    set_recorded_rule(made, rule)
    set_recorded_cast(made, rule.name)
    return made


def is_recorded(value):
    """Whether an object was made by `recorded`."""
    return type(value) is Recorded


# -- elementwise operations ------------------------------------------------------------------------------

_LETTERS = ("a", "b", "c", "d")


cdef object _record_elementwise(object op, PyObject** operands, int n, Tensor out, bint in_place, tuple scalars):
    """The operation, recorded; None if none of the operands takes part."""
    cdef int i
    cdef dict bound
    cdef dict named = {}
    cdef Rule rule
    if in_place and out is not None and out.extra is not None:
        check_in_place(out)
    for i in range(n):
        if isinstance(<object>operands[i], Tensor) and tracked(<Tensor>operands[i]):
            break
    else:
        return None
    if (<_elementwise.ElementwiseOp>op).any_output:
        return None                     # copies are recorded where they are asked for
    found = _elementwise_rules.get(op)
    if found is None:
        from flambeau.ops.derivatives import elementwise_rule
        found = _elementwise_rules[op] = elementwise_rule(op)
    rule = <Rule?>found
    given = tuple([<object>operands[i] for i in range(n)])
    bound = {_LETTERS[i]: given[i] for i in range(n)}
    for i in range(len(scalars)):
        bound[f"s{i}"] = scalars[i]
    if scalars:
        named["scalars"] = scalars
    if in_place and out is given[0]:
        return _record(rule, op.in_place, given, named, bound, True)
    if out is not None:
        named["out"] = bound["out"] = out
    return _record(rule, op, given, named, bound, False)


_elementwise.record = _record_elementwise


# -- casts ---------------------------------------------------------------------------------------------

cdef object _caster = None


def set_caster(caster):
    """Have ``caster(name, args, kwargs)`` prepare the operands of recorded functions under autocast.

    It gives new arguments, or None to leave them and have what the function calls cast.
    """
    global _caster
    _caster = caster


def set_autocast(bint active):
    """Whether this thread's recorded functions ask the caster; returns what was so before."""
    global _casting
    before = grad_state().autocast
    _casting += active - before
    grad_state().autocast = active
    return before


cdef object _cast_call(RecordedStruct* r, PyObject* self, PyObject** args, size_t nargsf, PyObject* names):
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    cdef dict named = {}
    given = tuple([<object>args[i] for i in range(n)])
    if names != NULL:
        for i in range(PyTuple_GET_SIZE(names)):
            named[(<tuple>names)[i]] = <object>args[n + i]
    grad_state().autocast = False
    try:
        prepared = _caster(<object>r.cast, given, named)
        if prepared is not None:
            given, named = prepared
            return (<object>self)(*given, **named)
    finally:
        grad_state().autocast = True
    return _without_cast(r, self, args, nargsf, names)


cdef object _without_cast(RecordedStruct* r, PyObject* self, PyObject** args, size_t nargsf, PyObject* names):
    """The call of a function that autocast leaves alone; what it calls may still be cast."""
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    cdef Py_ssize_t total = n if names == NULL else n + PyTuple_GET_SIZE(names)
    if not r.elementwise and grad_state().grad:
        for i in range(total):
            if _has_extra(args[i]):
                return _recorded_call(r, args, n, names, self, nargsf)
    return recorded_pass(self, args, nargsf, names)


install_recorded_call(_call)
Recorded = type_of_recorded()
