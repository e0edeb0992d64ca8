# SPDX-License-Identifier: Apache-2.0
"""What graphs tell of themselves: hooks, callbacks, pictures, data."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.runtime import observers
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

cuda = torch.cuda
graphs = cuda.graphs

needs_ids = pytest.mark.usefixtures("node_ids")


@pytest.fixture
def node_ids() -> None:
    available = cuda.graph_annotations.is_available()
    if not available:
        pytest.skip(available.reason)


@pytest.fixture
def ones() -> Any:
    return torch.ones(100, device="cuda")


@pytest.fixture
def log() -> list[str]:
    return []


KINDS = {
    "capture_start": ("start", "register_capture_start_hook"),
    "capture_end": ("end", "register_capture_end_hook"),
    "instantiate": ("instantiate", "register_post_instantiate_hook"),
    "replay_start": ("rs", "register_replay_start_hook"),
    "replay_end": ("re", "register_replay_end_hook"),
}


@pytest.fixture
def everywhere(log: list[str]) -> Iterator[list[str]]:
    """Hooks of all graphs that write down what happens."""

    def writer(name: str) -> Callable[[Any], None]:
        return lambda graph: log.append(name)

    handles = [
        getattr(graphs, f"register_graph_{kind}_hook")(writer(name))
        for kind, (name, _) in KINDS.items()
    ]
    yield log
    for handle in handles:
        handle.remove()


def test_all_graphs_tell_in_order(ones: Any, everywhere: list[str]) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    g.replay()
    g.replay()
    assert everywhere == ["start", "end", "instantiate", "rs", "re", "rs", "re"]


def test_hooks_of_a_graph_come_second(ones: Any, everywhere: list[str]) -> None:
    g = cuda.CUDAGraph()
    for name, register in KINDS.values():
        getattr(g, register)(lambda graph, name=name: everywhere.append(f"own {name}"))
    with cuda.graph(g):
        _ = ones + 1
    g.replay()
    names = [name for name, _ in KINDS.values()]
    assert everywhere == [text for name in names for text in (name, f"own {name}")]


def test_what_hooks_see(ones: Any) -> None:
    seen: list[Any] = []
    g = cuda.CUDAGraph()
    g.register_capture_start_hook(
        lambda graph: seen.append((graph is g, cuda.is_current_stream_capturing()))
    )
    g.register_capture_end_hook(
        lambda graph: seen.append((bool(graph.raw_cuda_graph()), graph._has_graph_exec))
    )
    g.register_post_instantiate_hook(lambda graph: seen.append(graph._has_graph_exec))
    with cuda.graph(g):
        _ = ones + 1
    assert seen == [(True, True), (True, False), True]


def test_handles_take_hooks_out(ones: Any, log: list[str]) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    handle = g.register_replay_start_hook(lambda graph: log.append("own"))
    other = g.register_replay_start_hook(lambda graph: log.append("other"))
    assert handle.id != other.id
    g.replay()
    handle.remove()
    handle.remove()
    g.replay()
    with graphs.register_graph_replay_end_hook(lambda graph: log.append("all")):
        g.replay()
    g.replay()
    assert log == ["own", "other", "other", "other", "all", "other"]


def test_errors_of_hooks_of_all_graphs_are_logged(
    ones: Any, log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(graph: Any) -> None:
        raise ValueError("bad hook")

    with (
        graphs.register_graph_capture_end_hook(fail),
        graphs.register_graph_capture_end_hook(lambda graph: log.append("next")),
    ):
        g = cuda.CUDAGraph()
        with cuda.graph(g):
            b = ones + 1
    g.replay()
    assert b[0].item() == 2
    assert log == ["next"]
    assert "bad hook" in caplog.text


def test_errors_of_own_hooks_propagate(ones: Any) -> None:
    def fail(graph: Any) -> None:
        raise ValueError("bad hook")

    g = cuda.CUDAGraph()
    g.register_capture_end_hook(fail)
    with pytest.raises(ValueError, match="bad hook"), cuda.graph(g):
        _ = ones + 1
    assert not g._has_graph_exec
    assert not cuda.is_current_stream_capturing()


def test_a_capture_that_is_given_up(ones: Any) -> None:
    def fail(graph: Any) -> None:
        raise ValueError("bad hook")

    g, before = cuda.CUDAGraph(), cuda.current_stream()
    with g.register_capture_start_hook(fail):
        with pytest.raises(ValueError, match="bad hook"), cuda.graph(g):
            pass
        assert cuda.current_stream() == before
    with cuda.graph(g):
        b = ones + 1
    g.replay()
    assert b[0].item() == 2


def test_a_replay_that_does_not_happen(
    ones: Any, log: list[str], fault: Callable[..., None]
) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones.add_(1)
    g.register_replay_end_hook(lambda graph: log.append("end"))
    fault("cuGraphLaunch", status=999)
    with pytest.raises(cuda.AcceleratorError):
        g.replay()
    assert log == ["end"]

    def fail(graph: Any) -> None:
        raise ValueError("bad hook")

    with g.register_replay_start_hook(fail), pytest.raises(ValueError, match="bad hook"):
        g.replay()
    assert log == ["end"]
    assert ones[0].item() == 1
    g.replay()
    assert ones[0].item() == 2


def test_failed_captures_have_no_end(ones: Any, everywhere: list[str]) -> None:
    with pytest.raises(cuda.AcceleratorError), cuda.graph(cuda.CUDAGraph()):
        cuda.synchronize()
    assert everywhere == ["start"]


@pytest.mark.parametrize("random", [False, True])
def test_observers_hear_of_launches(ones: Any, random: bool) -> None:
    seen: list[tuple[int, ...]] = []

    def note(*numbers: int) -> None:
        seen.append(numbers)

    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = torch.rand(8, device="cuda") if random else ones + 1
    observers.register("graph_launch", note)
    observers.register("graph_release", note)
    try:
        g.replay()
        g.replay()
        g.reset()
    finally:
        observers.unregister("graph_launch", note)
        observers.unregister("graph_release", note)
    capture = seen[0][0]
    assert seen == [(capture, 0, 0), (capture, 0, 0), (capture,)]


# --- the end of a graph --------------------------------------------------------------------------


def test_destruction_is_told_once(ones: Any, log: list[str]) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    g.register_destroy_callback(lambda: log.append("own"))
    gc.collect()  # of other tests
    with graphs.register_graph_destroy_hook(lambda ids: log.append(f"all {len(ids)}")):
        g.reset()
        del g
        gc.collect()
    assert log == ["all 0", "own"]


def test_a_reset_of_nothing_is_told(log: list[str]) -> None:
    with graphs.register_graph_destroy_hook(lambda ids: log.append("all")):
        cuda.CUDAGraph().reset()
    assert log == ["all"]


def test_collection_is_told(ones: Any, log: list[str]) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    g.register_destroy_callback(lambda: log.append("own"))
    del g
    gc.collect()
    assert log == ["own"]


@needs_ids
def test_annotated_graphs_tell_their_ids(ones: Any) -> None:
    seen: list[set[int]] = []
    g = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(g, enable_annotations=True):
        _ = ones + 1
    ids = []
    for _ in range(2):
        g.instantiate()
        ids.append(g.get_graph_data()["exec_graph_id"])
    with graphs.register_graph_destroy_hook(seen.append):
        g.reset()
    assert len(seen[0]) == 3
    assert seen[0].issuperset(ids)


def test_objects_are_kept(ones: Any) -> None:
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    g.retain_object(thing, synchronize_before_release=True)
    del thing
    g.replay()
    assert alive() is not None
    g.reset()
    assert alive() is None


def test_the_end_of_the_process_is_told() -> None:
    done = run_script(
        """
        g, x = torch.cuda.CUDAGraph(), torch.ones(3, device="cuda")
        with torch.cuda.graph(g):
            y = x + 1
        g.register_destroy_callback(lambda: print("destroyed"))
        g.replay()
        """
    )
    assert done.lines == ["destroyed"]


# --- looking inside ------------------------------------------------------------------------------


def test_dot(ones: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.dot"
    g = cuda.CUDAGraph()
    g.register_capture_end_hook(cuda.export_dot(path))
    with cuda.graph(g):
        _ = ones + 1 + 2
    text = path.read_text()
    assert text.startswith("digraph dot {")
    assert text.count("->") == 1
    with pytest.raises(RuntimeError, match="No cudaGraph_t is available"):
        g.debug_dump(path)
    g = cuda.CUDAGraph()
    g.enable_debug_mode()
    with cuda.graph(g):
        _ = ones + 1
    g.debug_dump(str(path))
    assert "->" not in path.read_text()


@needs_ids
def test_data(ones: Any, tmp_path: Path) -> None:
    path, side, seen = tmp_path / "g.pickle", cuda.Stream(), []
    g = cuda.CUDAGraph(keep_graph=True)
    g.register_post_instantiate_hook(cuda.export_graph_data(path))
    g.register_post_instantiate_hook(lambda graph: seen.append(graph.get_graph_data()))
    with cuda.graph(g):
        a = ones + 1
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            b = a * 2
        c = a * 3
        cuda.current_stream().wait_stream(side)
        _ = b + c
    g.instantiate()
    data = g.get_graph_data()
    assert pickle.loads(path.read_bytes()) == data
    assert seen[0] is data
    assert [node["node_type"] for node in data["nodes"]] == ["kernel"] * 4
    edges = {(edge["from"], edge["to"]) for edge in data["edges"]}
    assert edges == {(0, 1), (0, 2), (1, 3), (2, 3)}
    for node in data["nodes"]:
        assert node["tools_id"] == data["exec_graph_id"] << 32 | node["node_id"]
        assert node["kernel_name"]
        assert node["grid_dim"][0] >= 1
        assert node["event_ptr"] == node["host_fn_addr"] == 0


@needs_ids
def test_external_events_are_nodes(ones: Any) -> None:
    def kinds(external: bool) -> list[str]:
        g, event = cuda.CUDAGraph(keep_graph=True), cuda.Event(external=external)
        with cuda.graph(g):
            b = ones + 1
            event.record()
            c = b + 1
            event.wait()
            _ = c + 1
        g.instantiate()
        return [node["node_type"] for node in g.get_graph_data()["nodes"]]

    assert kinds(True) == ["kernel", "event_record", "kernel", "wait_event", "kernel"]
    assert kinds(False) == ["kernel"] * 3


@needs_ids
def test_data_of_a_dropped_template(ones: Any) -> None:
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        _ = ones + 1
    with pytest.raises(RuntimeError, match="No cudaGraph_t is available"):
        g.get_graph_data()


def test_generators_need_no_registration() -> None:
    with pytest.warns(FutureWarning, match="does nothing"):
        cuda.CUDAGraph().register_generator_state(cuda.default_generators[0])
