# SPDX-License-Identifier: Apache-2.0
from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import type as _type
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar, overload

from flambeau.runtime._device import device as _device
from flambeau.runtime._device import device as device
from flambeau.runtime._device import device_index as device_index
from flambeau.runtime._device import get_default_device as get_default_device
from flambeau.runtime._device import set_default_device as set_default_device
from flambeau.runtime._dtype import Size as Size
from flambeau.runtime._dtype import dtype as _dtype
from flambeau.runtime._dtype import dtype as dtype
from flambeau.runtime._dtype import finfo as finfo
from flambeau.runtime._dtype import iinfo as iinfo
from flambeau.runtime._dtype import layout as _layout
from flambeau.runtime._dtype import layout as layout
from flambeau.runtime._dtype import memory_format as _memory_format
from flambeau.runtime._dtype import memory_format as memory_format
from flambeau.runtime._factory import empty as empty
from flambeau.runtime._factory import empty_like as empty_like
from flambeau.runtime._factory import empty_strided as empty_strided
from flambeau.runtime._factory import from_buffer as from_buffer
from flambeau.runtime._factory import from_sequence as from_sequence
from flambeau.runtime._factory import get_default_dtype as get_default_dtype
from flambeau.runtime._factory import new_empty as new_empty
from flambeau.runtime._factory import set_default_dtype as set_default_dtype
from flambeau.runtime._factory import wrap_foreign as wrap_foreign
from flambeau.runtime._storage import UntypedStorage as UntypedStorage
from flambeau.runtime.typed_storage import TypedStorage

_T = TypeVar("_T", bound=Tensor)

class Tensor:
    """A multi-dimensional array of one element type, on the host or on a CUDA device.

    Make one with `tensor`, `empty`, `zeros` and the other factories. Slices, transposes and
    reshapes are views: they share memory with the tensor they came from.
    """

    __array_priority__: ClassVar[_int]
    is_sparse: ClassVar[_bool]
    is_meta: ClassVar[_bool]
    is_mps: ClassVar[_bool]
    is_quantized: ClassVar[_bool]
    is_xpu: ClassVar[_bool]
    is_mkldnn: ClassVar[_bool]
    is_nested: ClassVar[_bool]
    requires_grad: _bool
    grad: Tensor | None
    data: Tensor

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def _base(self) -> Tensor | None:
        """The tensor that this one is a view of, or None."""
    @staticmethod
    def _make_subclass(
        cls: _type[_T],  # noqa: PLW0211 - torch's name for it
        data: Tensor,
        require_grad: _bool = False,
    ) -> _T:
        """An instance of `cls` over the memory of `data`, without calling ``__init__``."""
    @property
    def shape(self) -> Size:
        """The sizes, as a `Size`."""
    @property
    def ndim(self) -> _int:
        """How many dimensions."""
    @property
    def itemsize(self) -> _int:
        """Bytes of one element."""
    @property
    def nbytes(self) -> _int:
        """Bytes of all elements."""
    @property
    def dtype(self) -> _dtype:
        """The element type."""
    @property
    def device(self) -> _device:
        """Where the memory is."""
    @property
    def layout(self) -> _layout:
        """Always ``torch.strided``."""
    @property
    def is_cuda(self) -> _bool:
        """Whether the memory is a CUDA device's."""
    @property
    def is_cpu(self) -> _bool:
        """Whether the memory is the host's."""
    @property
    def grad_fn(self) -> Any:
        """None: nothing records operations."""
    @property
    def is_leaf(self) -> _bool:
        """Always True."""
    @property
    def _version(self) -> _int:
        """How many in-place writes this memory has seen; raises for inference tensors."""
    @property
    def _cdata(self) -> _int:
        """The address of the Python object."""
    @property
    def T(self) -> Tensor:  # noqa: N802
        """All dimensions in reverse order."""
    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The last two dimensions exchanged."""
    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: _int) -> _int: ...
    @overload
    def stride(self, dim: None = None) -> tuple[_int, ...]: ...
    @overload
    def stride(self, dim: _int) -> _int: ...
    def dim(self) -> _int:
        """How many dimensions."""
    def ndimension(self) -> _int:
        """How many dimensions."""
    def numel(self) -> _int:
        """How many elements."""
    def nelement(self) -> _int:
        """How many elements."""
    def element_size(self) -> _int:
        """Bytes of one element."""
    def get_device(self) -> _int:
        """The CUDA device's index; -1 for a host tensor."""
    def is_floating_point(self) -> _bool:
        """Whether the elements are real floating-point numbers."""
    def is_complex(self) -> _bool:
        """Whether the elements are complex."""
    def is_signed(self) -> _bool:
        """Whether the element type has negative values."""
    def is_contiguous(self, memory_format: _memory_format | None = None) -> _bool:
        """Whether elements lie in row-major order without gaps, or in the order of a format."""
    def data_ptr(self) -> _int:
        """The address of element 0, an int; 0 for a tensor without memory."""
    def storage_offset(self) -> _int:
        """How many elements into its storage this tensor begins."""
    def untyped_storage(self) -> UntypedStorage:
        """The memory behind this tensor and its views, as bytes."""
    def record_stream(self, s: Any) -> None:
        """Declare that a stream works on this tensor too."""
    def storage(self) -> TypedStorage:
        """The memory behind this tensor and its views, as elements of its dtype."""
    def is_pinned(self, device: Any = None) -> _bool:
        """Whether a device can reach this host memory directly."""
    def _is_view(self) -> _bool:
        """Whether this tensor is a view of another."""
    def is_inference(self) -> _bool:
        """Whether it was made inside `inference_mode`, or is a view of what was."""
    def _mark_written(self) -> None:
        """Count an in-place write that was made behind the tensor's back, by a kernel."""
    def requires_grad_(self, requires_grad: _bool = True) -> Self:
        """Set ``requires_grad`` and return this tensor."""
    def detach(self) -> Self:
        """A tensor over the same memory that takes no part in gradients."""
    def detach_(self) -> Self:
        """Take this tensor out of gradients and return it."""
    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: _bool | None = None,
        create_graph: _bool = False,
        inputs: Any = None,
    ) -> None:
        """Compute gradients with respect to the leaves of the graph and add them there."""
    def retain_grad(self) -> None:
        """Have ``grad`` filled by backward passes although this tensor is no leaf."""
    @property
    def retains_grad(self) -> _bool: ...
    @property
    def output_nr(self) -> int: ...
    def register_hook(self, hook: Any) -> Any:
        """Have ``hook(grad)`` called when this tensor's gradient is computed."""
    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Have ``hook(param)`` called after a backward pass added to this leaf's ``grad``."""
    def as_subclass(self, cls: _type[_T]) -> _T:
        """The tensor's memory as an instance of a subclass of `Tensor`."""
    def item(self) -> Any:
        """The only element, as a Python number. Waits for the device."""
    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
    def view(
        self,
        size: Any = None,
        size1: _int | None = None,
        size2: _int | None = None,
        size3: _int | None = None,
        size4: _int | None = None,
        size5: _int | None = None,
        size6: _int | None = None,
        size7: _int | None = None,
        size8: _int | None = None,
        size9: _int | None = None,
        *,
        dtype: _dtype | None = None,
    ) -> Tensor:
        """The same memory with another shape or element type."""
    def reshape(self, *shape: Any) -> Tensor:
        """Another shape: a view where strides allow it, else a copy."""
    def view_as(self, other: Tensor) -> Tensor:
        """A view with the shape of another tensor."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """`reshape` to the shape of another tensor."""
    def flatten(self, start_dim: _int = 0, end_dim: _int = -1) -> Tensor:
        """Dimensions `start_dim` to `end_dim` as one; a view where strides allow it, else a copy."""
    def ravel(self) -> Tensor:
        """All elements in one dimension; a view of a contiguous tensor, else a copy."""
    def unflatten(self, dim: _int, sizes: Sequence[_int]) -> Tensor:
        """One dimension as several, of which one size may be -1."""
    def as_strided(
        self,
        size: Sequence[_int],
        stride: Sequence[_int],
        storage_offset: _int | None = None,
    ) -> Tensor:
        """A view with these sizes, strides and offset into the storage, all in elements."""
    def transpose(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions exchanged."""
    def swapaxes(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions exchanged."""
    def swapdims(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions exchanged."""
    def t(self) -> Tensor:
        """A matrix transposed; a tensor with fewer dimensions as it is."""
    def permute(self, *dims: Any) -> Tensor:
        """The dimensions in another order: ``permute(2, 0, 1)``."""
    def movedim(self, source: _int | Sequence[_int], destination: _int | Sequence[_int]) -> Tensor:
        """Dimensions moved to other places; the others keep their order."""
    def moveaxis(self, source: _int | Sequence[_int], destination: _int | Sequence[_int]) -> Tensor:
        """Dimensions moved to other places; the others keep their order."""
    def squeeze(self, dim: _int | Sequence[_int] | None = None) -> Tensor:
        """Without the dimensions of size 1, or without those of `dim` that have size 1."""
    def unsqueeze(self, dim: _int) -> Tensor:
        """With a new dimension of size 1."""
    def expand(self, *sizes: Any, implicit: _bool = False) -> Tensor:
        """Dimensions of size 1 repeated to these sizes without copying; -1 keeps a size."""
    def expand_as(self, other: Tensor) -> Tensor:
        """`expand` to the shape of another tensor."""
    def narrow(self, dim: _int, start: _int | Tensor, length: _int) -> Tensor:
        """`length` indices of a dimension, from `start` on."""
    def select(self, dim: _int, index: _int) -> Tensor:
        """One index of a dimension, which goes away."""
    def unbind(self, dim: _int = 0) -> tuple[Tensor, ...]:
        """A tuple of the views at each index of a dimension."""
    def split(self, split_size: _int | Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
        """A tuple of views along a dimension."""
    def split_with_sizes(self, split_sizes: Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
        """`split` into parts of these sizes."""
    def chunk(self, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` views along a dimension, all of one size but the last."""
    def diagonal(self, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
        """The diagonals of the matrices in two dimensions, as a new last dimension."""
    def unfold(self, dimension: _int, size: _int, step: _int) -> Tensor:
        """All windows of `size` along a dimension, `step` apart, as a new last dimension."""
    def resize_(self, *sizes: Any, memory_format: _memory_format | None = None) -> Tensor:
        """Give this tensor other sizes, row-major, and more memory if they need it."""
    def set_(
        self,
        source: Any = None,
        storage_offset: _int | None = None,
        size: Sequence[_int] | None = None,
        stride: Sequence[_int] | None = None,
    ) -> Tensor:
        """Have this tensor use the memory of another tensor or of a storage, with these sizes and strides.."""
    def copy_(self, src: Tensor, non_blocking: _bool = False) -> Self:
        """Copy the elements of another tensor into this one, with conversion and broadcasting."""
    def fill_(self, value: Tensor | _complex) -> Self:
        """Set every element to a number, or to the value of a tensor without dimensions."""
    def zero_(self) -> Self:
        """Set every element to 0."""
    def clone(self, *, memory_format: _memory_format | None = None) -> Tensor:
        """A copy on the same device, with the same order of dimensions in memory."""
    def contiguous(self, memory_format: _memory_format | None = None) -> Tensor:
        """The tensor if its elements lie in row-major order (or in that of a format), else such a copy.."""
    def pin_memory(self, device: Any = None) -> Tensor:
        """The tensor if its memory is pinned, else a copy in pinned host memory."""
    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: _dtype | None = None,
        non_blocking: _bool = False,
        copy: _bool = False,
        memory_format: _memory_format | None = None,
    ) -> Tensor:
        """The tensor with another dtype, on another device, or both; itself if nothing changes."""
    def cpu(self, memory_format: _memory_format | None = None) -> Tensor:
        """The tensor if it is in host memory, else a copy there. Waits for the device."""
    def cuda(
        self,
        device: Any = None,
        non_blocking: _bool = False,
        memory_format: _memory_format | None = ...,
    ) -> Tensor:
        """The tensor if it is on that CUDA device, else a copy there."""
    def type(self, dtype: Any = None, non_blocking: _bool = False, **kwargs: Any) -> Any:
        """The name of the legacy class, ``"torch.cuda.FloatTensor"``."""
    def type_as(self, other: Tensor) -> Tensor:
        """The tensor with the dtype and on the device of another."""
    def float(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def half(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def bfloat16(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def double(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def int(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def long(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def short(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def char(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def byte(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def bool(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def cfloat(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def cdouble(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def chalf(self, memory_format: _memory_format | None = None) -> Tensor: ...
    def __add__(self, other: Any, /) -> Tensor: ...
    def __radd__(self, other: Any, /) -> Tensor: ...
    def __iadd__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Tensor: ...
    def __rsub__(self, other: Any, /) -> Tensor: ...
    def __isub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Tensor: ...
    def __rmul__(self, other: Any, /) -> Tensor: ...
    def __imul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Tensor: ...
    def __rtruediv__(self, other: Any, /) -> Tensor: ...
    def __itruediv__(self, other: Any, /) -> Self: ...
    def __floordiv__(self, other: Any, /) -> Tensor: ...
    def __rfloordiv__(self, other: Any, /) -> Tensor: ...
    def __ifloordiv__(self, other: Any, /) -> Self: ...
    def __mod__(self, other: Any, /) -> Tensor: ...
    def __rmod__(self, other: Any, /) -> Tensor: ...
    def __imod__(self, other: Any, /) -> Self: ...
    def __pow__(self, other: Any, mod: None = None, /) -> Tensor: ...
    def __rpow__(self, other: Any, mod: None = None, /) -> Tensor: ...
    def __ipow__(self, other: Any, /) -> Self: ...  # type: ignore[misc]
    def __and__(self, other: Any, /) -> Tensor: ...
    def __rand__(self, other: Any, /) -> Tensor: ...
    def __iand__(self, other: Any, /) -> Self: ...
    def __or__(self, other: Any, /) -> Tensor: ...
    def __ror__(self, other: Any, /) -> Tensor: ...
    def __ior__(self, other: Any, /) -> Self: ...
    def __xor__(self, other: Any, /) -> Tensor: ...
    def __rxor__(self, other: Any, /) -> Tensor: ...
    def __ixor__(self, other: Any, /) -> Self: ...
    def __lshift__(self, other: Any, /) -> Tensor: ...
    def __rlshift__(self, other: Any, /) -> Tensor: ...
    def __ilshift__(self, other: Any, /) -> Self: ...
    def __rshift__(self, other: Any, /) -> Tensor: ...
    def __rrshift__(self, other: Any, /) -> Tensor: ...
    def __irshift__(self, other: Any, /) -> Self: ...
    def __matmul__(self, other: Any, /) -> Tensor: ...
    def __rmatmul__(self, other: Any, /) -> Tensor: ...
    def __lt__(self, other: Any, /) -> Tensor: ...
    def __le__(self, other: Any, /) -> Tensor: ...
    def __gt__(self, other: Any, /) -> Tensor: ...
    def __ge__(self, other: Any, /) -> Tensor: ...
    def __eq__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __hash__(self) -> _int: ...
    def __len__(self) -> _int: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __contains__(self, value: object, /) -> _bool: ...
    def __bool__(self) -> _bool: ...
    def __int__(self) -> _int: ...
    def __float__(self) -> _float: ...
    def __complex__(self) -> _complex: ...
    def __index__(self) -> _int: ...
    def __getitem__(self, index: Any, /) -> Tensor: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def __buffer__(self, flags: _int, /) -> memoryview: ...
    __dlpack_c_exchange_api__: ClassVar[Any]
    def __dlpack__(
        self,
        *,
        stream: _int | None = None,
        max_version: tuple[_int, _int] | None = None,
        dl_device: tuple[_int, _int] | None = None,
        copy: _bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[_int, _int]: ...
    # The methods that `install_methods` adds.
    def __getattr__(self, name: str) -> Any: ...

def install_operators(table: dict[str, Callable[..., Any]]) -> None:
    """Give tensors their operators.

    Parameters
    ----------
    table
        Callables by the special method's name without underscores: ``{"add": op, "neg": op}``.
        ``add`` serves ``+``, its reflected form and ``+=``; what is no `ElementwiseOp` is called as
        ``f(a, b)``, for ``+=`` with ``out=a``. Others: ``copy(source, out=target)``,
        ``fill(value, out=target)``, ``getitem(tensor, index)`` and
        ``setitem(tensor, index, value)`` for advanced indices, ``repr(tensor)``,
        ``format(tensor, spec)``, ``contains(tensor, value)``.
    """

def operator_of(name: str) -> Callable[..., Any] | None:
    """What is installed as an operator, or None."""

def install_methods(table: dict[str, Any]) -> None:
    """Add methods and properties to `Tensor`, by name; what is there already is replaced."""

def install_constructor(construct: Callable[[Tensor, tuple[Any, ...], Any], object]) -> None:
    """Set what ``Tensor(...)`` does: ``construct(instance, args, kwargs)``."""

def result_class_of(cls: type[Tensor]) -> type[Tensor]:
    """The class that results of operations on `cls` have: itself, or `Tensor`."""

def _disabled_torch_function_impl(
    function: Callable[..., Any],
    types: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Stands as ``__torch_function__`` in subclasses whose operations give plain tensors."""

class TensorExtra: ...
