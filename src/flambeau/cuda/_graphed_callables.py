# SPDX-License-Identifier: Apache-2.0
"""Functions and modules whose forward and backward are replays of graphs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import flambeau
from flambeau.autograd import Function
from flambeau.autograd.function import once_differentiable
from flambeau.cuda._memory_pool import graph_pool_handle
from flambeau.cuda.graphs import CUDAGraph, graph
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["make_graphed_callables"]


# -- nested arguments -----------------------------------------------------------------------------


def _flatten(value: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        return [leaf for one in value for leaf in _flatten(one)]
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in _flatten(one)]
    return [value]


def _like(value: Any, leaves: list[Any]) -> Any:
    """The same nesting with other leaves, which are taken from the front of the list."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_like(one, leaves) for one in value])
    if isinstance(value, (tuple, list)):
        return type(value)(_like(one, leaves) for one in value)
    if isinstance(value, dict):
        return {key: _like(one, leaves) for key, one in value.items()}
    return leaves.pop(0)


# -- what is captured -----------------------------------------------------------------------------


class _Callable:
    """One function or module on its way to being two graphs."""

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        self.flat = _flatten(args)
        is_module = _is_module(function)
        self.parameters = list(function.parameters()) if is_module else []
        self.surface = (*self.flat, *self.parameters)
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()
        self.nested: Any = None
        self.outputs: list[Tensor] = []
        self.given: list[Tensor | None] = []  # gradients of the outputs
        self.made: list[Tensor | None] = []  # gradients of the surface

    def differentiated(self) -> tuple[Tensor, ...]:
        return tuple(one for one in self.surface if one.requires_grad)

    def gradients(self, outputs: Sequence[Tensor], given: Sequence[Any], unused: bool) -> Any:
        return flambeau.autograd.grad(
            [one for one in outputs if one.requires_grad],
            self.differentiated(),
            [one for one in given if one is not None],
            allow_unused=unused,
        )

    def warm_up(self, times: int, unused: bool) -> None:
        for _ in range(times):
            outputs = _flatten(self.function(*self.args))
            if _differentiable(outputs) and self.differentiated():
                self.gradients(outputs, _blank(outputs), unused)

    def capture_forward(self, options: dict[str, Any]) -> None:
        with graph(self.forward_graph, **options):
            self.nested = self.function(*self.args)
        self.outputs = _flatten(self.nested)
        for one in self.outputs:
            if not isinstance(one, Tensor):
                raise TypeError(
                    "a graphed callable returns tensors, in tuples, lists and dicts; it returned a "
                    f"{type(one).__name__}"
                )
        self.nested = _like(self.nested, [None] * len(self.outputs))

    def capture_backward(self, options: dict[str, Any], unused: bool) -> None:
        self.made = [None] * len(self.surface)
        self.given = _blank(self.outputs)
        if not (_differentiable(self.outputs) and self.differentiated()):
            return
        with graph(self.backward_graph, **options):
            found = iter(self.gradients(self.outputs, self.given, unused))
        self.made = [next(found) if one.requires_grad else None for one in self.surface]

    def finish(self) -> None:
        """Let go of the record, and of the module: from now on outputs are buffers."""
        self.function, self.args, self.surface = None, (), ()
        self.outputs = [one.detach() for one in self.outputs]
        self.made = [None if one is None else one.detach() for one in self.made]


def _differentiable(outputs: Sequence[Any]) -> bool:
    return any(isinstance(one, Tensor) and one.requires_grad for one in outputs)


def _blank(outputs: Sequence[Any]) -> list[Tensor | None]:
    """A gradient for each output that has one: zeros, because warming up computes with it."""
    return [
        flambeau.zeros_like(one) if isinstance(one, Tensor) and one.requires_grad else None
        for one in outputs
    ]


# -- what takes its place -------------------------------------------------------------------------


def _replaying(made: _Callable) -> Callable[..., Any]:
    """A function that replays."""
    count = len(made.flat)

    class Graphed(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
            for static, given in zip(made.flat, inputs[:count], strict=True):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            made.forward_graph.replay()
            outputs = tuple(one.detach() for one in made.outputs)
            constant = [one for one, grad in zip(outputs, made.given, strict=True) if grad is None]
            ctx.mark_non_differentiable(*constant)
            return outputs

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            for static, given in zip(made.given, grads, strict=True):
                if static is not None and given is not None:  # noqa: SIM102
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given)
            made.backward_graph.replay()
            # Parameters keep what they get, so it must not be the buffer of the next replay.
            return tuple(_handed_out(one, k >= count) for k, one in enumerate(made.made))

    def call(*args: Any) -> Any:
        flat = _flatten(args)
        if len(flat) != count:
            raise TypeError(
                f"this graphed callable was captured with {count} tensors, it is called with "
                f"{len(flat)}"
            )
        results = Graphed.apply(*flat, *made.parameters)
        return _like(made.nested, list(results))

    return call


def _handed_out(gradient: Tensor | None, copied: bool) -> Tensor | None:
    if gradient is None:
        return None
    return gradient.clone() if copied else gradient.detach()


def _is_module(value: Any) -> bool:
    from flambeau.nn import Module

    return isinstance(value, Module)


def _take_over(module: Any, replay: Callable[..., Any]) -> Any:
    """Have a module's forward replay while its mode is that of the capture."""
    original, captured_in = module.forward, module.training
    reference = weakref.ref(module)
    bound = getattr(original, "__func__", None)

    def forward(*args: Any, **kwargs: Any) -> Any:
        owner = reference()
        if owner is None:
            raise RuntimeError(
                "this forward belongs to a module that is gone: the graphed module has been freed; "
                "keep the module for as long as its forward is called"
            )
        if owner.training == captured_in:
            return replay(*args, **kwargs)
        return original(*args, **kwargs) if bound is None else bound(owner, *args, **kwargs)

    if bound is not None:
        original = None  # it would keep the module alive
    module.forward = forward
    return module


# -- the public function --------------------------------------------------------------------------


class _Checked(NamedTuple):
    callables: tuple[Any, ...]
    args: tuple[tuple[Any, ...], ...]
    single: bool


def _check(callables: Any, sample_args: Any) -> _Checked:
    if flambeau.is_autocast_enabled() and flambeau.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching: a cast that was kept "
            "would be read by every replay. Use torch.autocast(..., cache_enabled=False)."
        )
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    args = (sample_args,) if single else sample_args
    if len(args) != len(functions):
        raise AssertionError(f"{len(functions)} callables need as many tuples of arguments")
    for function, given in zip(functions, args, strict=True):
        if _is_module(function):
            _check_module(function)
        if not isinstance(given, tuple) or not all(isinstance(t, Tensor) for t in _flatten(given)):
            raise AssertionError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other "
                f"types are not allowed; got {given!r}: a tuple of tensors is expected"
            )
    return _Checked(tuple(functions), tuple(args), single)


def _check_module(module: Any) -> None:
    hooks = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        raise AssertionError(
            "Modules must not have hooks registered at the time they are passed. However, "
            "registering hooks after passing them through make_graphed_callables is allowed."
        )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise AssertionError(
            "In any Module passed to make_graphed_callables, only parameters may be trainable. All "
            "buffers must have requires_grad=False."
        )


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
) -> Any:
    """Capture functions or modules, forward and backward, as graphs, and give what replays them.

    Parameters
    ----------
    callables
        A function, a module, or a tuple of them in the order in which they will run.
    sample_args
        A tuple of tensors for a single callable, for several a tuple of such tuples; shapes,
        devices, dtypes and ``requires_grad`` must be those of later calls. Lists and dicts of
        tensors may be inside.
    num_warmup_iters
        How often each runs before it is captured.
    allow_unused_input
        Whether inputs may have no influence on the outputs.
    pool
        Memory that the graphs use, of `graph_pool_handle`; a new one unless given.
    capture_error_mode
        As for `graph`.
    enable_annotations
        Whether scopes of `graph_annotations` are recorded.

    Returns
    -------
    callable or tuple of callables
        A function for a function; a module itself, whose ``forward`` replays as long as it is in
        the mode, training or eval, that it was captured in. Calls take tensors only. Results are
        buffers that the next call overwrites; gradients of arguments too, while those of
        parameters are copies. Backward cannot be differentiated again.

    Raises
    ------
    RuntimeError
        Under autocast with its cache; or an input has no influence, unless that is allowed.
    AssertionError
        An argument is no tensor, a module has hooks, or a buffer that requires grad.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(4, device="cuda", requires_grad=True)
    >>> f = torch.cuda.make_graphed_callables(lambda a: (a * a).sum(), (x.clone().detach(),))
    >>> f(torch.full((4,), 3.0, device="cuda")).item()
    36.0
    """
    checked = _check(callables, sample_args)
    parts = [
        _Callable(function, args)
        for function, args in zip(checked.callables, checked.args, strict=True)
    ]
    stream = flambeau.cuda.Stream()
    options = {
        "pool": graph_pool_handle() if pool is None else pool,
        "stream": stream,
        "capture_error_mode": capture_error_mode,
        "enable_annotations": enable_annotations,
    }
    flambeau.cuda.synchronize()
    with flambeau.cuda.stream(stream):
        for part in parts:
            part.warm_up(num_warmup_iters, allow_unused_input)
    flambeau.cuda.synchronize()
    for part in parts:
        part.capture_forward(options)
    for part in reversed(parts):
        part.capture_backward(options, allow_unused_input)
    results = []
    for part, function in zip(parts, checked.callables, strict=True):
        part.finish()
        replay = _replaying(part)
        results.append(_take_over(function, replay) if _is_module(function) else replay)
    return results[0] if checked.single else tuple(results)
