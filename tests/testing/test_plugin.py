# SPDX-License-Identifier: Apache-2.0
"""The plug-in, in test suites of other projects: each runs in its own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support import needs_no_driver, search_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Run(NamedTuple):
    """A run of pytest: its status, the counts of its last line and what it printed."""

    status: int
    counts: dict[str, int]
    text: str


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Run]:
    """``project(tests, *options)``: run pytest on a project of one module."""

    def run(tests: str, *options: str, plugin: bool = True, ini: str = "", **env: str) -> Run:
        (tmp_path / "test_project.py").write_text(textwrap.dedent(tests))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{textwrap.dedent(ini)}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_VIR")}
        # Other plug-ins of the machine may warn, import NumPy or count on options of their own.
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider"]
        command += ["-p", "flambeau.testing.plugin"] if plugin else []
        done = subprocess.run(
            [*command, *options],
            cwd=tmp_path,
            env={**environment, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        text = done.stdout + done.stderr
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
        counts = {what.rstrip("s"): int(n) for n, what in re.findall(r"(\d+) ([a-z]+)", last)}
        return Run(done.returncode, counts, text)

    return run


GPUS = """
import flambeau as torch

def test_one(gpu):
    assert gpu == torch.device("cuda:0")
    assert torch.cuda.get_device_name(gpu).startswith("Virtual NVIDIA H100")
    torch.testing.assert_close(torch.ones(2, device=gpu) + 1, torch.full((2,), 2.0, device=gpu))

def test_many(gpus):
    assert [d.index for d in gpus(3)] == [0, 1, 2]
"""


def test_gpus_are_chosen_by_option(project: Callable[..., Run]) -> None:
    run = project(GPUS, "--gpus=virtual:h100:3")
    assert run.counts["passed"] == 2, run.text
    assert "flambeau: GPUs are virtual:h100:3" in run.text


def test_gpus_are_chosen_in_the_configuration_file(project: Callable[..., Run]) -> None:
    run = project(GPUS, ini="flambeau_gpus = virtual:h100:3")
    assert run.counts["passed"] == 2, run.text


def test_gpus_are_chosen_by_the_environment(project: Callable[..., Run]) -> None:
    run = project(GPUS, FLAMBEAU_VIRTUAL="h100:3")
    assert run.counts["passed"] == 2, run.text


def test_a_virtual_machine_that_is_too_small_fails_the_test(project: Callable[..., Run]) -> None:
    run = project(GPUS, "--gpus=virtual:h100:2")
    assert (run.counts["passed"], run.counts["failed"]) == (1, 1)
    assert "--gpus=virtual:3 gives it more" in run.text


@needs_no_driver
def test_without_a_choice_and_without_hardware_there_are_two(project: Callable[..., Run]) -> None:
    run = project(
        """
        import flambeau as torch

        def test_before():
            assert not torch.cuda.is_available()

        def test_it(gpus):
            assert len(gpus(2)) == torch.cuda.device_count() == 2
            assert torch.cuda.get_device_name() == "Virtual NVIDIA H200"
        """
    )
    assert run.counts == {"passed": 2}, run.text


@needs_no_driver
def test_real_gpus_are_not_replaced(project: Callable[..., Run]) -> None:
    run = project(GPUS, "--gpus=real", FLAMBEAU_VIRTUAL="h100:3")
    assert run.counts["skipped"] == 2, run.text
    run = project("def test_it(schedule): assert schedule == 'hardware'", "--gpus=real")
    assert run.counts["passed"] == 1, run.text


@pytest.mark.parametrize(
    "wanted", ["virtual:none", "virtual:h200:0", "h200", "virtual:h200:x", "2"]
)
def test_a_wrong_choice_ends_the_run(project: Callable[..., Run], wanted: str) -> None:
    run = project(GPUS, f"--gpus={wanted}")
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --gpus={wanted}: " in run.text


def test_import_torch_gives_flambeau_when_asked(project: Callable[..., Run]) -> None:
    tests = """
        import subprocess
        import sys

        import torch
        import torch.testing

        def test_it(gpu):
            torch.testing.assert_close(torch.ones(2, device=gpu).sum().item(), 2.0)
            code = "import torch; print(torch.__version__, torch.cuda.device_count())"
            said = subprocess.check_output([sys.executable, "-c", code], text=True)
            assert "+flambeau" in said and said.endswith(" 2\\n")
        """
    for options, ini in ((["--torch-face"], ""), ([], "flambeau_torch_face = true")):
        run = project(tests, *options, "--gpus=virtual:2", ini=ini)
        assert run.counts["passed"] == 1, run.text


def test_a_torch_that_is_there_already_is_not_replaced(
    project: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "early.py").write_text("import torch")
    run = project("", "-p", "early", "--torch-face", PYTHONPATH=search_path(tmp_path))
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert "--torch-face comes too late" in run.text


SCHEDULES = """
import flambeau as torch
import pytest

def test_default(gpu, schedule):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(1000, device=gpu) * 2
    torch.cuda.current_stream().wait_stream(stream)
    assert x.sum().item() == 2000

@pytest.mark.schedule("random:7", "adversarial")
def test_marked(schedule):
    pass
"""


def test_schedules(project: Callable[..., Run]) -> None:
    run = project(SCHEDULES, "-v", "--gpus=virtual", "--strict-markers")
    names = re.findall(r"::(test_\w+\[\S+\])", run.text)
    assert names == [
        "test_default[fifo]",
        "test_default[random:1]",
        "test_default[random:2]",
        "test_default[adversarial]",
        "test_marked[random:7]",
        "test_marked[adversarial]",
    ]
    assert run.counts["passed"] == 6, run.text
    run = project(SCHEDULES, "-v", "--gpus=virtual", "--schedules=adversarial,fifo")
    assert "test_default[adversarial]" in run.text
    assert run.counts["passed"] == 4, run.text


@pytest.mark.unchecked("checks find the missing wait under each order")
def test_a_missing_wait_shows(project: Callable[..., Run]) -> None:
    run = project(
        """
        import flambeau as torch

        def test_it(gpu, schedule):
            stream = torch.cuda.Stream()
            x = torch.zeros(1000, device=gpu)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                x.add_(1)
            assert x.sum().item() == 1000  # nothing made this wait for the other stream
        """,
        "--gpus=virtual",
        "--schedules=fifo,adversarial",
    )
    assert run.counts == {"passed": 1, "failed": 1}, run.text
    assert "test_it[adversarial]" in run.text


def test_work_that_nobody_waits_for_starts_if_the_mark_says_so(
    project: Callable[..., Run],
) -> None:
    run = project(
        """
        import time

        import flambeau as torch
        import pytest

        def add_to_pinned(gpu):
            x = torch.ones(1, device=gpu)
            pinned = torch.zeros(1).pin_memory()
            torch.cuda.synchronize()
            pinned.copy_(x, non_blocking=True)
            return pinned

        def test_off(gpu, schedule):
            pinned = add_to_pinned(gpu)
            time.sleep(0.2)
            assert pinned.tolist() == [0]

        @pytest.mark.schedule("fifo", progress=True)
        def test_on(gpu, schedule):
            pinned = add_to_pinned(gpu)
            end = time.monotonic() + 20
            while pinned.tolist() == [0] and time.monotonic() < end:
                time.sleep(0.01)
            assert pinned.tolist() == [1]

        def test_after(gpu):
            pinned = add_to_pinned(gpu)
            end = time.monotonic() + 20
            while pinned.tolist() == [0] and time.monotonic() < end:
                time.sleep(0.01)
            assert pinned.tolist() == [1]
        """,
        "--gpus=virtual",
        "--schedules=fifo",
    )
    assert run.counts == {"passed": 3}, run.text


def test_a_project_s_own_fixtures_come_first(project: Callable[..., Run]) -> None:
    run = project(
        """
        import pytest

        @pytest.fixture
        def schedule():
            return "Monday"

        @pytest.fixture
        def gpu():
            return "mine"

        def test_it(schedule, gpu):
            assert (schedule, gpu) == ("Monday", "mine")
        """
    )
    assert run.counts["passed"] == 1, run.text


def test_faults_last_for_a_test(project: Callable[..., Run]) -> None:
    run = project(
        """
        import flambeau as torch
        import pytest

        def test_out_of_memory(gpu, fault):
            fault("cuMemAlloc", status=2, times=100)
            with pytest.raises(torch.cuda.OutOfMemoryError):
                torch.empty(1 << 28, device=gpu)

        def test_after(gpu):
            torch.empty(1 << 28, device=gpu)
        """,
        "--gpus=virtual",
    )
    assert run.counts["passed"] == 2, run.text


def test_a_test_begins_on_device_0_and_the_default_streams(project: Callable[..., Run]) -> None:
    run = project(
        """
        import flambeau as torch

        def test_first(gpus):
            gpus(2)
            torch.cuda.set_device(1)
            torch.cuda.set_stream(torch.cuda.Stream(1))
            torch.cuda.set_stream(torch.cuda.Stream(0))
            torch.cuda.set_device(1)
            torch.ones(3, device="cuda:1").mul_(2)

        def test_second(gpus):
            assert torch.cuda.current_device() == 0
            for index in range(2):
                assert torch.cuda.current_stream(index) == torch.cuda.default_stream(index)
                assert torch.cuda.default_stream(index).query()
        """,
        "--gpus=virtual:2",
    )
    assert run.counts["passed"] == 2, run.text


def test_work_that_fails_unnoticed_fails_its_test_only(project: Callable[..., Run]) -> None:
    run = project(
        """
        import flambeau as torch

        def test_overrun(gpu):
            code = "__global__ void k(int* x) { x[1 << 24] = 1; }"
            kernel = torch.cuda._compile_kernel(code, "k")
            kernel(1, 1, [torch.zeros(1, dtype=torch.int32, device=gpu)])

        def test_after(gpu):
            assert torch.ones(3, device=gpu).sum().item() == 3
        """,
        "--gpus=virtual",
    )
    assert run.counts == {"passed": 2, "error": 1}, run.text
    assert "ERROR at teardown of test_overrun" in run.text
    assert "an illegal memory access was encountered" in run.text
    assert "kernel.cu:1" in run.text


def test_a_run_without_gpus_is_left_alone(project: Callable[..., Run]) -> None:
    run = project(
        """
        import os
        import sys

        def test_it():
            assert "flambeau.cuda" not in sys.modules or not flambeau.cuda.is_initialized()
            assert "FLAMBEAU_VIRTUAL" not in os.environ
            assert not {"numpy", "torch", "llvmlite"} & set(sys.modules)
        """
    )
    assert run.counts["passed"] == 1, run.text
    assert "flambeau:" not in run.text


def test_pytest_finds_the_plug_in_by_itself(project: Callable[..., Run], tmp_path: Path) -> None:
    installed = tmp_path / "site" / "flambeau-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "[pytest11]\nflambeau.testing.plugin = flambeau.testing.plugin\n"
    )
    others = {e.name for e in entry_points(group="pytest11")} - {"flambeau.testing.plugin"}
    for plugin in (False, True):  # also when it is named on top of that
        run = project(
            GPUS,
            *(f"-pno:{name}" for name in sorted(others)),
            "--gpus=virtual:h100:3",
            plugin=plugin,
            PYTHONPATH=search_path(installed.parent),
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="",
        )
        assert run.counts["passed"] == 2, run.text


def test_with_several_workers(project: Callable[..., Run]) -> None:
    run = project(SCHEDULES, "--gpus=virtual:2", "-p", "xdist", "-n2")
    assert run.counts["passed"] == 6, run.text


CHECKED = """
import subprocess
import sys

import flambeau as torch
import pytest

def add_to_unwritten(*_):
    return torch.empty(4, device="cuda") + 1

def test_bad(gpu):
    add_to_unwritten()

def test_good(gpu):
    torch.zeros(4, device="cuda") + 1

@pytest.mark.finds("init")
def test_wanted(gpu):
    add_to_unwritten()

@pytest.mark.finds("race")
def test_another_one_is_wanted(gpu):
    add_to_unwritten()

@pytest.mark.finds("init")
def test_missed(gpu):
    pass

@pytest.mark.unchecked("it is about something else")
def test_unchecked(gpu):
    add_to_unwritten()
    test_child(gpu)

def test_child(gpu):
    code = "import flambeau as torch; torch.empty(4, device='cuda') + 1"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.mark.unchecked("runs suites with checks of their own")
def test_checks_fail_the_test_that_they_find_something_in(project: Callable[..., Run]) -> None:
    run = project(CHECKED, "--gpus=virtual:1", "--check=all")
    assert run.counts == {"passed": 7, "error": 4}, run.text
    for name in ("bad", "another_one_is_wanted", "missed", "child"):
        assert f"ERROR test_project.py::test_{name} - " in run.text
    assert "init: kernel kernel read 16 bytes" in run.text
    assert "in a child process, checks found 1 problem: 1 of init" in run.text
    assert "the test is marked to make mistakes that init finds" in run.text
    run = project(CHECKED, "--gpus=virtual:1", ini="flambeau_check = race")
    assert run.counts == {"passed": 7, "error": 1}, run.text
    assert "the test is marked to make mistakes that race finds" in run.text
    assert project(CHECKED, "--gpus=virtual:1").counts == {"passed": 7}


@pytest.mark.unchecked("runs suites with checks of their own")
def test_checks_outside_of_tests_fail_the_run(project: Callable[..., Run]) -> None:
    tests = """
        import flambeau as torch
        import pytest

        @pytest.fixture(scope="session")
        def last():
            yield
            torch.empty(4, device="cuda") + 1

        def test_it(last):
            assert torch.zeros(4, device="cuda").sum() == 0
        """
    run = project(tests, "--gpus=virtual:1", "--check=init")
    assert (run.status, run.counts) == (1, {"passed": 1}), run.text
    assert "flambeau: outside of tests, checks found 1 problem: 1 of init" in run.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpus=virtual:1", "--check=luck"), "--check=luck: there is no check 'luck'"),
        (("--gpus=real", "--check=all"), "--check watches virtual GPUs"),
    ],
)
def test_checks_that_cannot_be_had(
    project: Callable[..., Run], options: tuple[str, ...], message: str
) -> None:
    run = project(GPUS, *options)
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert message in run.text
