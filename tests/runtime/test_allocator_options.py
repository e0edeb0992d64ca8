# SPDX-License-Identifier: Apache-2.0
"""The text of allocator options; nothing here needs a device."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.runtime import _allocator_settings
from flambeau.runtime._allocator_options import (
    AllocatorSettingsError,
    Options,
    Reserve,
    parse,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("max_split_size_mb:40", {"max_split_size": 40 * MIB}),
        ("max_split_size_mb:40,", {"max_split_size": 40 * MIB}),
        (" max_split_size_mb : 20 ", {"max_split_size": 20 * MIB}),
        ("max_split_size_mb:40.7", {"max_split_size": 40 * MIB}),
        ("max_split_size_mb:30,max_split_size_mb:50", {"max_split_size": 50 * MIB}),
        ("garbage_collection_threshold:0.5abc", {"garbage_collection_threshold": 0.5}),
        ("release_lock_on_hipmalloc:True", {"release_lock_on_cudamalloc": True}),
        ("backend:native,expandable_segments:False", {}),
        ("large_segment_size_mb:40,max_split_size_mb:40", {
            "large_segment_size": 40 * MIB, "max_split_size": 40 * MIB}),
        ("per_process_memory_fraction:0.25,throw_on_cudamalloc_oom:True", {
            "per_process_memory_fraction": 0.25, "throw_on_cudamalloc_oom": True}),
        ("pinned_num_register_threads:8,pinned_use_cuda_host_register:True", {
            "pinned_num_register_threads": 8, "pinned_use_cuda_host_register": True}),
        ("pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:0", {
            "pinned_max_round_threshold": MIB, "pinned_max_cached_size": 0}),
        ("pinned_use_background_threads:True", {"pinned_use_background_threads": True}),
        ("pinned_reserve_segment_size_mb:2,pinned_free_catch_all:True", {
            "pinned_reserve_segment_size": 2 * MIB, "pinned_free_catch_all": True}),
        ("roundup_power2_divisions:4", {"roundup_power2_divisions": (4,) * 16}),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", {
            "roundup_power2_divisions": (1,) * 9 + (2, 4) + (8,) * 5}),
        ("roundup_power2_divisions:[64:8,256:2]", {
            "roundup_power2_divisions": (8,) * 7 + (0, 2) + (0,) * 7}),
        ("roundup_power2_divisions:[4:0,>:2]", {
            "roundup_power2_divisions": (0,) * 3 + (2,) * 13}),
        ("roundup_power2_divisions:[>:4]", {"roundup_power2_divisions": (0,) + (4,) * 15}),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, expected: dict[str, object]) -> None:
    assert parse(text) == replace(Options(), **expected)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("foo:1", 0, "Unrecognized key"),
        ("Max_split_size_mb:40", 0, "Unrecognized key"),
        (",max_split_size_mb:40", 0, "Unrecognized key"),
        ("max_split_size_mb:40,,x", 21, "Unrecognized key"),
        ("max_split_size_mb=40", 0, "Unrecognized key"),
        ("max_split_size_mb", 17, "Expected ':'"),
        ("max_split_size_mb:", 18, "Missing value"),
        ("max_split_size_mb:x", 18, "Expected a whole number"),
        ("max_split_size_mb:-5", 18, "must not be negative"),
        ("max_split_size_mb:19", 0, "too small"),
        ("max_split_size_mb:30,large_segment_size_mb:40", 0, "too small"),
        ("large_segment_size_mb:40,max_split_size_mb:30", 25, "too small"),
        ("max_non_split_rounding_mb:19", 0, "too small"),
        ("large_segment_size_mb:10", 22, "too small"),
        ("max_split_size_mb:40 50", 21, "Expected ','"),
        ("garbage_collection_threshold:0", 29, "between 0 and 1"),
        ("garbage_collection_threshold:1.0", 29, "between 0 and 1"),
        ("garbage_collection_threshold:nan", 29, "between 0 and 1"),
        ("per_process_memory_fraction:1.5", 28, "from 0 to 1"),
        ("release_lock_on_cudamalloc:true", 27, "Expected 'True' or 'False'"),
        ("roundup_power2_divisions:3", 25, "power of two"),
        ("roundup_power2_divisions:0", 25, "power of two"),
        ("roundup_power2_divisions:[3:1]", 26, "powers of two"),
        ("roundup_power2_divisions:[4:3]", 28, "powers of two"),
        ("roundup_power2_divisions:[4:2", 29, "Unclosed list"),
        ("roundup_power2_divisions:[4:2,2:2]", 30, "must increase"),
        ("pinned_num_register_threads:3", 28, "power of two up to 128"),
        ("pinned_num_register_threads:256", 28, "power of two up to 128"),
        ("pinned_reserve_segment_size_mb:0", 31, "greater than 0"),
        ("backend:other", 8, "Unknown allocator backend"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, position: int, problem: str) -> None:
    with pytest.raises(AllocatorSettingsError, match=re.escape(problem)) as caught:
        parse(text, origin="PYTORCH_ALLOC_CONF=")
    assert f"position {position} of PYTORCH_ALLOC_CONF='{text}'" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5", Reserve(share=0.5)),
        ("1.5", Reserve(share=1.5)),
        ("1G", Reserve(bytes=1 << 30)),
        ("0.5G", Reserve(bytes=1 << 29)),
    ],
)
def test_reserves_are_shares_or_gibibytes(text: str, expected: Reserve) -> None:
    assert parse(f"expandable_segments_reserve:{text}").expandable_segments_reserve == expected
    by_class = parse(f"expandable_segments_reserve_by_class:[a:{text},b:2]")
    assert by_class.expandable_segments_reserve_by_class == (("a", expected), ("b", Reserve(2.0)))


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much", "1M", "0G"])
def test_a_reserve_that_is_none_is_ignored_with_a_warning(text: str) -> None:
    with pytest.warns(UserWarning, match=f"expandable_segments_reserve:{text} is ignored"):
        options = parse(f"expandable_segments_reserve:{text}")
    assert options.expandable_segments_reserve is None


def test_an_empty_text_leaves_expandable_segments_on() -> None:
    first = parse("expandable_segments:True,max_split_size_mb:40,expandable_segments_reserve:2G")
    second = parse("", first)
    assert second.expandable_segments
    assert second.expandable_segments_reserve == Reserve(bytes=2 << 30)
    assert second.max_split_size is None


def test_the_backend_is_fixed_once_options_are_read() -> None:
    with pytest.raises(AllocatorSettingsError, match="Unknown allocator backend"):
        parse("backend:jemalloc")
    assert parse("backend:cudaMallocAsync").backend == "cudaMallocAsync"
    with pytest.raises(RuntimeError, match="backend is fixed"):
        _allocator_settings.set_("backend:cudaMallocAsync")
    _allocator_settings.set_("backend:native")


def test_each_text_resets_some_options_and_keeps_the_others() -> None:
    first = parse(
        "max_split_size_mb:60,large_segment_size_mb:40,garbage_collection_threshold:0.5,"
        "roundup_power2_divisions:4,throw_on_cudamalloc_oom:True"
    )
    second = parse("", first)
    assert second == replace(Options(), large_segment_size=40 * MIB, throw_on_cudamalloc_oom=True)
    with pytest.raises(AllocatorSettingsError, match="the 40 of large_segment_size_mb"):
        parse("max_split_size_mb:30", first)


@given(st.text(alphabet="max_split_size_mb:,[]> 0149TrueFalsk", max_size=40))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    try:
        options = parse(text)
    except AllocatorSettingsError:
        return
    assert isinstance(options, Options)


@given(st.lists(st.sampled_from([0, 1, 2, 4, 8, 16]), min_size=16, max_size=16))
def test_a_full_list_of_divisions_reads_back(divisions: list[int]) -> None:
    pairs = ",".join(f"{1 << index}:{count}" for index, count in enumerate(divisions))
    parsed = parse(f"roundup_power2_divisions:[{pairs}]")
    assert parsed.roundup_power2_divisions == tuple(divisions)
