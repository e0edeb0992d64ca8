# SPDX-License-Identifier: Apache-2.0
"""flambeau: ``torch.cuda`` as a library of its own.

``import flambeau as torch`` runs programs written for ``torch.cuda``, on an NVIDIA GPU or on
virtual ones::

    >>> import flambeau as torch
    >>> x = torch.arange(4, device="cuda")
    >>> (x + 1).tolist()
    [1, 2, 3, 4]

Nothing is started by the import: no driver, no compiler, no NumPy. Submodules such as
``flambeau.cuda`` and ``flambeau.virtual`` load at first use.
"""

from __future__ import annotations

import importlib
import importlib.util
import math as _math
import os as _os
from typing import Any

from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.ops import install as _install
from flambeau.ops import later as _later
from flambeau.ops.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from flambeau.ops.printing import set_printoptions
from flambeau.ops.promotion import (
    can_cast,
    get_default_dtype,
    promote_types,
    result_type,
    set_default_dtype,
)
from flambeau.runtime import _dtype
from flambeau.runtime._device import device, get_default_device, set_default_device
from flambeau.runtime._dtype import Size, dtype, finfo, iinfo, layout, memory_format
from flambeau.runtime._tensor import Tensor, UntypedStorage
from flambeau.runtime.typed_storage import TypedStorage

__version__ = "0.1.0"

pi, e, inf, nan = _math.pi, _math.e, _math.inf, _math.nan
newaxis = None

# Defined elsewhere and loaded when asked for.
_LAZY = {
    "Event": "flambeau.cuda._base",
    "Generator": "flambeau.runtime._generator",
    "Stream": "flambeau.cuda._base",
    "are_deterministic_algorithms_enabled": "flambeau.ops.determinism",
    "celu": "flambeau.nn.functional",
    "cosine_similarity": "flambeau.nn.functional",
    "autocast": "flambeau.amp.autocast_mode",
    "autocast_decrement_nesting": "flambeau.amp.autocast_mode",
    "autocast_increment_nesting": "flambeau.amp.autocast_mode",
    "clear_autocast_cache": "flambeau.amp.autocast_mode",
    "get_autocast_cpu_dtype": "flambeau.amp.autocast_mode",
    "get_autocast_dtype": "flambeau.amp.autocast_mode",
    "get_autocast_gpu_dtype": "flambeau.amp.autocast_mode",
    "is_autocast_cache_enabled": "flambeau.amp.autocast_mode",
    "is_autocast_cpu_enabled": "flambeau.amp.autocast_mode",
    "is_autocast_enabled": "flambeau.amp.autocast_mode",
    "set_autocast_cache_enabled": "flambeau.amp.autocast_mode",
    "set_autocast_cpu_dtype": "flambeau.amp.autocast_mode",
    "set_autocast_cpu_enabled": "flambeau.amp.autocast_mode",
    "set_autocast_dtype": "flambeau.amp.autocast_mode",
    "set_autocast_enabled": "flambeau.amp.autocast_mode",
    "set_autocast_gpu_dtype": "flambeau.amp.autocast_mode",
    "default_generator": "flambeau.runtime._generator",
    "embedding": "flambeau.ops.embedding",
    "from_dlpack": "flambeau.utils.dlpack",
    "from_file": "flambeau.interop.files",
    "get_deterministic_debug_mode": "flambeau.ops.determinism",
    "get_device_module": "flambeau.cuda._base",
    "get_float32_matmul_precision": "flambeau.backends._precision",
    "get_rng_state": "flambeau.random",
    "initial_seed": "flambeau.random",
    "is_deterministic_algorithms_warn_only_enabled": "flambeau.ops.determinism",
    "layer_norm": "flambeau.ops.normalization",
    "manual_seed": "flambeau.random",
    "native_layer_norm": "flambeau.ops.normalization",
    "prelu": "flambeau.nn.functional",
    "return_types": "flambeau.ops",
    "rms_norm": "flambeau.ops.normalization",
    "seed": "flambeau.random",
    "selu": "flambeau.nn.functional",
    "set_deterministic_debug_mode": "flambeau.ops.determinism",
    "set_float32_matmul_precision": "flambeau.backends._precision",
    "set_rng_state": "flambeau.random",
    "to_dlpack": "flambeau.utils.dlpack",
    "use_deterministic_algorithms": "flambeau.ops.determinism",
}


def is_tensor(obj: object) -> bool:
    """Whether an object is a `Tensor`."""
    return isinstance(obj, Tensor)


def is_storage(obj: object) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


def is_nonzero(input: Tensor) -> bool:
    """Whether a tensor of one element is not zero."""
    return bool(input)


def typename(obj: object) -> str:
    """The name of an object's type; a tensor's says device and dtype."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    of = obj if isinstance(obj, type) else type(obj)
    return f"{of.__module__}.{of.__qualname__}"


def __getattr__(name: str) -> Any:
    source = _LAZY.get(name)
    if source is not None:
        module = importlib.import_module(source)
        if source == "flambeau.ops":
            found: Any = importlib.import_module(f"{source}.{name}")
        elif hasattr(module, name):
            found = getattr(module, name)
        else:
            raise AttributeError(f"module 'flambeau' has no attribute {name!r}")
        globals()[name] = found
        return found
    if name.startswith(("_foreach_", "_fused_", "_amp_")):
        importlib.import_module("flambeau.ops.foreach_optimizers")  # their rows too
        from flambeau.ops.foreach import FOREACH

        if name in FOREACH:
            return FOREACH[name]
    if name in _later.FUNCTION_NAMES:
        globals()[name] = operation = _later.function(name)
        return operation
    if name.endswith(("Tensor", "Storage")):
        from flambeau.ops.legacy_types import legacy_type

        return legacy_type(name)
    public = name == "_C" or not name.startswith("_")
    if public and importlib.util.find_spec(f"flambeau.{name}") is not None:
        return importlib.import_module(f"flambeau.{name}")
    raise AttributeError(f"module 'flambeau' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_later.FUNCTION_NAMES, "cuda", "virtual"})


_install.install()

__all__ = [
    "AcceleratorError",
    "OutOfMemoryError",
    "Size",
    "Tensor",
    "TypedStorage",
    "UntypedStorage",
    "can_cast",
    "device",
    "dtype",
    "e",
    "enable_grad",
    "finfo",
    "get_default_device",
    "get_default_dtype",
    "iinfo",
    "inf",
    "inference_mode",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_nonzero",
    "is_storage",
    "is_tensor",
    "layout",
    "memory_format",
    "nan",
    "newaxis",
    "no_grad",
    "pi",
    "promote_types",
    "result_type",
    "set_default_device",
    "set_default_dtype",
    "set_grad_enabled",
    "set_printoptions",
    "typename",
]
# Last, because names such as float, int, sum and max shadow Python's own from here on.
globals().update(_dtype.dtypes)
globals().update(_dtype.constants)
globals().update(_install.namespace())
__all__ += [  # noqa: PLE0604
    *_dtype.dtypes,
    *_dtype.constants,
    *_install.namespace(),
    *sorted(_later.FUNCTION_NAMES),
]

if "TORCH_CUDA_SANITIZER" in _os.environ:
    from flambeau.cuda import _sanitizer as _cuda_sanitizer

    _cuda_sanitizer.enable_from_environment()
