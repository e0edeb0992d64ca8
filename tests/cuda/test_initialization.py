# SPDX-License-Identifier: Apache-2.0
"""Initialisation, the calls that wait for it, forks, and counting devices before it."""

from __future__ import annotations

import pytest

from support import TWO_VIRTUAL, needs_no_driver, run_script

FORK = """
import os
def in_child(check):
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException as error:
            os.write(1, f"{type(error).__name__}: {error}".encode())
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_import_and_questions_do_not_initialise() -> None:
    run_script(
        """
        assert torch.cuda.is_initialized() is False
        assert torch.cuda.is_current_stream_capturing() is False
        assert torch.cuda.is_available() is True
        assert torch.cuda.device_count() == 2
        assert torch.cuda.get_arch_list() != []
        assert torch.cuda.explain() == []
        assert torch.cuda._is_compiled() and not torch.cuda._is_in_bad_fork()
        assert torch.cuda._primary_context_devices() == []
        assert torch.cuda.is_initialized() is False
    """,
        TWO_VIRTUAL,
    )


def test_init_can_be_forced_and_repeated() -> None:
    run_script("""
        torch.cuda.init(); torch.cuda.init()
        assert torch.cuda.is_initialized()
        assert torch.cuda.is_current_stream_capturing() is False
        assert torch.cuda._primary_context_devices() == []
    """)


def test_the_private_name_of_init_runs_what_is_queued() -> None:
    run_script("""
        ran = []
        torch.cuda._lazy_call(lambda: ran.append(1))
        assert ran == []
        torch.cuda._lazy_init()
        torch.cuda._lazy_init()
        assert ran == [1] and torch.cuda.is_initialized()
        torch.cuda._lazy_call(lambda: ran.append(2))
        assert ran == [1, 2]
    """)


def test_device_minus_one_needs_no_initialisation_and_none_does() -> None:
    run_script("""
        with torch.cuda.device(-1) as entered:
            assert entered is None
        assert torch.cuda.device(-1).idx == -1 and not torch.cuda.is_initialized()
        assert torch.cuda.device(None).idx == 0 and torch.cuda.is_initialized()
    """)


def test_only_the_newest_seed_calls_run_in_the_order_of_their_latest_call() -> None:
    script = """
        ran = []
        call = torch.cuda._lazy_call
        call(lambda: ran.append("plain"))
        call(lambda: ran.append("all 0"), seed_all=True)
        call(lambda: ran.append("all 1"), seed_all=True)
        call(lambda: ran.append("one 2"), seed=True)
        {more}
        torch.cuda.init()
        assert ran == {expected}, ran
        call(lambda: ran.append("now"))
        assert ran[-1] == "now"
    """
    run_script(script.format(more="", expected=["plain", "all 1", "one 2"]))
    more = 'call(lambda: ran.append("all 3"), seed_all=True)'
    run_script(script.format(more=more, expected=["plain", "one 2", "all 3"]))


def test_a_failing_queued_call_says_where_it_was_queued_and_may_be_retried() -> None:
    run_script("""
        times = []
        def fails_once():
            times.append(1)
            if len(times) == 1:
                raise ValueError("x")
        def queue_it_here():
            torch.cuda._lazy_call(fails_once)
        queue_it_here()
        try:
            torch.cuda.init()
        except torch.cuda.DeferredCudaCallError as error:
            text = str(error)
            assert isinstance(error.__cause__, ValueError)
        assert "CUDA call failed lazily at initialization with error: x" in text
        assert "queue_it_here" in text
        assert not torch.cuda.is_initialized()
        torch.cuda.init()
        assert len(times) == 2 and torch.cuda.is_initialized()
    """)


def test_a_child_of_an_initialised_process_is_told_to_spawn() -> None:
    done = run_script(
        FORK
        + """
torch.cuda.init()
def use():
    assert torch.cuda.is_initialized() is False and torch.cuda._is_in_bad_fork()
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    torch.zeros(1, device="cuda")
assert in_child(use) == 7
""",
        TWO_VIRTUAL,
    )
    assert "RuntimeError: Cannot re-initialize CUDA in forked subprocess" in done.stdout
    assert "'spawn' start method" in done.stdout


@pytest.mark.parametrize(
    "call",
    [
        "Stream()",
        "init()",
        "synchronize()",
        "current_device()",
        "set_device(0)",
        "cudart()",
        "is_current_stream_capturing()",
        "mem_get_info()",
    ],
)
def test_every_entry_gives_the_same_answer_after_a_fork(call: str) -> None:
    done = run_script(
        FORK
        + f"""
torch.cuda.init()
assert in_child(lambda: torch.cuda.{call}) == 7
"""
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in done.stdout


def test_memory_questions_after_a_fork() -> None:
    done = run_script(
        FORK
        + """
x = torch.ones(1000, device="cuda")
books = torch.cuda.memory_snapshot()
def ask():
    c = torch.cuda
    assert c.memory_allocated() == 0 == c.memory_reserved() and c.memory_stats() == {}
    assert c.empty_cache() is None
    assert c.memory_snapshot() == books
    assert books[0]["allocated_size"] == 4096
assert in_child(ask) == 0
assert torch.cuda.memory_allocated() == 4096
assert in_child(torch.cuda.memory_summary) == 7
"""
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in done.stdout


def test_counting_devices_leaves_the_process_fit_to_fork() -> None:
    run_script(
        FORK
        + """
assert torch.cuda.device_count() >= 1 and torch.cuda.is_available()
assert not torch.cuda.is_initialized()
torch.cuda.get_arch_list()
def use():
    torch.ones(1, device="cuda")
assert in_child(use) == 0
torch.ones(1, device="cuda")
assert in_child(use) == 7
"""
    )


@pytest.mark.parametrize(
    ("value", "count", "available"),
    [
        (None, 3, True),
        ("0", 1, True),
        ("2,0", 2, True),
        ("2, +1, -0", 3, True),
        ("1gpu2,2ampere", 2, True),
        ("0, 1, 2, -1", 3, True),
        ("1,7,0", 1, True),
        ("one,2", 0, False),
        ("", 0, False),
        ("1,1", 0, False),
        ("GPU-nothing", 0, False),
    ],
)
def test_the_variable_is_read_at_each_count_before_initialisation(
    value: str | None, count: int, available: bool
) -> None:
    env = {"FLAMBEAU_VIRTUAL": "h200:3", "CUDA_VISIBLE_DEVICES": value}
    script = f"""
        assert torch.cuda.device_count() == {count}
        assert torch.cuda.is_available() is {available}
        try:
            torch.cuda.init()
        except torch.cuda.DriverNotFoundError as error:
            assert {count} == 0 and "No CUDA GPUs are available" in str(error)
        else:
            assert torch.cuda.device_count() == {count}
    """
    run_script(
        script.replace("torch.cuda.DriverNotFoundError", "DriverNotFoundError"),
        env,
        prelude="import flambeau as torch\n"
        "from flambeau.driver.errors import DriverNotFoundError\n",
    )


def test_uuids_choose_devices() -> None:
    run_script(
        """
        import os
        from flambeau import driver
        management = driver.current().management
        first, second = management.uuid(0), management.uuid(1)
        for value, count in [(second, 1), (f"{second},{first}", 2), (second[:-1], 1),
                             (f"{first},{first}", 0), ("GPU-", 0), (f"{first},1", 1)]:
            os.environ["CUDA_VISIBLE_DEVICES"] = value
            assert torch.cuda.device_count() == count, (value, torch.cuda.device_count())
        os.environ["CUDA_VISIBLE_DEVICES"] = second
        assert torch.cuda.get_device_properties(0).uuid == second.removeprefix("GPU-")
        """,
        {"FLAMBEAU_VIRTUAL": "h200:2"},
    )


def test_a_prefix_alone_counts_one_device_and_is_not_available() -> None:
    run_script(
        """
        assert torch.cuda.device_count() == 1
        assert not torch.cuda.is_available()
        try:
            torch.cuda.init()
        except RuntimeError as error:
            assert "No CUDA GPUs are available" in str(error)
        else:
            raise AssertionError
        """,
        {"FLAMBEAU_VIRTUAL": "h200:1", "CUDA_VISIBLE_DEVICES": "GPU-"},
    )


def test_without_the_management_library_another_process_asks_the_driver() -> None:
    run_script(
        FORK
        + """
from flambeau import driver
from flambeau.driver.errors import DriverNotFoundError
def refuse():
    raise DriverNotFoundError("no management library")
driver.current().management.device_count = refuse
assert torch.cuda._device_count_nvml() == -1
assert torch.cuda.device_count() == 2 and torch.cuda.is_available()
assert not torch.cuda.is_initialized()
def use():
    torch.ones(1, device="cuda")
assert in_child(use) == 0
""",
        TWO_VIRTUAL,
    )


def test_mig_instances_are_counted_by_the_driver_alone() -> None:
    run_script(
        """
        assert torch.cuda._parse_visible_devices() == ["MIG-1", "MIG-2"]
        assert torch.cuda._device_count_nvml() == -1
        assert torch.cuda.device_count() == 0 and not torch.cuda.is_available()
        """,
        TWO_VIRTUAL | {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2,0"},
    )


def test_the_quick_check_of_old_counts_with_the_management_library() -> None:
    run_script(
        """
        import os
        assert not torch.cuda.is_available()
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        assert torch.cuda.is_available()
        """,
        {"FLAMBEAU_VIRTUAL": "h200:1", "CUDA_VISIBLE_DEVICES": "GPU-"},
    )


def test_a_change_after_initialisation_is_pointed_out_once() -> None:
    run_script(
        """
        import os, warnings
        torch.cuda.init()
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.cuda.device_count() == 2 == torch.cuda.device_count()
        assert ["no effect" in str(w.message) for w in seen] == [True]
    """,
        TWO_VIRTUAL,
    )


@needs_no_driver
def test_without_a_driver_everything_says_so() -> None:
    run_script(
        """
        from flambeau.driver.errors import DriverNotFoundError
        assert torch.cuda.is_available() is False
        assert torch.cuda.device_count() == 0
        assert torch.cuda.is_bf16_supported() is False
        try:
            torch.cuda.init()
        except RuntimeError as error:
            assert isinstance(error, DriverNotFoundError)
            assert "Found no NVIDIA driver on your system" in str(error)
        else:
            raise AssertionError
        assert torch.cuda.explain()
        """,
        {"FLAMBEAU_VIRTUAL": None, "LD_LIBRARY_PATH": "/nonexistent"},
    )


def test_threads_initialise_once() -> None:
    run_script("""
        import threading
        ran = []
        torch.cuda._lazy_call(lambda: ran.append(1))
        threads = [threading.Thread(target=torch.cuda.init) for _ in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert ran == [1] and torch.cuda.is_initialized()
    """)


def test_a_queued_call_may_use_cuda() -> None:
    run_script(
        """
        seen = []
        torch.cuda._lazy_call(lambda: seen.append(torch.cuda.device_count()))
        torch.cuda.init()
        assert seen == [2]
    """,
        TWO_VIRTUAL,
    )


def test_collecting_shared_memory_initialises_and_takes_back_pending_frees() -> None:
    run_script("""
        from flambeau.runtime import _state
        assert torch.cuda.ipc_collect() is None and torch.cuda.is_initialized()
        ran = []
        _state.defer_call(lambda: ran.append(1))
        assert torch.cuda.ipc_collect() is None and ran == [1]
    """)


@needs_no_driver
def test_collecting_shared_memory_needs_a_driver() -> None:
    run_script(
        """
        try:
            torch.cuda.ipc_collect()
        except RuntimeError as error:
            assert "Found no NVIDIA driver" in str(error)
        else:
            raise AssertionError
        """,
        {"FLAMBEAU_VIRTUAL": None},
    )
