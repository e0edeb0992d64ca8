# SPDX-License-Identifier: Apache-2.0
"""``flambeau run`` starts a program as Python does, with flambeau as torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from flambeau.cli.run import Request, UsageError, parse
from support import search_path

if TYPE_CHECKING:
    from pathlib import Path

DESCRIBE = """
import json, sys
here = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "main": here.__dict__ is globals(),
    "file": globals().get("__file__"), "package": __package__, "doc": __doc__,
    "spec": getattr(__spec__, "name", None),
    "loader": getattr(__loader__, "__name__", type(__loader__).__name__),
    "names": sorted(set(globals()) - {"__annotations__", "__conditional_annotations__"}),
}))
"""


def run(
    *words: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``flambeau run`` with these words."""
    return start("-m", "flambeau", "run", *words, cwd=cwd, **environment)


def start(
    *words: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Programs in each of the forms that Python starts."""
    (tmp_path / "script.py").write_text(DESCRIBE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(DESCRIBE)
    (tmp_path / "package" / "inner.py").write_text(DESCRIBE)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", DESCRIBE)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["script.py", "--virtual", "x", "-m"],
        ["./package/../script.py"],
        ["package", "1"],
        ["archive.zip", "--help"],
        ["-m", "script", "--flag", "1"],
        ["-m", "package", "-c"],
        ["-m", "package.inner"],
        ["-c", DESCRIBE, "-h", "--virtual"],
    ],
    ids=" ".join,
)
def test_program_sees_what_python_would_show_it(folder: Path, words: list[str]) -> None:
    ours, pythons = run(*words, cwd=folder), start(*words, cwd=folder)
    assert pythons.returncode == 0
    assert (ours.returncode, ours.stderr) == (0, "")
    assert json.loads(ours.stdout) == json.loads(pythons.stdout)


ENDINGS = {
    "falls off": "print('done')",
    "exit code": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('no luck')",
    "exit none": "raise SystemExit",
    "error": "def f():\n    return 1 / 0\n\nf()",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e",
    "syntax": "x = 1\nprint(x\n",
    "own hook": "import sys\nsys.excepthook = lambda t, v, tb: print(t, v, tb.tb_lineno)\n1 / 0",
    "at exit": "import atexit; atexit.register(print, 'bye'); 1 / 0",
    "thread": "import threading as t\nt.Timer(0.1, print, ['later']).start()",
}


@pytest.mark.parametrize("source", ENDINGS.values(), ids=ENDINGS)
def test_program_ends_as_under_python(tmp_path: Path, source: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(source + "\n")
    ours, pythons = run(str(script)), start(str(script))
    assert ours.stdout == pythons.stdout
    assert ours.stderr == pythons.stderr
    assert ours.returncode == pythons.returncode


def test_interrupt_ends_the_process_by_its_signal(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs ignore it
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    ours, pythons = run(str(script)), start(str(script))
    assert ours.returncode == pythons.returncode != 0
    assert ours.stderr == pythons.stderr


# --- torch is flambeau -------------------------------------------------------------------------

MODULES = """
import sys
import torch, torch.cuda, torch.cuda.random
import flambeau, flambeau.cuda
from torch import Tensor, cuda
from torch.cuda import Stream
assert torch.cuda is flambeau.cuda is cuda
for name, module in list(sys.modules.items()):
    if name.startswith("torch."):
        assert module is sys.modules["flambeau" + name[5:]], name
        assert module.__spec__.name == module.__name__ == "flambeau" + name[5:]
assert Tensor is flambeau.Tensor and Stream is flambeau.cuda.Stream
assert torch.__name__ == "torch" and torch.__version__.startswith("2.15.0+flambeau.")
assert torch.__version__ >= "2.4" and torch.__version__ < (3,)
torch.mine = 1
assert flambeau.mine == 1 and "mine" in dir(torch)
del torch.mine
assert not hasattr(flambeau, "mine") and not hasattr(torch, "mine")
print("ok")
"""


def test_torch_modules_are_flambeaus(tmp_path: Path) -> None:
    done = run("-c", MODULES)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_what_flambeau_lacks_is_named(tmp_path: Path) -> None:
    done = run(
        "-c",
        """
import importlib.util
import torch
assert importlib.util.find_spec("torch.cuda") is not None
assert importlib.util.find_spec("torch.no_such") is None
for statement in ("torch.no_such", "import torch.no_such", "import torch.cuda.no_such.deeper"):
    try:
        exec(statement)
    except (AttributeError, ModuleNotFoundError) as error:
        print(type(error).__name__, "flambeau" in str(error), getattr(error, "name", None))
""",
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "AttributeError True no_such",
        "ModuleNotFoundError True torch.no_such",
        "ModuleNotFoundError True torch.cuda.no_such",
    ]


CHILDREN = """
import multiprocessing, os, subprocess, sys

def child(queue):
    import torch
    queue.put((torch.__version__, torch.cuda.device_count()))

if __name__ == "__main__":
    import torch
    expected = (torch.__version__, torch.cuda.device_count())
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert queue.get(timeout=20) == expected, method
        process.join()
    code = "import torch, torch.cuda as c; print(torch.__version__, c is torch.cuda, c.__name__)"
    print(subprocess.check_output([sys.executable, "-c", code], text=True), end="")
"""


def test_child_processes_see_it_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN)
    done = run("--virtual", ":3", str(script))
    assert done.stderr == ""
    assert done.stdout.split()[1:] == ["True", "flambeau.cuda"]


def test_children_keep_the_users_path_and_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customised = 1\n")
    (tmp_path / "helper.py").write_text("")
    code = (
        "import subprocess, sys\n"
        "child = 'import helper, torch.cuda; print(customised)'\n"
        "subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    done = run("-c", code, PYTHONPATH=search_path(tmp_path))
    assert (done.stdout, done.stderr) == ("1\n", "")


# --- which GPUs --------------------------------------------------------------------------------

COUNT = "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_name())"


def test_virtual_gpus_are_chosen() -> None:
    done = run("--virtual", "a100:3", "-c", COUNT)
    assert done.stderr == ""
    assert done.stdout.startswith("3 ")
    assert "A100" in done.stdout
    assert "Virtual" in done.stdout


def test_virtual_needs_no_value(tmp_path: Path) -> None:
    script = tmp_path / "h200"  # a file counts as the script, whatever its name
    script.write_text(COUNT)
    done = run("--virtual", "h200", cwd=tmp_path, FLAMBEAU_VIRTUAL="")
    assert done.stderr == ""
    assert done.stdout.startswith("1 ")


def test_without_a_gpu_one_line_says_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.cli import run as command

    if command.has_gpu():
        pytest.skip("this machine has a GPU")
    done = run("-c", COUNT, FLAMBEAU_VIRTUAL="")
    assert done.stdout.startswith("1 ")
    (line,) = done.stderr.splitlines()
    assert "no NVIDIA GPU" in line
    assert "--virtual" in line


def test_schedule_is_chosen() -> None:
    code = "from flambeau.driver.virtual import config; print(config.environment_schedule())"
    done = run("--virtual", "--schedule", "random:7", "-c", code)
    assert (done.stdout, done.stderr) == ("random:7\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such.py"], "no_such.py"),
        (["--virtual", "no_such.py"], "no_such.py"),
        (["--virtual", "k9000", "-c", "1"], "k9000"),
        (["--virtual=h200:0", "-c", "1"], "1 to 64 devices, not 0"),
        (["--schedule", "sideways", "-c", "1"], "sideways"),
        (["--nonsense", "x.py"], "--nonsense"),
        (["--virtual"], "nothing to run"),
        (["-c"], "-c needs a value"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("flambeau run: ")
    assert said in line


def test_a_module_that_does_not_exist_is_reported_as_python_does() -> None:
    ours, pythons = run("-m", "no_such_module"), start("-m", "no_such_module")
    assert (ours.returncode, ours.stderr) == (pythons.returncode, pythons.stderr)


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (["a.py", "--virtual"], Request("script", "a.py", ["--virtual"])),
        (["--virtual", "a.py"], Request("script", "a.py", [], "")),
        (["--virtual", "l4:2", "a.py"], Request("script", "a.py", [], "l4:2")),
        (["--virtual", ":2", "a.py"], Request("script", "a.py", [], ":2")),
        (["--virtual=l4", "a.py"], Request("script", "a.py", [], "l4")),
        (["--virtual", "-m", "a", "-v"], Request("module", "a", ["-v"], "")),
        (["--schedule=fifo", "-c", "1"], Request("code", "1", [], None, "fifo")),
        (["--", "-x.py", "1"], Request("script", "-x.py", ["1"])),
    ],
)
def test_parse(words: list[str], request_: Request) -> None:
    assert parse(words) == request_


def test_parse_refuses_an_empty_line() -> None:
    with pytest.raises(UsageError, match="SCRIPT"):
        parse([])
