# SPDX-License-Identifier: Apache-2.0
"""What ``torch._C`` answers to."""

import gc

import pytest

import flambeau as torch


def test_the_raw_stream_is_the_current_one(gpu):
    stream = torch.cuda.Stream(gpu)
    assert torch._C._cuda_getCurrentRawStream(0) == 0
    with torch.cuda.stream(stream):
        assert torch._C._cuda_getCurrentRawStream(0) == stream.cuda_stream != 0


def test_products_keep_no_scratch_memory(gpu):
    x = torch.ones(512, 512, device=gpu)
    gc.collect()  # what earlier tests left goes now, not in between
    before = torch.cuda.memory_allocated()
    y = x @ x
    assert torch.cuda.memory_allocated() - before == 512 * 512 * 4
    torch._C._cuda_clearCublasWorkspaces()
    assert y[0, 0].item() == 512.0


def test_allocator_settings_are_checked():
    with pytest.raises(ValueError, match="Unrecognized key"):
        torch._C._accelerator_setAllocatorSettings("no_such_option:1")
    torch._C._accelerator_setAllocatorSettings("")


def test_the_pinned_cache_can_be_emptied(gpu):
    pinned = torch.ones(1000).pin_memory()
    del pinned
    torch._C._host_emptyCache()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0


def test_other_names_are_refused_by_name():
    with pytest.raises(AttributeError, match="no attribute '_nothing'"):
        torch._C._nothing  # noqa: B018
