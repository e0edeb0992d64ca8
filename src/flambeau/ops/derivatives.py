# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A006, PLW0108, RUF024 - names of parameters say what is kept; rows are not changed
"""The table of derivatives: for each operation how gradients of its arguments follow.

A row maps an argument to a function of the result's gradient. The names of that function's further
parameters say what it needs, and only that is kept for the backward pass: arguments by their names,
``x_shape``, ``x_dtype`` and ``x_device`` of an argument, ``out`` (of several results ``out0``,
``out1``), and ``needs``. A first parameter called ``grads`` gets the gradients of all results. A
key of several names means one function that gives all their gradients. Gradients are brought to the
argument's shape (by summing what was broadcast) and dtype by the engine.

Elementwise operations have their derivatives as text in `elementwise`.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from flambeau.ops import derivative_functions as of
from flambeau.ops.common import broadcast_shapes
from flambeau.ops.derivative_functions import like_strided, sum_to
from flambeau.runtime._recording import Rule, with_rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.ops.elementwise import Row as ElementwiseRow
    from flambeau.runtime._elementwise import ElementwiseOp

__all__ = [
    "differentiable",
    "elementwise_rule",
    "like_strided",
    "rule_for",
    "sum_to",
]

Row = dict[Any, "Callable[..., Any]"]


def _same(grad: Any) -> Any:
    return grad


def _reshaped(grad: Any, self_shape: Any) -> Any:
    return grad.reshape(self_shape)


_VIEWS: dict[str, Row] = {
    **dict.fromkeys(
        [
            "view",
            "reshape",
            "flatten",
            "ravel",
            "unflatten",
            "view_as",
            "reshape_as",
            "squeeze",
            "unsqueeze",
        ],
        {"self": _reshaped},
    ),
    **dict.fromkeys(
        ("transpose", "swapaxes", "swapdims"),
        {"self": lambda grad, dim0, dim1: grad.transpose(dim0, dim1)},
    ),
    "t": {"self": lambda grad: grad.t()},
    "_reversed_dims": {"self": lambda grad: grad.permute(list(range(grad.ndim))[::-1])},
    "_matrix_transposed": {"self": lambda grad: grad.mT},
    "permute": {"self": lambda grad, dims: of.permuted_back(grad, dims)},
    **dict.fromkeys(
        ("movedim", "moveaxis"),
        {"self": lambda grad, source, destination: grad.movedim(destination, source)},
    ),
    "expand": {"self": _same},
    "expand_as": {"self": _same},
    "narrow": {
        "self": lambda grad, self_shape, dim, start, length: of.into(
            grad, self_shape, lambda whole: whole.narrow(dim, start, length)
        )
    },
    "select": {
        "self": lambda grad, self_shape, dim, index: of.into(
            grad, self_shape, lambda whole: whole.select(dim, index)
        )
    },
    "diagonal": {
        "self": lambda grad, self_shape, offset, dim1, dim2: of.into(
            grad, self_shape, lambda whole: whole.diagonal(offset, dim1, dim2)
        )
    },
    "as_strided": {
        "self": lambda grad, self_shape, self_stride, self_offset, stride, storage_offset: (
            of.unstrided(grad, self_shape, self_stride, self_offset, stride, storage_offset)
        )
    },
    "unfold": {
        "self": lambda grad, self_shape, dimension, size, step: of.folded(
            grad, self_shape, dimension, size, step
        )
    },
    "getitem": {"self": lambda grad, self_shape, index: of.at_index(grad, self_shape, index)},
    "split": {
        "self": lambda grads, self_shape, split_size, dim: of.unsplit(
            grads, self_shape, split_size, dim
        )
    },
    "split_with_sizes": {
        "self": lambda grads, self_shape, split_sizes, dim: of.unsplit(
            grads, self_shape, split_sizes, dim
        )
    },
    "chunk": {
        "self": lambda grads, self_shape, chunks, dim: of.unchunk(grads, self_shape, chunks, dim)
    },
    "view_as_real": {"input": lambda grad: of.as_complex(grad)},
    "view_as_complex": {"input": lambda grad: of.as_pairs(grad)},
    "unbind": {"self": lambda grads, self_shape, dim: of.unbound(grads, self_shape, dim)},
}

_COPIES: dict[str, Row] = {
    **dict.fromkeys(
        [
            "clone",
            "contiguous",
            "to",
            "cpu",
            "cuda",
            "type_",
            "type",
            "type_as",
            "pin_memory",
            "float",
            "double",
            "half",
            "bfloat16",
        ],
        {"self": lambda grad, self_device: grad.to(self_device)},
    ),
    "copy": {"src": lambda grad, src_device: grad.to(src_device)},
    "_assign": {"value": lambda grad, value_device: grad.to(value_device)},
    "fill": {"value": _same},
    "setitem": {
        "self": lambda grad, index: of.erased(grad, index),
        "value": lambda grad, index, value_device: grad[index].to(value_device),
    },
    "cat": {"tensors": lambda grad, tensors_shape, dim: of.uncat(grad, tensors_shape, dim)},
    "stack": {
        "tensors": lambda grad, dim, tensors_shape: (
            list(grad.unbind(dim)) if type(tensors_shape) is list else grad.movedim(dim, 0)
        )
    },
    "repeat": {"self": lambda grad, self_shape, repeats: of.unrepeated(grad, self_shape, repeats)},
    "roll": {"input": lambda grad, shifts, dims: of.unrolled(grad, shifts, dims)},
    "tril": {"input": lambda grad, diagonal: grad.tril(diagonal)},
    "triu": {"input": lambda grad, diagonal: grad.triu(diagonal)},
}


def _extreme(larger: bool) -> Row:
    def of_operand(grad: Any, input: Any, dim: Any, other: Any) -> Any:
        mine = other if dim is None else dim
        return of.between(grad, mine, input, larger)

    return {
        "input": lambda grad, input, dim, keepdim, other, out0, out1: of.extreme(
            grad, input, dim if other is None else other, keepdim, out0, out1, larger
        ),
        "dim": of_operand,
        "other": of_operand,
    }


_MIDDLE: Row = {
    "input": lambda grad, input, dim, keepdim, out0, out1: of.extreme(
        grad, input, dim, keepdim, out0, out1, True
    )
}

_REDUCTIONS: dict[str, Row] = {
    "sum": {
        "input": lambda grad, input_shape, dim, keepdim: of.expanded(
            grad, input_shape, dim, keepdim
        )
    },
    "nansum": {
        "input": lambda grad, input, dim, keepdim: (
            of.expanded(grad, tuple(input.shape), dim, keepdim) * ~input.isnan()
        )
    },
    "mean": {
        "input": lambda grad, input_shape, dim, keepdim: (
            of.expanded(grad, input_shape, dim, keepdim) / of.count_of(input_shape, dim)
        )
    },
    "prod": {"input": lambda grad, input, dim, keepdim: of.product(grad, input, dim, keepdim)},
    "max": _extreme(True),
    "min": _extreme(False),
    "median": _MIDDLE,
    "nanmedian": _MIDDLE,
    **dict.fromkeys(
        ("amax", "amin"),
        {
            "input": lambda grad, input, out, dim, keepdim: of.shared_among(
                grad, input, out, dim, keepdim
            )
        },
    ),
    "var": {
        "input": lambda grad, input, dim, unbiased, keepdim, correction: of.variance(
            grad, input, dim, unbiased, keepdim, correction
        )
    },
    "std": {
        "input": lambda grad, input, out, dim, unbiased, keepdim, correction: of.deviation(
            grad, input, out, dim, unbiased, keepdim, correction
        )
    },
    "norm": {
        "input": lambda grad, input, out, p, dim, keepdim: of.vector_norm(
            grad, input, out, p, dim, keepdim
        )
    },
    "logsumexp": {
        "input": lambda grad, input, out, dim, keepdim: (
            of.expanded(grad, tuple(input.shape), dim, keepdim)
            * (input - of.expanded(out, tuple(input.shape), dim, keepdim)).exp()
        )
    },
    "cumsum": {"input": lambda grad, dim: of.summed_from(grad, dim)},
    "logcumsumexp": {
        "input": lambda grad, input, out, dim: of.log_cumulative(grad, input, out, dim)
    },
    "cumprod": {"input": lambda grad, input, dim: of.cumulative_product(grad, input, dim)},
    **dict.fromkeys(
        ("sort", "topk"),
        {
            "input": lambda grad, input_shape, out1, dim: of.picked(
                grad, input_shape, out1, dim, True
            )
        },
    ),
    **dict.fromkeys(
        ("kthvalue", "mode", "cummax_", "cummin_"),
        {
            "input": lambda grad, input_shape, out1, dim, keepdim: of.picked(
                grad, input_shape, out1, dim, keepdim
            )
        },
    ),
    **dict.fromkeys(
        ("cummax", "cummin"),
        {
            "input": lambda grad, input_shape, out1, dim: of.zeros_of(
                grad, input_shape
            ).scatter_add(dim, out1, grad)
        },
    ),
}

_PRODUCTS: dict[str, Row] = {
    **dict.fromkeys(
        ("mm", "bmm"),
        {
            "input": lambda grad, mat2: of.left_factor(grad, mat2),
            "mat2": lambda grad, input, mat2: of.right_factor(grad, input, mat2),
        },
    ),
    "mv": {
        "input": lambda grad, vec: grad.unsqueeze(1) * vec,
        "vec": lambda grad, input: input.mT @ grad,
    },
    "dot": {
        "input": lambda grad, tensor: grad * tensor,
        "tensor": lambda grad, input: grad * input,
    },
    "matmul": {("input", "other"): of.matmul},
    "addmm": {
        "input": lambda grad, beta: grad * beta,
        "mat1": lambda grad, mat2, alpha: of.left_factor(grad, mat2) * alpha,
        "mat2": lambda grad, mat1, mat2, alpha: of.right_factor(grad, mat1, mat2) * alpha,
    },
    "baddbmm": {
        "input": lambda grad, beta: grad * beta,
        "batch1": lambda grad, batch2, alpha: of.left_factor(grad, batch2) * alpha,
        "batch2": lambda grad, batch1, batch2, alpha: of.right_factor(grad, batch1, batch2) * alpha,
    },
}

_INDEXED: dict[str, Row] = {
    "index_select": {
        "input": lambda grad, input_shape, dim, index: of.selected(grad, input_shape, dim, index)
    },
    "gather": {
        "input": lambda grad, input_shape, dim, index: of.zeros_of(grad, input_shape).scatter_add(
            dim, index, grad
        )
    },
    "take": {
        "input": lambda grad, input_shape, index: of.zeros_of(grad, input_shape).put(
            index, grad, True
        )
    },
    "scatter": {
        "input": lambda grad, dim, index: grad.scatter(dim, index, 0),
        "src": lambda grad, dim, index: grad.gather(dim, index),
    },
    "scatter_add": {"input": _same, "src": lambda grad, dim, index: grad.gather(dim, index)},
    "index_add": {
        "input": _same,
        "source": lambda grad, dim, index, alpha: grad.index_select(dim, index) * alpha,
    },
    "index_copy": {
        "input": lambda grad, dim, index: grad.index_fill(dim, index, 0),
        "source": lambda grad, dim, index: grad.index_select(dim, index),
    },
    "index_fill": {
        "input": lambda grad, dim, index: grad.index_fill(dim, index, 0),
        "value": lambda grad, dim, index: (
            grad * of.zeros_of(grad, grad.shape).index_fill(dim, index, 1)
        ).sum(),
    },
    "scatter_reduce": {
        ("input", "src"): lambda grad, input, src, out, dim, index, reduce, include_self: (
            of.scatter_reduced(grad, input, src, out, dim, index, reduce, include_self)
        )
    },
    "index_reduce": {
        ("input", "source"): lambda grad, input, source, out, dim, index, reduce, include_self: (
            of.index_reduced(grad, input, source, out, dim, index, reduce, include_self)
        )
    },
    "index_put": {
        "input": lambda grad, indices, accumulate: (
            grad if accumulate else of.erased(grad, of.placed(indices))
        ),
        "values": lambda grad, indices: grad[of.placed(indices)],
    },
    "put": {
        "input": lambda grad, index, accumulate: (
            grad if accumulate else grad.put(index, of.zeros_of(grad, index.shape))
        ),
        "source": lambda grad, index, source_shape: of.unput(grad, index, source_shape),
    },
    "masked_select": {
        "input": lambda grad, input_shape, mask: of.zeros_of(
            grad, broadcast_shapes(input_shape, mask.shape)
        ).masked_scatter_(mask.expand(broadcast_shapes(input_shape, mask.shape)), grad)
    },
    "masked_scatter": {
        "self": lambda grad, mask: grad.masked_fill(mask, 0),
        "source": lambda grad, mask, source_shape: of.unscattered(grad, mask, source_shape),
    },
    "native_dropout": {
        "input": lambda grad, p, out1: grad * out1 * (0.0 if p == 1 else 1 / (1 - p))
    },
}

_TABLES = (_VIEWS, _COPIES, _REDUCTIONS, _PRODUCTS, _INDEXED)
_MULTIPLYING = (_REDUCTIONS, _PRODUCTS)  # the others only move gradients, complex or not

# Results do not depend on the values of their tensors, or not smoothly.
_CONSTANT = frozenset(
    [
        "argmax",
        "argmin",
        "argsort",
        "bernoulli",
        "empty_like",
        "full_like",
        "ones_like",
        "zeros_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "multinomial",
        "normal",
        "poisson",
        "nonzero",
        "unique",
        "count_nonzero",
        "equal",
        "allclose",
        "isclose",
        "all",
        "any",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "new_tensor",
        "tensor",
        "as_tensor",
        "asarray",
        "searchsorted",
        "bucketize",
        "bincount",
        "histc",
        "histogram",
        "zero",
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "normal",
        "random",
        "detach_copy",
        "scalar_tensor",
        "uniform",
        "unravel_index",
        "unique_consecutive",
        "isin",
    ]
)


def _dropout(input: Any, p: float, train: bool) -> Any:
    """Dropout with the mask kept."""
    import flambeau

    if p == 0 or not train or input.numel() == 0:
        return input
    return flambeau.native_dropout(input, p, True)[0]


def _msort(input: Any) -> Any:
    return input.sort(0).values


def _lu_unpack(*args: Any, **options: Any) -> Any:
    """Made of operations that are recorded; only P has no gradient."""
    from flambeau.ops.linalg import lu_unpack

    return lu_unpack.__wrapped__(*args, **options)  # type: ignore[attr-defined]


_OTHER_WAYS: dict[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "lu_unpack": _lu_unpack,
    "msort": _msort,
}


def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    names, defaults = [], {}
    for parameter in inspect.signature(function).parameters.values():
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        names.append(star + parameter.name)
        if parameter.default is not parameter.empty:
            defaults[parameter.name] = parameter.default
    return tuple(names), defaults


def _renamed(row: Row, first: str) -> Row:
    """The row of an operation for its form in place, whose first parameter is ``self``."""
    found: Row = {}
    for key, function in row.items():
        names = tuple(first if k in {"input", "self"} else k for k in _as_tuple(key))
        code = function.__code__
        old = code.co_varnames[: code.co_argcount]
        new = [re.sub(r"^(input|self)(?=$|_)", first, name) for name in old]
        renamed = function
        if list(old) != new:
            call = f"lambda {', '.join(new)}: function({', '.join(new)})"
            renamed = eval(call, {"function": function})
        found[names if isinstance(key, tuple) else names[0]] = renamed
    return found


def _as_tuple(key: Any) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def rule_for(function: Callable[..., Any], in_place: bool) -> Any:
    """Look up how a function is differentiated.

    Returns
    -------
    Rule, callable or False
        A callable takes the function's place; False means that what it is made of records itself,
        which is checked.
    """
    name = function.__name__
    if in_place:
        name = name.removesuffix("_") or name
    if name in _OTHER_WAYS and not in_place:
        return _OTHER_WAYS[name]
    row = next((table[name] for table in _TABLES if name in table), None)
    if row is None:
        if name not in _CONSTANT:
            return False
        row = {}
    parameters, defaults = _parameters(function)
    first = parameters[0].lstrip("*")
    if row and first in {"input", "self"}:
        row = _renamed(row, first)
    kept = {key: f for key, f in row.items() if all(k in parameters for k in _as_tuple(key))}
    return Rule(
        _NODE_NAMES.get(name, name),
        parameters,
        defaults,
        list(kept.items()),
        holomorphic=any(name in table for table in _MULTIPLYING),
    )


_NODE_NAMES = {
    "_reversed_dims": "permute",
    "_matrix_transposed": "transpose",
    "_assign": "copy_slices",
    "setitem": "index_put",
    "getitem": "select",
    "getitem_advanced": "index",
    **dict.fromkeys(
        ["to", "cpu", "cuda", "type_", "type", "type_as", "float", "double", "half", "bfloat16"],
        "to_copy",
    ),
}


def differentiable(
    forward: Callable[..., Any],
    gradients: Row,
    *,
    name: str | None = None,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Attach a derivative to a function of tensors.

    Parameters
    ----------
    forward
        Computes results, one tensor or a tuple; what it calls is not recorded.
    gradients
        By parameter of `forward`, or by a tuple of them, a function of the gradient; see the top of
        this module for what its parameters can ask for. Keys that are tuples give all their
        gradients at once, None where ``needs`` says that it is not wanted.
    name
        What the node in the backward graph is called after; the function's name unless given.
    holomorphic
        The gradients are products with derivatives of a function of complex numbers too; that those
        take its conjugate is then seen to.

    Returns
    -------
    callable
        Works like `forward`, at no cost while no tensor requires grad.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.ops.derivatives import differentiable
    >>> cube = differentiable(lambda x: x * x * x, {"x": lambda grad, x: grad * 3 * x * x})
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    tensor(12.)
    """
    parameters, defaults = _parameters(forward)
    label = name or forward.__name__.strip("<>_") or "function"
    rows = list(gradients.items())
    return with_rule(forward, Rule(label, parameters, defaults, rows, holomorphic=holomorphic))


# -- elementwise ----------------------------------------------------------------------------------

_LETTERS = "abc"
_GIVEN = re.compile(r"\b(a|b|c|out|s\d)\b")


def elementwise_rule(op: ElementwiseOp) -> Rule:
    """The rule of a row of the elementwise table, made from its texts."""
    from flambeau.ops import elementwise_derivatives
    from flambeau.ops.registry import OPS

    row = next(elementwise_derivatives.ROWS[name] for name, made in OPS.items() if made is op)
    gradients = []
    for letter, text in zip(_LETTERS, _texts(row), strict=False):
        if text:
            needed = sorted(set(_GIVEN.findall(text)))
            source = f"lambda {', '.join(['grad', *needed])}: {text}"
            gradients.append((letter, eval(source, vars(elementwise_derivatives))))
    parameters = (*_LETTERS[: row.arity], *[f"s{k}" for k in range(row.scalars)], "out_")
    return Rule(
        row.name.strip("_"), parameters, {}, gradients, holomorphic=row.name not in _OF_PARTS
    )


_OF_PARTS = frozenset({"abs", "angle", "conj_physical", "_complex", "_polar"})


def _texts(row: ElementwiseRow) -> tuple[str, ...]:
    """The derivatives of a row; the backward pass says so where there is none."""
    if row.derivative or row.kind in {"compare", "bool"}:
        return row.derivative
    name = row.name.strip("_")
    if row.arity == 1:
        return (f"missing({name!r})",)
    return tuple(f"missing('{name}: {which}')" for which in ("input", "other")[: row.arity])
