# SPDX-License-Identifier: Apache-2.0
"""Loading PTX into virtual devices."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flambeau.driver import errors
from flambeau.driver.virtual import _machine

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.loader import LoadedModule

__all__ = ["VirtualModules"]


@dataclass(slots=True)
class _Module:
    device: int
    life: int
    loaded: LoadedModule
    variables: list[int]
    text: str
    functions: dict[str, int] = field(default_factory=dict)
    watched: LoadedModule | None = None


_watching = threading.RLock()
_owners: dict[int, tuple[_Module, str]] = {}  # of functions, by handle
_handles = itertools.count(1)  # of all machines, so that none means a module of another one


class VirtualModules:
    """Modules of a virtual machine: PTX, compiled for the CPU when it is loaded."""

    def __init__(self) -> None:
        self._modules: dict[int, _Module] = {}

    def load(self, image: bytes, device: int) -> int:
        """Load PTX text; a module's handle.

        Raises
        ------
        AcceleratorError
            The image is not PTX (200), or PTX that does not parse (218).
        UnsupportedPtxError
            It holds an instruction that virtual GPUs do not execute.
        """
        from flambeau.driver.virtual.ptx.loader import load

        text = _ptx_text(image)
        variables: list[int] = []
        life = _machine.life_of_context(device)

        def allocate(size: int, align: int, initial: bytes) -> int:
            # Allocations are aligned to 512 bytes, more than any variable may ask for.
            variables.append(_machine.allocate_global(device, size, initial))
            return variables[-1]

        try:
            loaded = load(text, allocate)
        except BaseException:
            _machine.unregister(device, life, [], variables)
            raise
        handle = next(_handles)
        self._modules[handle] = _Module(device, life, loaded, variables, text)
        return handle

    def function(self, module: int, name: str) -> int:
        """The handle of the kernel `name`; error 500 if the module has none."""
        found = self._find(module)
        if name not in found.functions:
            if name not in found.loaded.kernels:
                have = ", ".join(sorted(found.loaded.kernels)) or "none"
                raise errors.from_status(500, f"The module has no kernel {name!r}; it has {have}.")
            code = found.loaded.kernels[name]
            found.functions[name] = _machine.register_function(found.device, code)
            _owners[found.functions[name]] = (found, name)
        return found.functions[name]

    def parameter_sizes(self, module: int, name: str) -> tuple[int, ...]:
        """The sizes in bytes of a kernel's parameters; error 500 if there is no such kernel."""
        from flambeau.driver.virtual.ptx import _engine

        self.function(module, name)
        code = self._find(module).loaded.kernels[name]
        return tuple(size for _, size in _engine.kernel_info(code).parameters)

    def global_pointer(self, module: int, name: str) -> tuple[int, int]:
        """Address and size in bytes of a device variable; error 500 if there is none."""
        found = self._find(module)
        if name not in found.loaded.globals:
            have = ", ".join(sorted(found.loaded.globals)) or "none"
            raise errors.from_status(500, f"The module has no variable {name!r}; it has {have}.")
        address, size = found.loaded.globals[name]
        return address, size

    def unload(self, module: int) -> None:
        """Wait for the device's work, then drop the code and free its variables."""
        found = self._find(module)
        del self._modules[module]
        functions = list(found.functions.values())
        _machine.unregister(found.device, found.life, functions, found.variables)
        for function in functions:
            _owners.pop(function, None)
        found.loaded.close()
        if found.watched is not None:
            found.watched.close()

    def _find(self, module: int) -> _Module:
        found = self._modules.get(module)
        if found is None:
            raise errors.from_status(400, f"{module!r} is not the handle of a loaded module.")
        return found


def watched_code(function: int) -> int:
    """The address of a function's code that tells a watcher of each access; compiled once."""
    from flambeau.driver.virtual.ptx.loader import load

    module, name = _owners[function]
    with _watching:
        if module.watched is None:
            places = iter([address for address, _ in module.loaded.globals.values()])
            module.watched = load(module.text, lambda *_: next(places), watched=True)
        return module.watched.kernels[name]


def _ptx_text(image: bytes) -> str:
    """The text of a PTX image, without the NUL bytes that compilers put at its end."""
    try:
        text = image.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        text = ""
    if ".version" not in text:
        raise errors.from_status(
            200, f"Virtual GPUs load PTX text; these {len(image)} bytes are something else."
        )
    return text
