# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's driver: found or missed in words, modules, products, figures."""

import ctypes
import re

import pytest

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError, DriverNotFoundError
from flambeau.driver.nvidia import driver as nvidia


def test_a_missing_library_is_named_with_the_ways_out(monkeypatch):
    monkeypatch.setattr(nvidia, "LIBRARY", "libcuda-that-is-not-there.so.1")
    with pytest.raises(
        DriverNotFoundError, match="Found no NVIDIA driver on your system"
    ) as caught:
        nvidia.NvidiaDriver().table()
    assert "libcuda-that-is-not-there.so.1" in str(caught.value)
    assert "FLAMBEAU_VIRTUAL" in str(caught.value)


def test_a_library_without_the_entry_lookup_is_called_too_old(monkeypatch):
    monkeypatch.setattr(nvidia, "LIBRARY", "libm.so.6")
    with pytest.raises(DriverNotFoundError, match="too old"):
        nvidia.NvidiaDriver().table()


@pytest.fixture
def real():
    import flambeau as torch
    from flambeau import driver

    torch.cuda.init()
    torch.cuda.set_device(0)  # modules are loaded into the current context
    return driver.current()


@pytest.mark.gpu
def test_the_code_target_is_the_architecture(real):
    import flambeau as torch

    major, minor = torch.cuda.get_device_capability(0)
    target = real.code_target(0)
    assert (target.kind, target.arch) == ("cubin", f"sm_{major}{minor}")


@pytest.mark.gpu
def test_bad_code_is_refused_with_what_the_driver_says(real):
    with pytest.raises(AcceleratorError) as caught:
        real.modules.load(b".version 7.0\n.target sm_70\nnonsense", 0)
    assert caught.value.error_code == 218
    assert "nonsense" in str(caught.value) or "syntax" in str(caught.value).lower()


@pytest.mark.gpu
def test_modules_have_functions_and_variables(real):
    ptx = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry nothing() { ret; }
"""
    module = real.modules.load(ptx, 0)
    assert real.modules.function(module, "nothing") != 0
    pointer, size = real.modules.global_pointer(module, "counter")
    assert pointer != 0
    assert size == 4
    with pytest.raises(AcceleratorError) as caught:
        real.modules.function(module, "absent")
    assert caught.value.error_code == 500
    real.modules.unload(module)


@pytest.mark.gpu
def test_management_figures_are_plausible(real):
    figures = real.management
    assert figures.device_count() >= 1
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", figures.uuid(0))
    assert 0 <= figures.utilization(0) <= 100
    assert 0 <= figures.memory_utilization(0) <= 100
    assert figures.used_bytes(0) > 0
    assert 0 < figures.temperature(0) < 120
    assert figures.power_draw(0) > 1000
    assert figures.clock_rate(0) > 0
    assert isinstance(figures.processes(0), list)


@pytest.mark.gpu
def test_other_libraries_may_switch_contexts(real):
    import flambeau as torch

    x = torch.arange(8, device="cuda")
    cuda = ctypes.CDLL(nvidia.LIBRARY)
    assert cuda.cuCtxSetCurrent(None) == 0
    assert (x + 1).tolist() == list(range(1, 9))
    assert _table.check_status(0) is None
