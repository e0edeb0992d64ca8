# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as torch
from flambeau.cuda._device import InvalidDeviceError
from flambeau.cuda._utils import _get_device_index
from support import TWO_VIRTUAL, needs_two, run_script

# --- device arguments ---------------------------------------------------------------------------


def test_numbers_pass_through() -> None:
    assert [_get_device_index(n) for n in (0, 5, -1, -7)] == [0, 5, -1, -7]


def test_devices_and_strings_give_their_index() -> None:
    assert _get_device_index("cuda:1") == 1
    assert _get_device_index(torch.device("cuda", 1)) == 1
    assert _get_device_index(torch.cuda.device(1)) == 1


@needs_two
def test_no_index_means_the_current_device_where_that_is_allowed() -> None:
    with torch.cuda.device(1):
        assert _get_device_index(None, optional=True) == 1
        assert _get_device_index("cuda", optional=True) == 1
        assert _get_device_index(torch.device("cuda"), optional=True) == 1


@pytest.mark.parametrize("argument", [None, "cuda", 1.5, object])
def test_no_index_is_refused_where_one_is_needed(argument: object) -> None:
    text = "Expected a torch.device with a specified index or an integer, but got:"
    with pytest.raises(ValueError, match=text):
        _get_device_index(argument)


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        _get_device_index("cpu")
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        torch.cuda.device(torch.device("cpu"))
    assert _get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(RuntimeError, match="Invalid device string"):
        _get_device_index("cuda0")
    with pytest.raises(TypeError, match=r"torch\.device.* but got: 1\.5"):
        _get_device_index(1.5, optional=True)


# --- the current device -------------------------------------------------------------------------


@needs_two
def test_set_device_needs_a_number_and_ignores_negative_ones() -> None:
    torch.cuda.set_device(1)
    torch.cuda.set_device(-1)
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device("cuda:0")
    assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="specified index"):
        torch.cuda.set_device("cuda")


def enter(index: int) -> None:
    with torch.cuda.device(index):
        pass


@pytest.mark.parametrize("call", [torch.cuda.set_device, torch.cuda.synchronize, enter])
def test_a_device_that_is_not_there_is_error_101(call: object) -> None:
    with pytest.raises(torch.cuda.AcceleratorError, match="invalid device ordinal") as caught:
        call(99)
    assert caught.value.error_code == 101
    assert "Device 99 was asked for; this process sees" in str(caught.value)
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("index", [-1, 64, 99])
@pytest.mark.parametrize(
    "ask",
    [
        torch.cuda.get_device_properties,
        torch.cuda.get_device_name,
        torch.cuda.get_device_capability,
    ],
)
def test_questions_about_a_device_that_is_not_there(ask: object, index: int) -> None:
    with pytest.raises(AssertionError, match="Invalid device id") as caught:
        ask(index)
    assert isinstance(caught.value, InvalidDeviceError)
    assert isinstance(caught.value, ValueError)
    assert f"sees {torch.cuda.device_count()} device" in str(caught.value)


@needs_two
def test_the_context_manager_restores_the_device() -> None:
    manager = torch.cuda.device(1)
    assert manager.idx == 1
    assert manager.prev_idx == -1
    with manager as entered:
        assert entered is None
        assert torch.cuda.current_device() == 1
        with torch.cuda.device("cuda:0"):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == 1
        assert manager.prev_idx == 0
    assert torch.cuda.current_device() == 0
    with pytest.raises(KeyError), torch.cuda.device(1):
        raise KeyError
    assert torch.cuda.current_device() == 0


@needs_two
def test_a_negative_device_changes_nothing() -> None:
    with torch.cuda.device(1), torch.cuda.device(-1):
        assert torch.cuda.current_device() == 1


@needs_two
def test_the_device_of_a_tensor_becomes_current() -> None:
    with torch.cuda.device_of(torch.empty(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.empty(1)) as entered:
        assert entered is None
        assert torch.cuda.current_device() == 0


@needs_two
def test_the_guard_by_number() -> None:
    with torch.cuda._DeviceGuard(1):
        assert torch.cuda.current_device() == 1
    assert torch.cuda._exchange_device(1) == 0
    assert torch.cuda._maybe_exchange_device(0) == 1
    assert torch.cuda._exchange_device(-1) == -1


@needs_two
def test_each_thread_has_its_own_device_and_begins_with_0() -> None:
    seen: list[int] = []
    ready, go = threading.Event(), threading.Event()

    def work() -> None:
        seen.append(torch.cuda.current_device())
        torch.cuda.set_device(1)
        ready.set()
        go.wait(10)
        seen.append(torch.cuda.current_device())

    with torch.cuda.device(1):
        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(10)
        torch.cuda.set_device(0)
        go.set()
        thread.join()
        assert torch.cuda.current_device() == 0
    assert seen == [0, 1]


def test_contexts_are_made_where_a_device_is_named_and_nowhere_else() -> None:
    run_script(
        """
        assert torch.cuda._primary_context_devices() == []
        torch.cuda.init()
        assert torch.cuda._primary_context_devices() == []
        torch.cuda.get_device_properties(1)
        torch.cuda.memory_allocated(1)
        torch.cuda.default_stream(1)
        assert torch.cuda._primary_context_devices() == []
        with torch.cuda.device(1):
            assert torch.cuda._primary_context_devices() == [1]
        assert torch.cuda.current_device() == 0
        assert torch.cuda._primary_context_devices() == [1]
        x = torch.ones(1, device="cuda:1") + 1
        torch.cuda.synchronize(1)
        assert torch.cuda._primary_context_devices() == [1]
    """,
        TWO_VIRTUAL,
    )


def test_stray_contexts_are_reported_on_request() -> None:
    run_script(
        """
        import os, warnings
        torch.cuda.set_device(0)
        torch.cuda.set_device(1)
        os.environ["TORCH_CUDA_CHECK_STRAY_CONTEXT"] = "warn"
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_device(1)
        assert len(seen) == 1 and "device 0 already" in str(seen[0].message), seen
        os.environ["TORCH_CUDA_CHECK_STRAY_CONTEXT"] = "error"
        try:
            torch.cuda.set_device(1)
        except RuntimeError as error:
            assert "device 0 already" in str(error)
        else:
            raise AssertionError
    """,
        TWO_VIRTUAL,
    )


# --- synchronisation and questions --------------------------------------------------------------


@needs_two
def test_synchronize_takes_cuda_devices() -> None:
    assert torch.cuda.synchronize() is None
    assert torch.cuda.synchronize("cuda:0") is None
    assert torch.cuda.synchronize(0) is None
    assert torch.cuda.synchronize(torch.device("cuda:1")) is None
    assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.synchronize("cpu")


@needs_two
def test_synchronize_waits_for_the_device() -> None:
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
    torch.cuda.synchronize(1)
    assert stream.query()


@needs_two
def test_peers() -> None:
    assert torch.cuda.can_device_access_peer(0, 0) is False
    assert torch.cuda.can_device_access_peer(0, 1) is True
    assert torch.cuda.can_device_access_peer(None, 1) is True
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.cuda.can_device_access_peer(0, 99)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.can_device_access_peer(-1, 0)
    with pytest.raises(ValueError, match="specified index"):
        torch.cuda.can_device_access_peer(0, "cuda")


def test_properties_describe_the_device() -> None:
    run_script(
        """
        p = torch.cuda.get_device_properties("cuda:0")
        assert (p.major, p.minor) == torch.cuda.get_device_capability(0) == (9, 0)
        assert p.name == p.gcnArchName == torch.cuda.get_device_name()
        assert "Virtual" in p.name
        assert p.total_memory == 150109880320 and p.L2_cache_size == 62914560
        assert p.multi_processor_count == 132 and p.warp_size == 32
        assert p.max_threads_per_block == 1024 and p.max_threads_per_multi_processor == 2048
        assert p.regs_per_multiprocessor == 65536
        assert p.shared_memory_per_block == 49152
        assert p.shared_memory_per_block_optin == 232448
        assert p.shared_memory_per_multiprocessor == 233472
        assert p.clock_rate == 1980000 and p.memory_clock_rate == 3201000
        assert p.memory_bus_width == 6016
        assert p.is_integrated == 0 and p.is_multi_gpu_board == 0
        assert len(p.uuid) == 36 and not p.uuid.startswith("GPU-")
        assert p.uuid != torch.cuda.get_device_properties(1).uuid
        assert repr(p) == (
            f"_CudaDeviceProperties(name='{p.name}', major=9, minor=0, total_memory=143155MB, "
            f"multi_processor_count=132, uuid={p.uuid}, pci_bus_id={p.pci_bus_id}, "
            f"pci_device_id={p.pci_device_id}, pci_domain_id={p.pci_domain_id}, "
            "L2_cache_size=60MB)"
        )
        assert isinstance(p, torch.cuda._CudaDeviceProperties)
        try:
            p.major = 1
        except AttributeError:
            pass
        else:
            raise AssertionError
        """,
        {"FLAMBEAU_VIRTUAL": "h200:2"},
    )


def test_number_formats_follow_the_capability() -> None:
    assert torch.cuda.is_bf16_supported() is True
    newer = torch.cuda.get_device_capability() >= (8, 0)
    assert torch.cuda.is_bf16_supported(including_emulation=False) is newer
    assert torch.cuda.is_tf32_supported() is newer


def test_architectures_are_what_the_compiler_makes() -> None:
    names = torch.cuda.get_arch_list()
    assert "sm_90" in names
    flags = torch.cuda.get_gencode_flags().split("-gencode ")
    assert flags[0] == ""
    assert len(flags) == len(names) + 1
    assert "compute=compute_90,code=sm_90" in [flag.strip() for flag in flags]


def test_sleep_keeps_the_current_stream_busy() -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cycles = 20_000_000
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    expected = cycles / torch.cuda.get_device_properties(0).clock_rate  # kHz: milliseconds
    assert np.isclose(start.elapsed_time(end), expected, rtol=0.5)
