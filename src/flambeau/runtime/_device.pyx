# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Devices as values: parsing ``"cuda:1"``, the default device, and which CUDA index is meant."""
import threading

from flambeau.runtime cimport _state
from flambeau.runtime._dtype cimport set_public_name

cdef tuple KINDS = ("cpu", "cuda", "meta")


cdef device _make(int kind, int number):
    cdef device made = device.__new__(device)
    made.kind = kind
    made.type = <str>KINDS[kind]
    made.number = number
    made.index = None if number < 0 else number
    return made


cdef _parse(device into, str text):
    if not text:
        raise RuntimeError("Device string must not be empty; give 'cpu', 'cuda' or 'cuda:0'")
    kind, colon, number = text.partition(":")
    if kind not in KINDS:
        if kind.rstrip("0123456789") in KINDS:
            raise RuntimeError(f"Invalid device string: '{text}': write a colon before the index, as in 'cuda:0'")
        raise RuntimeError(f"Expected one of cpu, cuda, meta device type at start of device string: {text}")
    into.kind = KINDS.index(kind)
    into.type = <str>KINDS[into.kind]
    into.number = -1
    into.index = None
    if colon:
        if not (number.isascii() and number.isdigit()) or (number[0] == "0" and number != "0") or len(number) > 4:
            raise RuntimeError(
                f"Invalid device string: '{text}': after the colon comes an index without sign or leading zeros")
        into.number = int(number)
        into.index = into.number


cdef class device:
    """Where a tensor lives: ``device("cuda:1")``, ``device("cuda", 1)``, ``device(1)``, ``device("cpu")``.

    As a context manager it is the default device of the factory functions inside the block.

    Parameters
    ----------
    type
        ``"cpu"``, ``"cuda"`` or ``"meta"``, with an index after a colon if `index` is left out;
        or an int, the index of a CUDA device; or another device.
    index
        The device's index. ``None`` means the current device when it is used.

    Raises
    ------
    RuntimeError
        The string names no device or the index is negative.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.device("cuda:1").index
    1
    """

    def __init__(self, type, index=None):
        self.entered = None
        if isinstance(type, device) and index is None:
            self.kind, self.number = (<device>type).kind, (<device>type).number
            self.type, self.index = (<device>type).type, (<device>type).index
            return
        if isinstance(type, int) and not isinstance(type, bool) and index is None:
            self.kind, self.type, index = KIND_CUDA, "cuda", type
        elif isinstance(type, str):
            _parse(self, type)
            if index is None:
                return
            if self.number >= 0:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}")
        else:
            raise TypeError(f"device() takes a string, an int or a device, got {type!r}")
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"a device index is an int, got {index!r}")
        if index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        self.number = index
        self.index = self.number

    def __eq__(self, other):
        if not isinstance(other, device):
            return NotImplemented
        return self.kind == (<device>other).kind and self.number == (<device>other).number

    def __hash__(self):
        return self.kind << 16 | (self.number & 0xFFFF)

    def __repr__(self):
        index = "" if self.number < 0 else f", index={self.number}"
        return f"device(type='{self.type}'{index})"

    def __str__(self):
        return self.type if self.number < 0 else f"{self.type}:{self.number}"

    def __reduce__(self):
        return device, ((self.type,) if self.number < 0 else (self.type, self.number))

    def __enter__(self):
        if self.entered is None:
            self.entered = []
        self.entered.append(getattr(_default, "device", None))
        _set_default(self)
        return self

    def __exit__(self, *exception):
        _set_default(self.entered.pop())


set_public_name(device, b"flambeau.device")

_default = threading.local()
cdef bint _default_was_set = False      # by any thread; until then None means the host, unasked


cdef _set_default(object value):
    global _default_was_set
    _default_was_set = True
    _default.device = value


def set_default_device(value):
    """Set this thread's default device of the factory functions; None goes back to the CPU."""
    _set_default(None if value is None else parse_device(value))


def get_default_device():
    """This thread's default device of the factory functions."""
    return getattr(_default, "device", None) or _host

cdef device _host = _make(KIND_CPU, -1)
cdef list _cuda = [_make(KIND_CUDA, i) for i in range(_state.MAX_DEVICES)]


cdef device device_of(int index):
    return _host if index < 0 else <device>_cuda[index]


cdef device parse_device(object argument):
    if isinstance(argument, device):
        return <device>argument
    return device(argument)


cdef int _invalid_ordinal(int number) except -2:
    from flambeau.driver import errors
    raise errors.from_status(
        101, f"Device {number} was asked for; this process sees {_state.device_total} "
             f"(indices 0 to {_state.device_total - 1}).")


cdef int resolve_device(object argument) except -2:
    cdef device wanted
    cdef int number
    if argument is None:
        if not _default_was_set:
            return -1
        argument = getattr(_default, "device", None)
        if argument is None:
            return -1
    if type(argument) is device:
        wanted = <device>argument
    elif type(argument) is str and argument == "cuda":
        _state.require_initialized()
        return _state.thread_state().device
    else:
        wanted = parse_device(argument)
    if wanted.kind == KIND_CPU:
        return -1
    if wanted.kind != KIND_CUDA:
        raise NotImplementedError(f"tensors on the {wanted.type} device do not exist yet; use 'cpu' or 'cuda'")
    _state.require_initialized()
    number = wanted.number
    if number < 0:
        return _state.thread_state().device
    if number >= _state.device_total:
        return _invalid_ordinal(number)
    return number


def device_index(argument=None):
    """-1 for the host, else the index of a CUDA device, which gets initialised.

    Parameters
    ----------
    argument
        What factories take as ``device=``: a device, a string, an int, or None for the default.
    """
    return resolve_device(argument)
