# SPDX-License-Identifier: Apache-2.0
"""DLPack's structs for ctypes, and a producer of hand-made tensors, for the tests beside it."""

from __future__ import annotations

import ctypes
from typing import Any

POINTER = ctypes.c_void_p


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class View(ctypes.Structure):
    _fields_ = [
        ("data", POINTER),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, POINTER)


class Managed(ctypes.Structure):
    _fields_ = [("view", View), ("context", POINTER), ("deleter", DELETER)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("context", POINTER),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("view", View),
    ]


SET_ERROR = ctypes.CFUNCTYPE(None, POINTER, ctypes.c_char_p, ctypes.c_char_p)


class Exchange(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("older", POINTER),
        (
            "allocate",
            ctypes.PYFUNCTYPE(
                ctypes.c_int,
                ctypes.POINTER(View),
                ctypes.POINTER(ctypes.POINTER(ManagedVersioned)),
                POINTER,
                SET_ERROR,
            ),
        ),
        (
            "from_object",
            ctypes.PYFUNCTYPE(
                ctypes.c_int,
                ctypes.py_object,
                ctypes.POINTER(ctypes.POINTER(ManagedVersioned)),
            ),
        ),
        (
            "to_object",
            ctypes.PYFUNCTYPE(
                ctypes.c_int, ctypes.POINTER(ManagedVersioned), ctypes.POINTER(POINTER)
            ),
        ),
        ("view_of", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(View))),
        (
            "current_stream",
            ctypes.PYFUNCTYPE(
                ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(POINTER)
            ),
        ),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [POINTER, ctypes.c_char_p, POINTER]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = POINTER
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = [ctypes.py_object]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]

USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}
_VERSIONED = b"dltensor_versioned"


def name_of(capsule: Any) -> bytes:
    name: bytes = _name(capsule)
    return name


def content_of(capsule: Any) -> Managed | ManagedVersioned:
    """What is in a capsule, without consuming it."""
    name = name_of(capsule)
    of = ManagedVersioned if b"versioned" in name else Managed
    content = of.from_address(_pointer(capsule, name))
    content.capsule = capsule  # which it dies with, unless it is consumed
    return content


def consume(capsule: Any) -> Managed | ManagedVersioned:
    """What is in a capsule, as a consumer takes it: the deleter is its duty now."""
    content = content_of(capsule)
    _rename(capsule, USED[name_of(capsule)])
    return content


def delete(content: Managed | ManagedVersioned) -> None:
    content.deleter(ctypes.addressof(content))


def exchange_of(cls: type) -> Exchange:
    capsule = cls.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
    return Exchange.from_address(_pointer(capsule, b"dlpack_exchange_api"))


_exported: set[Producer] = set()  # alive until their deleters are called


class Producer:
    """An exporter of one tensor of the host, or one that claims to be elsewhere.

    Counts how often its deleter was called.
    """

    def __init__(
        self,
        shape: tuple[int, ...] = (2, 3),
        strides: tuple[int, ...] | None = None,
        *,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (1, 0),
        versioned: bool = True,
        version: tuple[int, int] = (1, 0),
        flags: int = 0,
        byte_offset: int = 0,
        address: int | None = None,
    ) -> None:
        self.memory = (ctypes.c_float * 64)(*range(64))
        self.deleted = 0
        self.arguments: dict[str, Any] = {}
        self.versioned = versioned
        self.content = ManagedVersioned() if versioned else Managed()
        self._deleter = DELETER(self._delete)
        self.content.deleter = self._deleter
        if isinstance(self.content, ManagedVersioned):
            self.content.version = Version(*version)
            self.content.flags = flags
        view = self.content.view
        view.data = ctypes.addressof(self.memory) if address is None else address
        view.device, view.dtype = Device(*device), DataType(*dtype)
        view.ndim, view.byte_offset = len(shape), byte_offset
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        view.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        if strides is not None:
            self._strides = (ctypes.c_int64 * max(1, len(strides)))(*strides)
            view.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))

    def _delete(self, address: int) -> None:
        assert address == ctypes.addressof(self.content)
        self.deleted += 1
        _exported.discard(self)

    def capsule(self) -> Any:
        """A capsule without destructor."""
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        _exported.add(self)
        return _new(ctypes.addressof(self.content), name, None)

    def __dlpack__(self, **arguments: Any) -> Any:
        if not self.versioned and arguments.keys() - {"stream"}:
            raise TypeError("unexpected keyword argument")
        self.arguments = arguments
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.content.view.device
        return (device.type, device.index)
