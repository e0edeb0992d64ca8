# SPDX-License-Identifier: Apache-2.0
"""Layers that apply an activation function: a table of them, each a function and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Activation(Module):
    """A function of `flambeau.nn.functional`, with its options as attributes."""

    _function: ClassVar[Callable[..., Tensor]]
    _options: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        names = list(self._options)
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__} takes at most {len(names)} arguments, got {len(args)}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._options or name in given:
                raise TypeError(f"{type(self).__name__} got an unexpected argument {name!r}")
            given[name] = value
        for name in names:
            value = given.get(name, self._options[name])
            if value is _NEEDED:
                raise TypeError(f"{type(self).__name__} needs the argument {name!r}")
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function."""
        options = {name: getattr(self, name) for name in self._options}
        return type(self)._function(input, **options)

    def extra_repr(self) -> str:
        """The options; ``inplace`` only if it is True."""
        shown = []
        for name in self._options:
            value = getattr(self, name)
            if name == "inplace" and not value:
                continue
            shown.append(f"{name}={value!r}")
        return ", ".join(shown)


_NEEDED = object()


def _layer(name: str, function: Callable[..., Tensor], **options: Any) -> Any:
    """A class for a function."""
    listed = ", ".join(options)
    text = f"`flambeau.nn.functional.{function.__name__}` as a layer."
    if listed:
        text += f"\n\n    Parameters\n    ----------\n    {listed}\n        As for the function."
    return type(
        name,
        (_Activation,),
        {
            "_function": staticmethod(function),
            "_options": options,
            "__doc__": text,
            "__module__": __name__,
        },
    )


ReLU = _layer("ReLU", F.relu, inplace=False)
ReLU6 = _layer("ReLU6", F.relu6, inplace=False)
GELU = _layer("GELU", F.gelu, approximate="none")
SiLU = _layer("SiLU", F.silu, inplace=False)
Mish = _layer("Mish", F.mish, inplace=False)
ELU = _layer("ELU", F.elu, alpha=1.0, inplace=False)
SELU = _layer("SELU", F.selu, inplace=False)
CELU = _layer("CELU", F.celu, alpha=1.0, inplace=False)
LeakyReLU = _layer("LeakyReLU", F.leaky_relu, negative_slope=1e-2, inplace=False)
Softplus = _layer("Softplus", F.softplus, beta=1.0, threshold=20.0)
LogSigmoid = _layer("LogSigmoid", F.logsigmoid)
Hardtanh = _layer("Hardtanh", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardswish = _layer("Hardswish", F.hardswish, inplace=False)
Hardsigmoid = _layer("Hardsigmoid", F.hardsigmoid, inplace=False)
Softshrink = _layer("Softshrink", F.softshrink, lambd=0.5)
Hardshrink = _layer("Hardshrink", F.hardshrink, lambd=0.5)
Tanhshrink = _layer("Tanhshrink", F.tanhshrink)
Threshold = _layer("Threshold", F.threshold, threshold=_NEEDED, value=_NEEDED, inplace=False)
Softsign = _layer("Softsign", F.softsign)
Sigmoid = _layer("Sigmoid", F.sigmoid)
Tanh = _layer("Tanh", F.tanh)
GLU = _layer("GLU", F.glu, dim=-1)
Softmax = _layer("Softmax", F.softmax, dim=None)
LogSoftmax = _layer("LogSoftmax", F.log_softmax, dim=None)
Softmin = _layer("Softmin", F.softmin, dim=None)


class PReLU(Module):
    """Multiply negative elements by a learned slope.

    Parameters
    ----------
    num_parameters
        One slope for all, or one for each channel.
    init
        The first value.
    device, dtype
        Of the slopes.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty((num_parameters,), device=device, dtype=dtype).fill_(init))

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """How many slopes."""
        return f"num_parameters={self.num_parameters}"
