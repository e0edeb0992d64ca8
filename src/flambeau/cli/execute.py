# SPDX-License-Identifier: Apache-2.0
"""Running a program in this process the way ``python SCRIPT``, ``-m`` and ``-c`` do.

The program is the module ``__main__``, its arguments are ``sys.argv``, its folder is
``sys.path[0]``. What it raises ends the process as it would end Python's own: the traceback begins
with the program's first frame, and the exit status is the same.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pkgutil
import sys
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, TracebackType

__all__ = ["run"]

Kind = Literal["script", "module", "code"]


def run(kind: Kind, target: str, arguments: Sequence[str]) -> None:
    """Run a program as ``__main__`` until it ends; what it raises is passed on.

    Parameters
    ----------
    kind
        Whether `target` is a path, the name of a module, or code.
    target
        What to run. A path may be a folder or a zip file with a ``__main__.py``.
    arguments
        What the program finds in ``sys.argv[1:]``.
    """
    sys.argv[:] = [target if kind == "script" else f"-{kind[0]}", *arguments]
    main = ModuleType("__main__")
    try:
        code = _PREPARE[kind](target, main)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except BaseException:
        _show_only_the_program()
        raise


def _prepare_script(path: str, main: ModuleType) -> CodeType:
    absolute = os.path.join(os.getcwd(), path)  # as Python does, without tidying the path
    importer: Any = pkgutil.get_importer(absolute)
    if importer is not None:  # a folder or an archive
        _set_first_path(absolute)
        spec = importer.find_spec("__main__")
        if spec is None:
            sys.exit(f"{sys.executable}: can't find '__main__' module in {absolute!r}")
        return _prepare_spec(spec, main)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main.__dict__.update(
        __file__=absolute, __cached__=None, __loader__=SourceFileLoader("__main__", absolute)
    )
    with io.open_code(absolute) as stream:
        return compile(stream.read(), absolute, "exec", dont_inherit=True)


def _prepare_module(name: str, main: ModuleType) -> CodeType:
    _set_first_path(os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name + "."):
            raise
        spec = None
    if spec is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.argv[0] = spec.origin or sys.argv[0]
    return _prepare_spec(spec, main)


def _prepare_code(code: str, main: ModuleType) -> CodeType:
    _set_first_path("")
    main.__dict__.update(__loader__=BuiltinImporter)
    return compile(code, "<string>", "exec", dont_inherit=True)


_PREPARE = {"script": _prepare_script, "module": _prepare_module, "code": _prepare_code}


def _prepare_spec(spec: ModuleSpec, main: ModuleType) -> CodeType:
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name)
    if code is None:
        sys.exit(f"{sys.executable}: No code object available for {spec.name}")
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def _set_first_path(entry: str) -> None:
    """Put the program's folder where this command's own was; safe-path mode has neither."""
    if not sys.flags.safe_path:
        sys.path[0] = entry


def _show_only_the_program() -> None:
    """Let the traceback, if one gets printed, begin with the program's own first frame."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trace = _after_this_module(trace)
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = show


def _after_this_module(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code is not run.__code__:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == run.__code__.co_filename:
        trace = trace.tb_next
    return trace
