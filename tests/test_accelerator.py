# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau import accelerator
from support import needs_two, run_script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gpu")


def test_which_accelerator_there_is() -> None:
    assert accelerator.is_available()
    assert accelerator.device_count() == torch.cuda.device_count()
    assert accelerator.current_accelerator() == torch.device("cuda")
    assert accelerator.current_accelerator(check_available=True) == torch.device("cuda")


def test_without_a_gpu_questions_that_need_one_say_so() -> None:
    script = """
    from flambeau import accelerator
    print(accelerator.is_available(), accelerator.device_count())
    print(accelerator.current_accelerator(), accelerator.current_accelerator(True))
    for ask in (accelerator.current_device_index, accelerator.synchronize,
                accelerator.memory_stats, accelerator.current_stream,
                lambda: accelerator.set_device_index(0), accelerator.Graph):
        try:
            ask()
        except RuntimeError as error:
            print("none is available" in str(error))
    with accelerator.device_index(None):
        print("nothing happened")
    """
    lines = run_script(script, {"FLAMBEAU_VIRTUAL": "h200", "CUDA_VISIBLE_DEVICES": ""}).lines
    assert lines == ["False 0", "cuda None", *["True"] * 6, "nothing happened"]


@needs_two
def test_the_current_device() -> None:
    accelerator.set_device_index("cuda:1")
    try:
        assert accelerator.current_device_index() == 1
        assert torch.ones(1, device="cuda").device.index == 1
        with accelerator.device_index(0):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == 1
        with pytest.warns(FutureWarning, match="current_device_index"):
            assert accelerator.current_device_idx() == 1
        with pytest.warns(FutureWarning, match="set_device_index"):
            accelerator.set_device_idx(0)
    finally:
        accelerator.set_device_index(0)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_another_kind_of_device_is_refused(device: Any) -> None:
    with pytest.raises(ValueError, match="doesn't match the current accelerator cuda"):
        accelerator.synchronize(device)


def test_a_device_without_a_number_cannot_be_set() -> None:
    with pytest.raises(ValueError, match="specified index or an integer"):
        accelerator.set_device_index("cuda")
    with pytest.raises(TypeError, match="a number or None"):
        accelerator.device_index("cuda:0")  # type: ignore[arg-type]
    with pytest.raises(torch.cuda.AcceleratorError):
        accelerator.set_device_index(99)


def test_streams() -> None:
    stream = torch.cuda.Stream()
    before = accelerator.current_stream()
    accelerator.set_stream(stream)
    try:
        assert accelerator.current_stream(0) == stream
        assert accelerator.current_stream("cuda:0") == torch.cuda.current_stream()
    finally:
        accelerator.set_stream(before)
    accelerator.synchronize(0)
    with pytest.raises(TypeError, match="not None"):
        accelerator.set_stream(None)  # type: ignore[arg-type]


def test_what_a_device_can_do() -> None:
    dtypes = accelerator.get_device_capability(0)["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.complex64, torch.int8} <= dtypes
    with pytest.raises(AssertionError, match="Invalid device id"):
        accelerator.get_device_capability(99)


def test_memory_figures_are_those_of_cuda() -> None:
    x = torch.ones(1 << 20, device="cuda")
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "memory_stats"):
        assert getattr(accelerator, name)() == getattr(torch.cuda, name)(), name
    del x
    assert accelerator.max_memory_allocated() > accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats(0)
    assert accelerator.max_memory_allocated() == accelerator.memory_allocated()
    assert accelerator.max_memory_reserved() == accelerator.memory_reserved()
    accelerator.reset_accumulated_memory_stats("cuda")
    assert accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    free, total = accelerator.get_memory_info(0)
    assert 0 < free < total
    assert "segments" in accelerator.memory._snapshot()


def test_generators() -> None:
    torch.cuda.manual_seed(11)
    assert accelerator.random.initial_seed() == accelerator.random.initial_seed("cuda:0") == 11
    assert torch.equal(accelerator.random.get_rng_state(0), torch.cuda.get_rng_state(0))
    assert len(accelerator.random.get_rng_state_all()) == torch.cuda.device_count()


def test_a_graph_records_and_replays(tmp_path: Path) -> None:
    x = torch.ones(3, device="cuda")
    graph = accelerator.Graph(keep_graph=True, capture_error_mode="thread_local")
    with torch.cuda.stream(torch.cuda.Stream()), graph:
        y = x + 1
    graph.instantiate()
    x.fill_(4.0)
    graph.replay()
    assert y.tolist() == [5.0] * 3
    graph.debug_dump(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
    other = accelerator.Graph(pool=graph.pool())
    assert other.graph_pool == graph.pool()
    graph.reset()


def test_a_graph_without_a_stream_of_its_own_is_refused() -> None:
    graph = accelerator.Graph()
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        accelerator.Graph(capture_error_mode="strict")


def test_every_public_name_is_there() -> None:
    for name in accelerator.__all__:
        assert getattr(accelerator, name) is not None
    assert "Graph" in dir(accelerator)
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = accelerator.frobnicate
