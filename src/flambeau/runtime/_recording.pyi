# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from flambeau.runtime._autograd import Node

_F = TypeVar("_F", bound=Callable[..., Any])

class Gradient:
    def __init__(
        self,
        arguments: tuple[str, ...],
        function: Callable[..., Any],
        joint: bool,
        parameters: tuple[str, ...],
    ) -> None: ...
    @property
    def arguments(self) -> tuple[str, ...]: ...

class Rule:
    def __init__(
        self,
        name: str,
        parameters: tuple[str, ...],
        defaults: dict[str, Any],
        gradients: Sequence[tuple[Any, Callable[..., Any]]],
        holomorphic: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...

class RuleNode(Node):
    def __getattr__(self, name: str) -> Any: ...

@final
class Recorded:
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...

def recorded(
    function: _F,
    *,
    in_place: bool = False,
    elementwise: bool = False,
    cast: bool = True,
    short_answer: tuple[Any, Any] | None = None,
) -> _F: ...
def with_rule(function: _F, rule: Rule, *, in_place: bool = False) -> _F: ...
def is_recorded(value: object) -> bool: ...
def set_caster(caster: Callable[..., Any] | None) -> None: ...
def set_autocast(active: bool) -> bool: ...
