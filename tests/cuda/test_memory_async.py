# SPDX-License-Identifier: Apache-2.0
"""The backend cudaMallocAsync, in processes of its own: the backend is chosen once."""

from __future__ import annotations

import os

import pytest

from support import Finished, run_script

CHUNK = 32 << 20
REAL = os.environ.get("FLAMBEAU_TEST_DEVICE") == "real"


def run(source: str, conf: str = "backend:cudaMallocAsync", *, check: bool = True) -> Finished:
    return run_script(source, {"PYTORCH_CUDA_ALLOC_CONF": conf}, check=check)


def test_what_it_counts() -> None:
    run(
        f"""
        assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
        assert torch.cuda.memory_stats() == {{}}
        x = torch.empty(1, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        assert len(stats) == 123
        assert stats["allocated_bytes.all.current"] == stats["active_bytes.all.current"] == 1
        assert stats["reserved_bytes.all.current"] == {CHUNK}
        assert stats["max_split_size"] == stats["allocation.all.current"] == 0
        assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 1
        assert torch.cuda.memory_reserved() == torch.cuda.max_memory_reserved() == {CHUNK}
        y = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
        del y
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() == 1 + (10 << 20)
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 1
        assert "cudaMalloc retries: 0" in torch.cuda.memory_summary()
        del x
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.reset_accumulated_memory_stats()
            torch.cuda.reset_accumulated_memory_stats()
        assert ["accumulated" in str(one.message) for one in caught] == [True]
        """
    )


def test_what_it_refuses() -> None:
    run(
        """
        x = torch.ones(3, device="cuda")
        memory = torch.cuda.memory
        for call in (torch.cuda.memory_snapshot, memory._snapshot, torch.cuda.MemPool,
                     memory._record_memory_history, torch.cuda.memory_explain,
                     lambda: memory._attach_out_of_memory_observer(print)):
            try:
                call()
            except RuntimeError as error:
                assert "not meaningful" in str(error) and "cudaMallocAsync" in str(error)
            else:
                raise AssertionError(call)
        assert not memory._memory_metadata_supported()
        torch.cuda.caching_allocator_enable(False)  # ignored
        y = torch.ones(3, device="cuda")
        assert torch.cuda.memory_allocated() == 24
        address = torch.cuda.caching_allocator_alloc(1000)
        assert torch.cuda.memory_allocated() == 1024
        torch.cuda.caching_allocator_delete(address)
        assert torch.cuda.memory_allocated() == 24
        """
    )


def test_several_streams_before_the_memory_is_free() -> None:
    run(
        """
        import warnings
        side = torch.cuda.Stream()
        x = torch.ones(1 << 16, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            y = x * 2
        x.record_stream(side)
        del x
        z = torch.zeros(1 << 16, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        assert y.sum().item() == 2 << 16
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                z.record_stream(torch.cuda.current_stream())
        assert [str(one.message).startswith("record_stream was called") for one in caught] == [True]
        del y, z
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() == 0
        """
    )


def test_graphs() -> None:
    run(
        """
        a = torch.ones(1000, device="cuda")
        outside = torch.ones(1 << 20, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            b = a + 1
            del outside  # waits for the end of the capture
            c = b * 3
            del b
            other = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    other.capture_begin(capture_error_mode="thread_local")
            except RuntimeError as error:
                assert "one capture at a time" in str(error), error
            else:
                raise AssertionError
        assert torch.cuda.memory_allocated() == 4000
        for value in (1, 5):
            a.fill_(value)
            graph.replay()
            assert c.sum().item() == 1000 * 3 * (value + 1)
        del c, graph, other
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.add_(1)
        """
    )


def test_limits_and_running_out() -> None:
    run(
        """
        assert torch.cuda.get_per_process_memory_fraction() == 1.0
        free, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(0.01)
        assert abs(torch.cuda.get_per_process_memory_fraction() - 0.01) < 1e-9
        for size in (int(0.02 * total), 2 * total):
            try:
                torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                text = str(error)
                for words in ("would exceed allowed memory", "Currently allocated", "Requested",
                              "Device limit", "Free", "PyTorch limit"):
                    assert words in text
                assert error.requested == size
            else:
                raise AssertionError
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert torch.ones(3, device="cuda").sum().item() == 3
        """
    )


@pytest.mark.skipif(REAL, reason="takes most of the device, which others may be using")
def test_what_the_pool_keeps_goes_back_before_a_request_fails() -> None:
    run(
        """
        total = torch.cuda.mem_get_info()[1]
        for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x = torch.empty(int(0.6 * total), dtype=torch.uint8, device="cuda")
                del x
        """
    )


def test_native_options_are_named_and_ignored() -> None:
    run(
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.init()
        text, = (str(one.message) for one in caught)
        assert "ignores expandable_segments, max_split_size_mb" in text, text
        """,
        "backend:cudaMallocAsync,max_split_size_mb:40,expandable_segments:True,"
        "per_process_memory_fraction:0.9",
    )


def test_the_backend_cannot_change() -> None:
    run(
        """
        torch.cuda.init()
        torch._C._accelerator_setAllocatorSettings("backend:cudaMallocAsync")
        try:
            torch._C._accelerator_setAllocatorSettings("backend:native")
        except RuntimeError as error:
            assert "backend is fixed" in str(error)
        else:
            raise AssertionError
        """
    )


def test_exit_with_live_tensors_is_silent() -> None:
    done = run(
        """
        keep = torch.ones(3, device="cuda")
        s = torch.cuda.Stream()
        keep.record_stream(s)
        """
    )
    assert done.stderr == ""
