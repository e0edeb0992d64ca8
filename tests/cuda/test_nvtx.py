# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from flambeau import cuda
from flambeau.cuda import nvtx
from flambeau.runtime import observers
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS: tuple[observers.Kind, ...] = (
    "mark",
    "range_push",
    "range_pop",
    "range_start",
    "range_end",
)


def in_thread(function: Callable[[], Any]) -> Any:
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(function()))
    thread.start()
    thread.join()
    return box[0]


@pytest.fixture
def seen() -> Iterator[list[tuple[Any, ...]]]:
    """What observers hear of annotations."""
    calls: list[tuple[Any, ...]] = []
    callbacks = {kind: lambda *a, kind=kind: calls.append((kind, *a)) for kind in KINDS}
    for kind, callback in callbacks.items():
        observers.register(kind, callback)
    yield calls
    for kind, callback in callbacks.items():
        observers.unregister(kind, callback)


def test_depths_count_from_zero() -> None:
    assert [nvtx.range_push("a"), nvtx.range_push("b")] == [0, 1]
    assert [nvtx.range_pop(), nvtx.range_pop()] == [1, 0]


def test_each_thread_counts_its_own() -> None:
    assert nvtx.range_push("here") == 0
    assert in_thread(lambda: nvtx.range_push("other")) == 0
    assert nvtx.range_push("inner") == 1
    assert [nvtx.range_pop(), nvtx.range_pop()] == [1, 0]


def test_each_domain_counts_its_own() -> None:
    assert nvtx.range_push("a") == 0
    assert nvtx.range_push("b", domain="library") == 0
    assert nvtx.range_pop() == 0
    assert nvtx.range_pop(domain="library") == 0


def test_a_pop_too_many_changes_nothing() -> None:
    assert nvtx.range_pop() == -1
    assert nvtx.range_push("a") == 0
    assert nvtx.range_pop() == 0


def test_a_range_is_closed_when_its_block_raises() -> None:
    with pytest.raises(ValueError, match="inside"), nvtx.range("step {}", 7):
        raise ValueError("inside")
    assert nvtx.range_push("again") == 0
    nvtx.range_pop()


def test_the_range_of_a_with_statement_is_nobody_s_value() -> None:
    with nvtx.range("a") as value:
        assert value is None


def test_a_range_may_end_on_another_thread(seen: list[tuple[Any, ...]]) -> None:
    number = in_thread(lambda: nvtx.range_start("load"))
    assert isinstance(number, int)
    other = nvtx.range_start("more")
    assert other != number
    nvtx.range_end(number)
    nvtx.range_end(other)
    assert seen == [
        ("range_start", number, "load", None),
        ("range_start", other, "more", None),
        ("range_end", number),
        ("range_end", other),
    ]


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (("a {} {k}", 1), {"k": 2}, "a 1 2"),
        (("{braces} and {",), {}, "{braces} and {"),
        (("{0}{0}", "x"), {}, "xx"),
        (("{domain}",), {"domain": 3}, "3"),
        (("{color:>{payload}}", 0), {"color": "r", "payload": 3}, "  r"),
        (("{domain.real[0]}",), {"domain": type("D", (), {"real": [5]})}, "5"),
    ],
)
def test_messages_are_formatted_only_with_arguments(
    seen: list[tuple[Any, ...]],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    message: str,
) -> None:
    with nvtx.range(*arguments, **keywords):
        pass
    assert seen == [("range_push", message, None), ("range_pop", None)]


def test_keywords_that_are_no_fields_are_extras(seen: list[tuple[Any, ...]]) -> None:
    with nvtx.range("{raw}", domain="library", color="green", payload=3):
        assert nvtx.range_push("inner") == 0
        nvtx.range_pop()
    assert seen[0] == ("range_push", "{raw}", "library")
    assert seen[-1] == ("range_pop", "library")


def test_a_range_decorates_functions(seen: list[tuple[Any, ...]]) -> None:
    @nvtx.range("depth {}", 1)
    def recurse(n: int) -> int:
        """Count."""
        return 0 if n == 0 else 1 + recurse(n - 1)

    assert recurse(1) == 1
    assert recurse.__name__ == "recurse"
    assert recurse.__doc__ == "Count."
    assert [call[0] for call in seen] == ["range_push", "range_push", "range_pop", "range_pop"]
    assert seen[0][1] == "depth 1"


def test_marks(seen: list[tuple[Any, ...]]) -> None:
    assert nvtx.mark("now") is None
    nvtx.mark("there", domain="library", color=0xFF0000, payload=1.5)
    assert seen == [("mark", "now", None), ("mark", "there", "library")]


@pytest.mark.parametrize("call", [nvtx.mark, nvtx.range_push, nvtx.range_start, nvtx.range])
def test_a_message_is_a_str(call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="got int"):
        call(3)


def test_spans_of_a_stream_follow_its_work(gpu: Any, seen: list[tuple[Any, ...]]) -> None:
    side = cuda.Stream(gpu)
    gate = cuda.Event()
    span = nvtx._device_range_start("copy", side.cuda_stream)
    cuda._sleep(1000)
    nvtx._device_range_end(span, side.cuda_stream)
    gate.record(side)
    gate.synchronize()
    assert [call[0] for call in seen] == ["range_start", "range_end"]
    assert seen[0][2] == "copy"
    assert seen[0][1] == seen[1][1]


def test_spans_of_a_stream_take_their_own_handles() -> None:
    with pytest.raises(TypeError, match="_device_range_start returned"):
        nvtx._device_range_end(3)


# -- a tool that listens -------------------------------------------------------------------------


class Domain:
    """Stands for the package's class of domains that a tool listens to."""

    made: list[Domain]

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.calls: list[tuple[Any, ...]] = []
        Domain.made.append(self)

    def get_event_attributes(self, *attributes: Any) -> tuple[Any, ...]:
        return attributes

    def mark(self, attributes: object) -> None:
        self.calls.append(("mark", attributes))

    def push_range(self, attributes: object) -> None:
        self.calls.append(("push", attributes))

    def pop_range(self) -> None:
        self.calls.append(("pop",))

    def start_range(self, attributes: object) -> int:
        self.calls.append(("start", attributes))
        return 1 << 40

    def end_range(self, range_id: int) -> None:
        self.calls.append(("end", range_id))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Domain]]:
    """A listening tool, through a package of the name that is looked for."""
    package = ModuleType("nvtx")
    package.Domain, package.get_domain = Domain, Domain  # type: ignore[attr-defined]
    Domain.made = []
    monkeypatch.setitem(sys.modules, "nvtx", package)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/tool.so")
    nvtx._listening.cache_clear()
    yield Domain
    nvtx._listening.cache_clear()


def test_a_tool_gets_the_whole_annotation(tool: type[Domain]) -> None:
    nvtx.mark("m", color="red", payload=2)
    assert nvtx.range_push("outer") == 0
    with nvtx.range("inner {}", 1, domain="library"):
        pass
    assert nvtx.range_pop() == 0
    number = nvtx.range_start("span")
    in_thread(lambda: nvtx.range_end(number))
    nvtx.range_end(number)
    default, library = tool.made
    assert (default.name, library.name) == (None, "library")
    assert default.calls == [
        ("mark", ("m", "red", None, 2)),
        ("push", ("outer", None, None, None)),
        ("pop",),
        ("start", ("span", None, None, None)),
        ("end", 1 << 40),
    ]
    assert library.calls == [("push", ("inner 1", None, None, None)), ("pop",)]


@pytest.mark.usefixtures("tool")
def test_a_tool_is_not_told_of_a_pop_too_many() -> None:
    nvtx.mark("made")
    assert nvtx.range_pop() == -1
    assert Domain.made[0].calls[1:] == []


def test_annotations_load_and_start_nothing() -> None:
    done = run_script(
        """
        import sys
        nvtx = torch.cuda.nvtx
        with nvtx.range("a"):
            nvtx.mark("b")
        nvtx.range_end(nvtx.range_start("c"))
        print(torch.cuda.is_initialized(), "nvtx" in sys.modules, "numpy" in sys.modules)
        """,
        {"NVTX_INJECTION64_PATH": None, "LD_PRELOAD": None},
    )
    assert done.lines == ["False False False"]
