# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator
from typing import Any, Final, SupportsIndex, overload

class dtype:  # noqa: N801
    """An element type: ``torch.float32`` and the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def code(self) -> int:
        """The scalar type number, an index of the runtime's tables."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
    @property
    def category(self) -> int:
        """0 bool, 1 integer, 2 float, 3 complex."""
    @property
    def name(self) -> str:
        """``"float32"`` for ``torch.float32``."""
    @property
    def is_floating_point(self) -> bool: ...
    @property
    def is_complex(self) -> bool: ...
    @property
    def is_signed(self) -> bool: ...
    def to_real(self) -> dtype:
        """The dtype of a complex dtype's parts; other dtypes as they are."""
    def to_complex(self) -> dtype:
        """The complex dtype with these parts.

        Raises
        ------
        RuntimeError
            There is none.
        """

class layout:  # noqa: N801
    """How elements lie in memory; ``torch.strided`` is the only one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def name(self) -> str: ...

class memory_format:  # noqa: N801
    """An order of the dimensions in memory, for `contiguous`, `to`, `empty_like`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def name(self) -> str: ...

dtypes: Final[dict[str, dtype]]
"""Every name that a program may use for a dtype, aliases included."""
constants: Final[dict[str, Any]]
"""Layouts and memory formats by name."""

def dtype_named(name: str) -> dtype:
    """The dtype of a name: ``"float32"``, ``"float"``."""

def dtype_from_code(code: int) -> dtype:
    """The dtype of a scalar type number."""

def legacy_type_name(of: dtype) -> str:
    """What error messages and legacy tensor classes call a dtype: ``"Float"`` for float32."""

_dtype = dtype

class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints."""

    def __new__(cls, iterable: Iterable[SupportsIndex] = ...) -> Size: ...
    def numel(self) -> int:
        """The product of the sizes: how many elements such a tensor has."""
    def __add__(self, other: tuple[Any, ...]) -> Size: ...
    def __radd__(self, other: tuple[int, ...]) -> Size: ...
    def __mul__(self, count: SupportsIndex) -> Size: ...
    def __rmul__(self, count: SupportsIndex) -> Size: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> Size: ...
    def __iter__(self) -> Iterator[int]: ...

class finfo:  # noqa: N801
    """Limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str
    def __init__(self, type: _dtype | None = None) -> None: ...

class iinfo:  # noqa: N801
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: str
    def __init__(self, type: _dtype) -> None: ...
