# SPDX-License-Identifier: Apache-2.0
"""Blocks that several streams of a capture used, within that capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from flambeau.runtime import _allocator_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 1 << 20
pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture
def reuse() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    _allocator_settings.set_("graph_capture_record_stream_reuse:True")
    yield
    _allocator_settings.set_("graph_capture_record_stream_reuse:False")
    torch.cuda.synchronize()


def new() -> torch.Tensor:
    made: torch.Tensor = torch.empty(COUNT, device="cuda")
    return made


def use_and_free(side: torch.cuda.Stream) -> int:
    """Use a new block on a side stream of the capture; its address after the end of its tensor."""
    block = new()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        block.fill_(1)
    block.record_stream(side)
    return block.data_ptr()


def test_a_block_comes_back_once_the_capture_waits_for_its_uses(reuse: None) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        address = use_and_free(side)
        early = new()
        torch.cuda.current_stream().wait_stream(side)
        late = new()
        early.fill_(2)
        late.fill_(3)
    assert early.data_ptr() != address
    assert late.data_ptr() == address
    graph.replay()
    assert early.sum().item() == 2 * COUNT
    assert late.sum().item() == 3 * COUNT


def test_without_the_option_it_comes_back_after_the_capture() -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        address = use_and_free(side)
        torch.cuda.current_stream().wait_stream(side)
        late = new()
        late.fill_(3)
    assert late.data_ptr() != address


def test_what_does_not_follow_on_its_own_stream_is_no_proof(reuse: None) -> None:
    first, second, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        address = use_and_free(first)
        second.wait_stream(first)  # somebody waits, but not the block's own stream
        with torch.cuda.stream(second):
            elsewhere = new()
        early = new()
        torch.cuda.current_stream().wait_stream(second)  # and now by way of the second stream
        late = new()
    assert address not in {early.data_ptr(), elsewhere.data_ptr()}
    assert late.data_ptr() == address


def test_every_stream_that_used_it_must_have_joined(reuse: None) -> None:
    first, second, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream()
        block = new()
        for side in (first, second):
            side.wait_stream(current)
            with torch.cuda.stream(side):
                block.sum()
            block.record_stream(side)
        address = block.data_ptr()
        del block
        current.wait_stream(first)
        early = new()
        current.wait_stream(second)
        late = new()
    assert early.data_ptr() != address
    assert late.data_ptr() == address


def test_work_after_the_free_is_not_waited_for(reuse: None) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    other = torch.zeros(8, device="cuda")
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream()
        block = new()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            block.fill_(1)
            event = torch.cuda.Event()
            event.record()
        block.record_stream(side)
        address = block.data_ptr()
        del block
        with torch.cuda.stream(side):
            other.add_(1)  # not a use of the block
        current.wait_event(event)
        late = new()
        current.wait_stream(side)
    assert late.data_ptr() == address


def test_a_stream_outside_the_capture_proves_nothing(reuse: None) -> None:
    outside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        block = new()
        block.fill_(1)
        block.record_stream(outside)
        address = block.data_ptr()
        del block
        late = new()
    assert late.data_ptr() != address


def test_a_long_capture_uses_one_block_again_and_again(reuse: None) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    total = torch.zeros(COUNT, device="cuda")
    addresses = set()
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream()
        for _ in range(20):
            block = new()
            addresses.add(block.data_ptr())
            block.fill_(1)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                total.add_(block)
            block.record_stream(side)
            del block
            current.wait_stream(side)
    assert len(addresses) == 1
    for _ in range(3):
        graph.replay()
    assert total.sum().item() == 60 * COUNT
    before = torch.cuda.memory_stats()["active.all.current"]
    del graph
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["active.all.current"] == before


def test_other_graphs_of_a_shared_pool_wait_for_the_end_of_the_capture(reuse: None) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        address = use_and_free(side)
        torch.cuda.current_stream().wait_stream(side)
        torch.zeros(8, device="cuda").add_(1)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        late = new()
        late.fill_(3)
    assert late.data_ptr() == address  # the first capture has ended


def test_a_conditional_part_proves_nothing(reuse: None, gpu: torch.device) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    flag = torch.ones((), dtype=torch.bool, device=gpu)
    count = torch.zeros((), device=gpu)
    with torch.cuda.graph(graph):
        address = use_and_free(side)
        torch.cuda.current_stream().wait_stream(side)
        graph.begin_capture_to_if_node(flag)
        count.add_(1)
        graph.end_capture_to_conditional_node()
        late = new()
    assert late.data_ptr() != address
    graph.replay()
    assert count.item() == 1
