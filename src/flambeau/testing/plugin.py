# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: fixtures and options for test suites that use GPUs, real or virtual.

pytest finds it by itself where flambeau is installed. It does nothing to a run that neither gives
one of its options nor uses CUDA through flambeau.

================ =================================================================================
``--gpus``       ``virtual[:MODEL][:N]`` or ``real``: what the run's GPUs are. In the
                 configuration file: ``flambeau_gpus``.
``--check``      ``memory,init,race`` or ``all``: a test fails if these checks find something.
                 In the configuration file: ``flambeau_check``. ``@pytest.mark.finds("race")``
                 is for a test that wants it found, ``@pytest.mark.unchecked(reason)`` for one
                 that checks shall not watch.
``--schedules``  The policies that `schedule` goes through, separated by commas.
``--torch-face`` ``import torch`` gives flambeau. In the configuration file:
                 ``flambeau_torch_face``.
`gpu`            A device.
`gpus`           ``gpus(n)``: the first n devices.
`schedule`       Runs the test once for each schedule policy; ``@pytest.mark.schedule(...)`` names
                 others.
`fault`          ``fault("cuMemAlloc", status=2)``: makes driver calls fail.
================ =================================================================================
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from flambeau.testing import _checking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flambeau import device

__all__ = ["fault", "gpu", "gpus", "schedule"]

POLICIES = ("fifo", "random:1", "random:2", "adversarial")
REAL_SCHEDULE = "hardware"
_FALLBACK = "virtual:h200:2"
_VIRTUAL = re.compile(r"virtual(?::(?P<model>[A-Za-z]\w*))?(?::(?P<count>\d+))?")
_CHOSEN = pytest.StashKey[str]()
_CHECKED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flambeau", "GPUs, real and virtual")
    group.addoption(
        "--gpus",
        metavar="virtual[:MODEL][:N]|real",
        help="what the GPUs of this run are, such as virtual:h200:2",
    )
    group.addoption(
        "--check",
        metavar="CHECK,...|all",
        help="have memory, init or race checks on, and fail each test in which they find something",
    )
    group.addoption(
        "--schedules",
        metavar="POLICY,...",
        help=f"what the fixture schedule goes through (default: {','.join(POLICIES)})",
    )
    group.addoption(
        "--torch-face",
        action="store_true",
        default=None,
        help="answer 'import torch' with flambeau, in this process and its children",
    )
    parser.addini("flambeau_gpus", "as --gpus, which overrides it", default="")
    parser.addini("flambeau_check", "as --check, which overrides it", default="")
    parser.addini("flambeau_torch_face", "as --torch-face", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Settle the GPUs and the name torch before the first conftest imports anything."""
    settle(early_config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "schedule(policy, ..., progress=False): the policies that the fixture schedule goes "
        "through in this test, and whether work that nobody waits for starts by itself",
    )
    for marker in _checking.MARKERS:
        config.addinivalue_line("markers", marker)
    settle(config)  # for a run in which a conftest has brought this plug-in


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run for what checks found outside of tests."""
    text = _checking.leftovers()
    if text:
        sys.stderr.write(f"\nflambeau: outside of tests, {text}\n")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    pytest_unconfigure(session.config)  # which xdist's workers do not come to


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_CHECKED, False):
        _checking.end()


def settle(config: pytest.Config) -> None:
    """Do what ``--gpus``, ``--check`` and ``--torch-face`` ask for, once.

    Raises
    ------
    pytest.UsageError
        They ask for what there is not.
    """
    if _CHOSEN in config.stash:
        return
    options = config.known_args_namespace
    wanted = getattr(options, "gpus", None) or config.getini("flambeau_gpus")
    config.stash[_CHOSEN] = wanted
    if wanted:
        _choose(wanted)
    checks = getattr(options, "check", None) or config.getini("flambeau_check")
    if checks:
        _check(checks, wanted)
        config.stash[_CHECKED] = True
    if getattr(options, "torch_face", None) or config.getini("flambeau_torch_face"):
        from flambeau import _torch_face

        try:
            _torch_face.install()
        except RuntimeError as error:
            raise pytest.UsageError(f"--torch-face comes too late: {error}") from error
        _torch_face.install_in_children()


def _choose(wanted: str) -> None:
    """Use these GPUs in this process and in its children."""
    if wanted == "real":
        os.environ.pop("FLAMBEAU_VIRTUAL", None)
        return
    match = _VIRTUAL.fullmatch(wanted)
    if match is None:
        raise pytest.UsageError(f"--gpus={wanted}: it is virtual[:MODEL][:N] or real")
    from flambeau import virtual

    model, count = match["model"] or "h200", match["count"] or "1"
    try:
        virtual.enable(model, int(count))
    except (ValueError, RuntimeError) as error:
        raise pytest.UsageError(f"--gpus={wanted}: {error}") from error
    os.environ["FLAMBEAU_VIRTUAL"] = f"{model}:{count}"


def _check(checks: str, gpus: str) -> None:
    """Have these checks on in this process and in its children."""
    if gpus == "real":
        raise pytest.UsageError("--check watches virtual GPUs, and --gpus=real uses others")
    try:
        _checking.start(checks)
    except ValueError as error:
        raise pytest.UsageError(f"--check={checks}: {error}") from error


def pytest_report_header(config: pytest.Config) -> str | None:
    wanted = config.stash.get(_CHOSEN, "")
    return f"flambeau: GPUs are {wanted}" if wanted else None


def have_virtual_gpus(config: pytest.Config) -> bool:
    """Whether this run's GPUs are virtual; where nothing was chosen and there are none, they are.

    A machine without an NVIDIA GPU gets two virtual H200s at the first test that asks for a GPU.
    """
    from flambeau import cuda, virtual

    if virtual.is_enabled():
        return True
    if cuda.is_available() or config.stash.get(_CHOSEN, ""):
        return False
    _choose(_FALLBACK)
    return True


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture
def gpu(gpus: Callable[[int], list[device]]) -> device:
    """The CUDA device of a test that needs one: ``cuda:0``."""
    return gpus(1)[0]


@pytest.fixture
def gpus(pytestconfig: pytest.Config) -> Callable[[int], list[device]]:
    """``gpus(n)``: the first n devices.

    Where real hardware has fewer the test is skipped; where a virtual machine has fewer it fails,
    because that is a matter of ``--gpus``.
    """
    import flambeau
    from flambeau import cuda

    def choose(count: int) -> list[device]:
        are_virtual = have_virtual_gpus(pytestconfig)
        have = cuda.device_count()
        if have < count and are_virtual:
            pytest.fail(
                f"the test needs {count} GPUs and the run has {have} virtual ones: "
                f"--gpus=virtual:{count} gives it more",
                pytrace=False,
            )
        if have < count:
            pytest.skip(f"needs {count} GPUs, this machine has {have}")
        return [flambeau.device("cuda", index) for index in range(count)]

    return choose


@pytest.fixture
def schedule(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once for each order in which virtual GPUs may do their work.

    The value is the policy, such as ``"adversarial"``; on real GPUs it is ``"hardware"`` and the
    test runs once. Work that nobody waits for is not done, so that a missing wait shows each time;
    ``@pytest.mark.schedule(progress=True)`` is for tests whose host watches memory without a call.
    """
    policy: str = request.param
    if policy == REAL_SCHEDULE:
        yield policy
        return
    from flambeau import virtual

    mark = request.node.get_closest_marker("schedule")
    virtual.set_progress(bool(mark and mark.kwargs.get("progress")))
    try:
        with virtual.schedule(policy):
            yield policy
    finally:
        virtual.set_progress(True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "schedule" not in metafunc.fixturenames or not _is_own(metafunc, "schedule"):
        return
    mark = metafunc.definition.get_closest_marker("schedule")
    option = metafunc.config.getoption("schedules")
    policies = mark.args if mark and mark.args else option.split(",") if option else POLICIES
    if not have_virtual_gpus(metafunc.config):
        policies = (REAL_SCHEDULE,)
    metafunc.parametrize("schedule", policies, indirect=True)


def _is_own(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a fixture of a test is this module's, and not the project's under the same name."""
    found = metafunc._arg2fixturedefs.get(name) or ()
    return any(one.func.__module__ == __name__ for one in found[-1:])


@pytest.fixture
def fault(gpu: device) -> Iterator[Callable[..., None]]:
    """``fault(entry, status, nth=1, times=1)``: makes calls of a driver entry fail in this test.

    Calls number `nth` to ``nth + times - 1`` from then on answer `status`; 2 is out of memory.
    """
    from flambeau import virtual

    yield virtual.inject
    virtual.clear_faults()


# --- between tests -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _flambeau_leaves_no_trace(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: its work is done, device 0 is current, and so are the default streams.

    Work that failed unnoticed fails the test that started it, and so does what checks found.
    Virtual GPUs that are lost by that are replaced, so that later tests have some.
    """
    unchecked = request.node.get_closest_marker("unchecked")
    with _checking.paused() if unchecked else contextlib.nullcontext():
        yield
        try:
            _finish_work()
        finally:
            _checking.judge(request.node)


def _finish_work() -> None:
    cuda = sys.modules.get("flambeau.cuda")
    if cuda is None or not cuda.is_initialized():
        return
    used = cuda._primary_context_devices()  # others have no work, and must not get a context
    try:
        for index in used:
            cuda.set_stream(cuda.default_stream(index))
        cuda._maybe_exchange_device(0)
        for index in used:
            cuda.synchronize(index)
    except RuntimeError:
        _replace_virtual_gpus()
        raise


def _replace_virtual_gpus() -> None:
    from flambeau import virtual

    if virtual.is_enabled():
        virtual.reset()
