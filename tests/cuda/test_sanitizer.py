# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import flambeau
from flambeau import cuda
from flambeau.cuda import _sanitizer
from flambeau.cuda._sanitizer import (
    CUDASanitizer,
    CUDASanitizerDispatchMode,
    CUDASanitizerErrors,
    CUDASanitizerWarning,
    SynchronizationError,
    UnsynchronizedAccessError,
    cuda_sanitizer,
)
from sanitizer_corpus import CLEAN, OF_THE_HOST, RACY, Place, fresh_place
from support import TWO_VIRTUAL, needs_two, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.fixture(autouse=True)
def _switched_off() -> Iterator[None]:
    yield
    cuda_sanitizer.disable()


def run(program: Any, place: Place) -> set[tuple[str, str, str]]:
    """What is found in a program: the racing operations, and the kind of race."""
    with CUDASanitizerDispatchMode("collect") as found:
        program(place)
        gc.collect()
    assert all(isinstance(error, UnsynchronizedAccessError) for error in found.errors)
    return {
        (
            error.current_access.operator.split("(")[0],
            error.previous_access.operator.split("(")[0],
            error.setting.kind,
        )
        for error in found.errors
    }


# -- the corpus ----------------------------------------------------------------------------------


def test_the_corpus_is_large_enough() -> None:
    assert len(RACY) >= 20
    assert len(CLEAN) >= 20


SEEN_BY_CHECKS = pytest.mark.finds("race")
PROGRAMS = [
    pytest.param(name, marks=() if name in OF_THE_HOST else SEEN_BY_CHECKS, id=name)
    for name in RACY
]


@needs_two
@pytest.mark.parametrize("name", PROGRAMS)
def test_races_are_found(name: str, place: Place) -> None:
    program, expected = RACY[name]
    assert run(program, place) == expected


@needs_two
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_where_nothing_is(name: str, place: Place) -> None:
    assert run(CLEAN[name], place) == set()


@needs_two
@pytest.mark.parametrize("seed", range(5))
def test_programs_do_not_disturb_each_other(seed: int, place: Place) -> None:
    """Many programs under one watch, with a wait for the devices between them."""
    programs = list(CLEAN.values())
    random.Random(seed).shuffle(programs)

    def all_of_them(p: Place) -> None:
        for program in programs:
            program(p)
            cuda.synchronize(0)
            cuda.synchronize(1)

    assert run(all_of_them, place) == set()


# -- reports and modes ---------------------------------------------------------------------------


def race(place: Place) -> None:
    with cuda.stream(place.a):
        place.x + 1
    with cuda.stream(place.b):
        place.x.mul_(2)


@SEEN_BY_CHECKS
@needs_two
def test_races_are_raised_after_the_operation(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with CUDASanitizerDispatchMode() as found:
        with pytest.raises(CUDASanitizerErrors, match=r"detected 1 error$") as caught:
            race(place)
        assert found.errors == caught.value.errors
    place.b.synchronize()
    assert place.x[0, 0].item() == 2
    (error,) = caught.value.errors
    assert isinstance(error, SynchronizationError)
    assert capsys.readouterr().err == f"{error}\n"
    race(place)  # outside, nobody watches


@SEEN_BY_CHECKS
@needs_two
def test_what_a_report_says(place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        made = flambeau.zeros(4, 3, device="cuda")
        cuda.synchronize()
        with cuda.stream(place.a):
            flambeau.add(made, made[:, :1])
        with cuda.stream(place.b):
            made[1:].mul_(2)
    (error,) = found.errors
    lines = str(error).splitlines()
    a, b = place.a.cuda_stream, place.b.cuda_stream
    assert lines[0] == "=" * 28
    assert lines[1] == (
        f"CSAN detected a possible data race on tensor with data pointer {made.data_ptr() + 12}"
    )
    assert lines[2].startswith("Bytes that both touch: 36 from ")
    assert lines[3:7] == [
        f"Access by stream {b} during kernel:",
        "mul(self: float32[3, 3]) -> float32[3, 3]",
        "writing to argument(s) self, and to the output",
        "With stack trace:",
    ]
    previous = lines.index(f"Previous access by stream {a} during kernel:")
    assert lines[previous + 1 : previous + 4] == [
        "add(self: float32[4, 3], other: float32[4, 1]) -> float32[4, 3]",
        "reading from argument(s) self",
        "With stack trace:",
    ]
    allocation = lines.index("Tensor was allocated with stack trace:")
    assert "made[1:].mul_(2)" in "\n".join(lines[7:previous])
    assert "flambeau.add(made, made[:, :1])" in "\n".join(lines[previous:allocation])
    assert 'flambeau.zeros(4, 3, device="cuda")' in "\n".join(lines[allocation:])
    assert "flambeau/ops" not in str(error)
    assert f"nothing has stream {b} of cuda:0 wait for stream {a} of cuda:0" in error.advice
    assert "wait_stream" in error.advice


@SEEN_BY_CHECKS
@needs_two
def test_a_report_of_memory_from_before(place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        race(place)
    assert "Trace for tensor allocation not found." in str(found.errors[0])


@needs_two
@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        pytest.param(
            "freed_while_another_stream_reads",
            "call its record_stream() for stream",
            marks=SEEN_BY_CHECKS,
        ),
        pytest.param(
            "allocated_on_a_stream_and_used_on_another",
            "After allocating, have stream",
            marks=SEEN_BY_CHECKS,
        ),
        ("the_result_is_read_too_early", "the host does not wait for the default stream of cuda:0"),
    ],
)
def test_advice_fits_the_kind(name: str, phrase: str, place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        RACY[name][0](place)
    text = str(found.errors[0])
    assert phrase in text
    assert ("the memory was freed with stack trace" in text) == ("host" not in phrase)
    assert ("Access by the host during:" in text) == ("host" in phrase)


@SEEN_BY_CHECKS
@needs_two
def test_accesses_are_described(place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        race(place)
    error = found.errors[0]
    current, previous = error.current_access, error.previous_access
    assert (current.type, previous.type) == (
        _sanitizer.AccessType.WRITE,
        _sanitizer.AccessType.READ,
    )
    assert (current.stream, previous.stream) == (place.b.cuda_stream, place.a.cuda_stream)
    assert (current.aliases, current.is_output) == (["self"], True)
    assert (previous.aliases, previous.is_output) == (["self"], False)
    assert current.seq_num > previous.seq_num
    assert error.data_ptr == place.x.data_ptr()
    assert error.allocation_stack_trace is None


@SEEN_BY_CHECKS
@needs_two
def test_collecting_finds_a_pair_of_lines_once(place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        for _ in range(3):
            race(place)
    assert len(found.errors) == 2  # the write races with the read, the next read with the write


@SEEN_BY_CHECKS
@needs_two
def test_warnings_are_at_the_program_s_line(place: Place) -> None:
    with (
        CUDASanitizerDispatchMode("warn") as found,
        pytest.warns(CUDASanitizerWarning, match="data race") as caught,
    ):
        race(place)
    (warning,) = caught
    assert warning.filename == __file__
    assert len(found.errors) == 1


@SEEN_BY_CHECKS
@needs_two
def test_warnings_that_are_errors_are_raised(place: Place) -> None:
    with CUDASanitizerDispatchMode("warn"), warnings.catch_warnings():
        warnings.simplefilter("error", CUDASanitizerWarning)
        with pytest.raises(CUDASanitizerErrors):
            race(place)


def test_modes_have_names() -> None:
    with pytest.raises(ValueError, match="no sanitizer mode is named 'shout'; there are 'raise'"):
        CUDASanitizerDispatchMode("shout")  # type: ignore[arg-type]


def test_a_mode_is_entered_once_at_a_time() -> None:
    mode = CUDASanitizerDispatchMode("collect")
    with mode, pytest.raises(RuntimeError, match="entered already"):
        mode.__enter__()
    with mode:
        pass


@SEEN_BY_CHECKS
@needs_two
def test_the_process_s_sanitizer(place: Place) -> None:
    assert isinstance(cuda_sanitizer, CUDASanitizer)
    assert not cuda_sanitizer.enabled
    _sanitizer.enable_cuda_sanitizer()
    _sanitizer.enable_cuda_sanitizer()
    assert cuda_sanitizer.enabled
    with pytest.raises(CUDASanitizerErrors):
        race(place)
    _sanitizer.enable_cuda_sanitizer("collect")
    race(place)
    cuda_sanitizer.disable()
    assert not cuda_sanitizer.enabled
    assert len(cuda_sanitizer.errors) == 1
    race(place)
    assert len(cuda_sanitizer.errors) == 1


@needs_two
def test_kernels_of_the_program_s_own_can_be_declared(place: Place) -> None:
    with CUDASanitizerDispatchMode("collect") as found:
        _sanitizer.declare_access("mine", read=[place.x], stream=place.a)
        with cuda.stream(place.b):
            _sanitizer.declare_access("yours", written=[place.x])
    assert found.errors[0].current_access.operator == "yours() -> float32[8, 8]"
    with pytest.raises(ValueError, match="'nothing' names no CUDA tensor"):
        _sanitizer.declare_access("nothing", read=[flambeau.zeros(1)])


@needs_two
def test_results_are_the_same_under_watch(place: Place) -> None:
    def work() -> list[Any]:
        x = flambeau.arange(12, device="cuda").reshape(3, 4)
        product = x.float() @ x.float().t()
        return [
            product.tolist(),
            x.flip(0).sort(0).values.tolist(),
            x[x > 3].tolist(),
            x.to("cuda:1").sum(1).cpu().tolist(),
        ]

    plain = work()
    with CUDASanitizerDispatchMode():
        assert work() == plain


@SEEN_BY_CHECKS
@pytest.mark.parametrize("value", ["", "0", "1", "raise"])
def test_the_variable_switches_it_on_whatever_its_value(value: str) -> None:
    done = run_script(
        """
        x = torch.zeros(4, device="cuda")
        s = torch.cuda.Stream()
        try:
            with torch.cuda.stream(s):
                y = x + 1
        except torch.cuda._sanitizer.CUDASanitizerErrors as error:
            print(error)
        """,
        {**TWO_VIRTUAL, "TORCH_CUDA_SANITIZER": value},
    )
    assert done.lines == ["detected 1 error"]
    assert done.stderr.startswith("=" * 28)


@SEEN_BY_CHECKS
def test_the_variable_can_ask_for_a_mode() -> None:
    script = """
        x = torch.zeros(4, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            y = x + 1
        print("end")
        """
    done = run_script(script, {**TWO_VIRTUAL, "TORCH_CUDA_SANITIZER": "collect"})
    assert done.lines == ["end"]
    assert done.stderr.count("CSAN detected") == 1


def test_switching_it_on_starts_no_driver() -> None:
    done = run_script(
        "import flambeau.driver as d; print(torch.cuda.is_initialized(), d.peek())",
        {**TWO_VIRTUAL, "TORCH_CUDA_SANITIZER": "1"},
    )
    assert done.lines == ["False None"]
