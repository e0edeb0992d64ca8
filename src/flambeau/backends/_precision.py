# SPDX-License-Identifier: Apache-2.0
"""How float32 is computed: one tree of precisions, and the older switches that write into it.

A precision is ``"none"`` (ask the parent), ``"ieee"``, ``"tf32"`` or, where it exists, ``"bf16"``
or ``"bfx9"``. An operation asks itself, then all of CUDA, then the generic setting. The older
switches (`allow_tf32`, `set_float32_matmul_precision`) set both worlds; reading one of them fails
after the newer names have said something else.
"""

from __future__ import annotations

import os
import warnings

from flambeau.runtime import _dtype, _matmul

__all__ = [
    "allow_cudnn_tf32",
    "allow_matmul_tf32",
    "apply",
    "get_float32_matmul_precision",
    "get_precision",
    "reset",
    "restore",
    "saved",
    "set_allow_cudnn_tf32",
    "set_allow_matmul_tf32",
    "set_float32_matmul_precision",
    "set_precision",
]

_KNOWN = ("none", "ieee", "tf32", "bf16", "bfx9")
_WORDS = ("highest", "high", "medium")
_COMPUTE = {"tf32": 1, "bfx9": 2}  # GEMM_TF32 and GEMM_BF16X9
_SINGLE = [_dtype.dtypes[name].code for name in ("float32", "complex64")]
_UNSET = "unset"  # of conv and rnn: tf32, unless a parent says something

_precisions: dict[tuple[str, str], str] = {}
_word = "highest"  # of set_float32_matmul_precision
_cudnn_tf32 = True


def reset() -> None:
    """Begin again, as the environment says."""
    global _word, _cudnn_tf32
    _precisions.clear()
    _precisions.update(
        {
            ("generic", "all"): "none",
            ("cuda", "all"): "none",
            ("cuda", "matmul"): "none",
            ("cuda", "conv"): _UNSET,
            ("cuda", "rnn"): _UNSET,
        }
    )
    _word, _cudnn_tf32 = "highest", True
    if os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
        _word, _precisions["cuda", "matmul"] = "high", "tf32"


def saved() -> tuple[dict[tuple[str, str], str], str, bool]:
    """All settings, for `restore`."""
    return dict(_precisions), _word, _cudnn_tf32


def restore(state: tuple[dict[tuple[str, str], str], str, bool]) -> None:
    """Go back to what `saved` gave."""
    global _word, _cudnn_tf32
    _precisions.update(state[0])
    _word, _cudnn_tf32 = state[1:]
    apply()


def get_precision(backend: str, operation: str) -> str:
    """What an operation of a backend resolves to."""
    own = _precisions[backend, operation]
    parents = [_precisions["cuda", "all"], _precisions["generic", "all"]]
    if backend == "generic":
        parents = []
    elif operation == "all":
        parents = parents[1:]
    for one in (own, *parents):
        if one not in {"none", _UNSET}:
            return one
    return "tf32" if own == _UNSET else "none"


def set_precision(backend: str, operation: str, precision: str) -> None:
    """Set a node of the tree.

    Raises
    ------
    RuntimeError
        The precision is unknown, or not one of this backend or operation.
    """
    if precision not in _KNOWN:
        raise RuntimeError(f"Unknown precision: {precision}. Choose from {', '.join(_KNOWN)}.")
    if precision == "bfx9" and (backend, operation) != ("cuda", "matmul"):
        raise RuntimeError(
            "Precision 'bfx9' is only supported for backend 'cuda' and op 'matmul', not for "
            f"backend '{backend}' and op '{operation}'"
        )
    if precision == "bf16" and backend == "cuda":
        raise RuntimeError(
            "backend 'cuda' does not support precision 'bf16'; use 'ieee', 'tf32' or 'none'"
        )
    _precisions[backend, operation] = precision
    apply()


def apply() -> None:
    """Have products computed as the settings say."""
    compute = _COMPUTE.get(get_precision("cuda", "matmul"), 0)
    for code in _SINGLE:
        rest = _matmul.get_compute(code) & ~0xF
        _matmul.set_compute(code, rest | compute)


def _mixed(what: str) -> RuntimeError:
    return RuntimeError(
        f"{what} cannot tell: a mix of the legacy and new APIs was used to set float32 precision, "
        "and they disagree. Use one of them: allow_tf32 and set_float32_matmul_precision, or "
        "fp32_precision."
    )


def allow_matmul_tf32() -> bool:
    """Whether products may use tf32, as the older switch says it.

    Raises
    ------
    RuntimeError
        The newer setting says something else.
    """
    legacy = _word != "highest"
    if legacy != (get_precision("cuda", "matmul") == "tf32"):
        raise _mixed("torch.backends.cuda.matmul.allow_tf32")
    return legacy


def set_allow_matmul_tf32(allow: bool) -> None:
    """Set both worlds."""
    global _word
    _word = "high" if allow else "highest"
    set_precision("cuda", "matmul", "tf32" if allow else "ieee")


def allow_cudnn_tf32() -> bool:
    """Whether convolutions and recurrent layers may use tf32.

    Raises
    ------
    RuntimeError
        The newer setting says something else.
    """
    now = [get_precision("cuda", operation) == "tf32" for operation in ("conv", "rnn")]
    if now != [_cudnn_tf32] * 2:
        raise _mixed("torch.backends.cudnn.allow_tf32")
    return _cudnn_tf32


def set_allow_cudnn_tf32(allow: bool) -> None:
    """Set both worlds."""
    global _cudnn_tf32
    _cudnn_tf32 = bool(allow)
    for operation in ("conv", "rnn"):
        set_precision("cuda", operation, "tf32" if allow else "none")


def get_float32_matmul_precision() -> str:
    """Give the word of `set_float32_matmul_precision`, ``"highest"`` at first.

    Raises
    ------
    RuntimeError
        ``fp32_precision`` has been set to something else since.
    """
    if (_word != "highest") != (get_precision("cuda", "matmul") == "tf32"):
        raise _mixed("torch.get_float32_matmul_precision")
    return _word


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 matrix products are computed.

    Parameters
    ----------
    precision
        ``"highest"``: in float32. ``"high"`` and ``"medium"``: on CUDA, operands are rounded to
        tf32, with 10 bits of mantissa, and summed in float32, which is many times faster. Another
        word warns and changes nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.set_float32_matmul_precision("high")
    >>> torch.backends.cuda.matmul.allow_tf32
    True
    >>> torch.set_float32_matmul_precision("highest")
    """
    global _word
    if precision not in _WORDS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            "setFloat32MatmulPrecision call has no effect.",
            UserWarning,
            stacklevel=2,
        )
        return
    _word = precision
    set_precision("cuda", "matmul", "ieee" if precision == "highest" else "tf32")


reset()
