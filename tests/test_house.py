# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a program can check."""

from __future__ import annotations

import ast
import importlib
import os
import re
import statistics
import subprocess
import sys
import time
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "flambeau"
SOURCES = sorted(
    path
    for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi", "*.hpp", "*.cuh")
    for path in PACKAGE.rglob(suffix)
)
PYTHON = [path for path in SOURCES if path.suffix == ".py"]
OTHER_PYTHON = sorted(
    path for folder in ("tests", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
READS_IN_ONE_SITTING = 700
HEAVY = ("numpy", "ml_dtypes", "cuda.bindings", "llvmlite", "typer", "rich", "scipy", "ctypes")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def offenders(paths: Iterable[Path], offends: Callable[[Path], object]) -> list[str]:
    """The files that break a rule, each with what in it does."""
    found = {name_of(path): offends(path) for path in paths}
    return [f"{name}: {what}" for name, what in found.items() if what]


def test_files_state_their_licence() -> None:
    def lacks(path: Path) -> bool:
        first = path.read_text().splitlines()[:2]
        return bool(first) and not any("SPDX-License-Identifier: Apache-2.0" in x for x in first)

    assert offenders([*SOURCES, *OTHER_PYTHON], lacks) == []


def test_compiled_modules_have_stubs() -> None:
    compiled = PACKAGE.rglob("*.pyx")
    assert offenders(compiled, lambda path: not path.with_suffix(".pyi").exists()) == []


def test_modules_read_in_one_sitting() -> None:
    """A module is one concept; a table may be longer, and says so in its first lines."""

    def excess(path: Path) -> int:
        lines = path.read_text().splitlines()
        is_table = any("table" in line.lower() for line in lines[:8])
        return len(lines) if len(lines) > READS_IN_ONE_SITTING and not is_table else 0

    assert offenders(SOURCES, excess) == []


# --- nothing above driver/ asks which driver it has --------------------------------------------

NAME = r"""["'](?:virtual|nvidia)["']"""
DRIVER_NAMES = re.compile(rf"(?:==|!=|\bcase|\bin)\s*[\[({{]*{NAME}|{NAME}\s*(?:==|!=|in\b)")
ASKING = (
    DRIVER_NAMES,
    re.compile(r"\b(is_virtual|is_nvidia|driver\.name|current\(\)\.name)\b"),
    re.compile(r"flambeau\.driver\.(virtual|nvidia)"),
    re.compile(r"from flambeau\.driver import .*(virtual|nvidia)"),
)
# The face of virtual GPUs, and what has their checks on in a run of pytest.
KNOWS_DRIVERS = {PACKAGE / "virtual.py", PACKAGE / "testing" / "_checking.py"}
# The command line tells people what they have; it decides nothing by it.
TELLS_PEOPLE = PACKAGE / "cli"


def above_the_drivers() -> list[Path]:
    return [
        path
        for path in SOURCES
        if path.suffix in {".py", ".pyx", ".pxd"}
        and (PACKAGE / "driver") not in path.parents
        and TELLS_PEOPLE not in path.parents
        and path not in KNOWS_DRIVERS
    ]


def code_lines(path: Path) -> list[str]:
    """The lines of a module without comments; docstrings stay out for Python files."""
    text = path.read_text()
    if path.suffix == ".py":
        with tokenize.open(path) as stream:
            tokens = list(tokenize.generate_tokens(stream.readline))
        lines = text.splitlines()
        for token in tokens:
            is_text = token.type == tokenize.STRING and token.string.lstrip("rbRB").startswith(
                '"""'
            )
            if is_text or token.type == tokenize.COMMENT:
                for number in range(token.start[0] - 1, token.end[0]):
                    first = token.start[1] if number == token.start[0] - 1 else 0
                    lines[number] = lines[number][:first]
        return lines
    text = re.sub(r'"""[\s\S]*?"""', "", text)
    return [line.split("#")[0] for line in text.splitlines()]


def test_nothing_above_the_contract_asks_which_driver_it_has() -> None:
    def asks(path: Path) -> list[str]:
        return [line for line in code_lines(path) if any(p.search(line) for p in ASKING)]

    assert offenders(above_the_drivers(), asks) == []


def test_the_check_above_sees_a_branch(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text('"""virtual"""\nif name == "virtual":  # "nvidia"\n    pass\n')
    assert [bool(DRIVER_NAMES.search(line)) for line in code_lines(module)] == [False, True, False]


# --- imports do no work ------------------------------------------------------------------------


def imported_names(path: Path) -> set[str]:
    if path.suffix == ".py":
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
        return names
    return set(re.findall(r"^\s*(?:c?import|from)\s+([\w.]+)", path.read_text(), re.MULTILINE))


def top_levels(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported_names(path)}


def test_runtime_never_touches_numpy() -> None:
    runtime = [p for p in (PACKAGE / "runtime").rglob("*") if p.suffix in {".py", ".pyx"}]
    assert offenders(runtime, lambda path: "numpy" in top_levels(path)) == []


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("module", ["flambeau", "flambeau.cuda"])
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys; import {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"


def test_import_starts_no_driver() -> None:
    code = "import flambeau, flambeau.cuda, flambeau.driver as d; print(d.peek())"
    assert run_python(code).stdout == "None\n"


def test_import_is_quick(tmp_path: Path) -> None:
    """As a ratio to starting Python with one module of the standard library, so load cancels."""
    # Byte code is kept, as it is where a package was installed.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def seconds(code: str) -> float:
        start = time.perf_counter()
        run_python(code, **kept)
        return time.perf_counter() - start

    seconds("import flambeau")  # the first run writes byte code
    ratios = [seconds("import flambeau") / seconds("import json") for _ in range(7)]
    # A bare start takes 15 to 30 ms: six times that is the budget of 120 ms.
    assert statistics.median(ratios) < 6.0


# --- names -------------------------------------------------------------------------------------


def public_lists() -> list[Path]:
    return [path for path in PYTHON if "__all__" in path.read_text() and path.name != "__main__.py"]


# Modules for a library that no extra installs.
NEEDS = {"src/flambeau/interop/triton.py": "triton"}


@pytest.mark.parametrize("path", public_lists(), ids=name_of)
def test_every_name_in_all_exists(path: Path) -> None:
    if name_of(path) in NEEDS:
        pytest.importorskip(NEEDS[name_of(path)])
    module = importlib.import_module(module_name(path))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


# --- the project speaks of itself --------------------------------------------------------------

ELSEWHERE = re.compile(r"/wor[k]/|\.\./share[d]|\bissue [0-9]+\b|\bthe spe[c]\b")
SPOKEN = [
    path
    for path in [
        *SOURCES,
        *OTHER_PYTHON,
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    if path.exists()
]


def test_text_stands_alone() -> None:
    def strays(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if ELSEWHERE.search(line)]

    assert offenders(SPOKEN, strays) == []
