# SPDX-License-Identifier: Apache-2.0
"""Answering ``import torch`` with flambeau, for programs that are not to be changed.

`install` puts a finder in front of Python's own. From then on every ``torch.X.Y`` is the very
module object ``flambeau.X.Y``; the top-level ``torch`` is a thin module of its own, whose
attributes are flambeau's and whose ``__version__`` is that of the interface it offers. Child
processes get the same through an entry of ``PYTHONPATH`` (`install_in_children`): a folder with
a package ``torch`` whose import calls `install`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from flambeau._torch_face.version import TorchVersion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader

__all__ = ["INTERFACE", "TorchFinder", "install", "install_in_children"]

INTERFACE = "2.15.0"
"""The release of torch whose ``torch.cuda`` flambeau offers."""

PATH_ENTRY = str(Path(__file__).parent / "path")
"""The folder that makes ``import torch`` reach flambeau in a child process."""


class TorchFinder:
    """A finder and loader for ``torch`` and all below it.

    Not a subclass of the abstract classes: importing those takes longer than all that this does.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find ``torch`` or one of its modules, and nothing else.

        Raises
        ------
        ModuleNotFoundError
            An import statement asks for what flambeau lacks. A question such as
            `importlib.util.find_spec` gets None, as it would from a real package.
        """
        if name == "torch":
            import flambeau

            spec = ModuleSpec(name, cast("Loader", self), origin=flambeau.__file__, is_package=True)
            spec.submodule_search_locations = list(flambeau.__path__)
            return spec
        if not name.startswith("torch."):
            return None
        if _exists(_own_name(name)):
            return ModuleSpec(name, cast("Loader", self))
        if _asked_by_import():
            raise ModuleNotFoundError(
                f"No module named {name!r}: torch is flambeau here, which has no {_own_name(name)}",
                name=name,
            )
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Give flambeau's module, or the face for ``torch`` itself."""
        if spec.name == "torch":
            return _Face()
        module = importlib.import_module(_own_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module has been run under its own name, which it keeps."""
        spec = module.__spec__
        if spec is not None and spec.name.startswith("torch."):
            module.__spec__ = spec.loader_state


class _Face(ModuleType):
    """The module ``torch``: its own identity in dunder names, everything else flambeau's."""

    def __init__(self) -> None:
        import flambeau

        super().__init__("torch", flambeau.__doc__)
        own = self.__dict__
        own["__version__"] = TorchVersion(f"{INTERFACE}+flambeau.{flambeau.__version__}")
        own["__file__"] = flambeau.__file__
        # In the module's own dictionary the hook costs a C call and no Python frame.
        own["__getattr__"] = partial(getattr, flambeau)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(sys.modules["flambeau"], name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(sys.modules["flambeau"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(sys.modules["flambeau"])} - {"__getattr__"})


def install() -> ModuleType:
    """Answer ``import torch`` with flambeau in this process, from now on.

    Returns
    -------
    module
        What ``import torch`` gives.

    Raises
    ------
    RuntimeError
        Another ``torch`` has been imported already.

    Examples
    --------
    >>> from flambeau import _torch_face
    >>> torch = _torch_face.install()
    >>> import torch.cuda, flambeau.cuda
    >>> torch.cuda is flambeau.cuda
    True
    """
    loaded = sys.modules.get("torch")
    if loaded is not None and not isinstance(loaded, _Face) and not _is_path_entry(loaded):
        raise RuntimeError(
            f"another torch has been imported from {loaded.__file__}; "
            "flambeau must be put in its place before the first `import torch`"
        )
    if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())
    if not isinstance(loaded, _Face):
        sys.modules.pop("torch", None)
    return importlib.import_module("torch")


def install_in_children() -> None:
    """Make Python processes that this one starts see flambeau as ``torch``.

    Those that inherit the environment find the path entry in ``PYTHONPATH``; those of
    `multiprocessing` get this process's ``sys.path`` in place of their own.
    """
    entries = [e for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e]
    if PATH_ENTRY not in entries:
        os.environ["PYTHONPATH"] = os.pathsep.join([PATH_ENTRY, *entries])
    if PATH_ENTRY not in sys.path:
        sys.path.insert(1, PATH_ENTRY)  # after the program's folder, where PYTHONPATH's entries go


def _own_name(name: str) -> str:
    return "flambeau" + name.removeprefix("torch")


def _exists(name: str) -> bool:
    """Whether flambeau has a module of this name; imports only the packages that it is in."""
    if name in sys.modules:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name + "."):
            return False
        raise
    return spec is not None and spec.origin is not None  # a bare folder is no module


def _asked_by_import() -> bool:
    """Whether the finder was called for an import, and not by a question like ``find_spec``."""
    frame = sys._getframe(2).f_back  # past the import system's loop over the finders
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


def _is_path_entry(module: ModuleType) -> bool:
    return str(getattr(module, "__file__", "")).startswith(PATH_ENTRY)
