# SPDX-License-Identifier: Apache-2.0
"""Contexts: made on the devices that are used and nowhere else, whatever others make current."""

import textwrap

import pytest

from support import TWO_VIRTUAL, run_script

WHERE_CONTEXTS_ARE = """
from flambeau.runtime import _state
torch.cuda.init()
def made(): return [_state.has_context(i) for i in range(2)]
assert made() == [False, False], made()
torch.cuda.device_count(), torch.cuda.get_device_name(1), torch.cuda.get_device_properties(0)
torch.cuda.memory_allocated(1), torch.cuda.can_device_access_peer(0, 1)
assert made() == [False, False], made()
x = torch.ones(4, device="cuda:1")
assert (x + 1).sum().item() == 8
with torch.cuda.device_of(x):
    y = x * 2
torch.cuda.synchronize(1)
assert made() == [False, True], made()
torch.ones(1, device="cuda")
assert made() == [True, True], made()
"""


def test_contexts_are_made_on_the_devices_that_are_used():
    run_script(WHERE_CONTEXTS_ARE, TWO_VIRTUAL)


@pytest.mark.gpu
def test_the_driver_agrees_where_contexts_are(two_gpus):
    run_script(
        """
        import ctypes
        cuda = ctypes.CDLL("libcuda.so.1")
        def active(device):
            flags, is_active = ctypes.c_uint(), ctypes.c_int()
            places = ctypes.byref(flags), ctypes.byref(is_active)
            assert cuda.cuDevicePrimaryCtxGetState(device, *places) == 0
            return bool(is_active.value)
        torch.ones(4, device="cuda:1").sum().item()
        assert [active(0), active(1)] == [False, True]
        """
    )


OTHERS = {
    "cupy": """
        import cupy
        def other(i):
            with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
                assert int((cupy.arange(8) + i).sum()) == 28 + 8 * i
    """,
    "numba": """
        import numba.cuda, numpy
        def other(i):
            a = numba.cuda.to_device(numpy.full(8, i))
            assert a.copy_to_host().sum() == 8 * i
            if i == 3:
                numba.cuda.current_context().reset()
    """,
    "torch": """
        import sys
        import torch as pytorch
        def other(i):
            with pytorch.cuda.stream(pytorch.cuda.Stream()):
                assert int((pytorch.arange(8, device="cuda") + i).sum()) == 28 + 8 * i
    """,
    "ctypes": """
        import ctypes
        cuda = ctypes.CDLL("libcuda.so.1")
        made = ctypes.c_void_p()
        def other(i):
            if i == 1:      # a context of its own stays current
                assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0
                assert cuda.cuCtxPushCurrent_v2(made) == 0
            if i == 2:
                assert cuda.cuCtxSetCurrent(None) == 0
    """,
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(OTHERS))
def test_other_libraries_in_the_process_may_switch_contexts(name, gpu):
    if name != "ctypes":
        pytest.importorskip(name)
    run_script(
        "import warnings; warnings.simplefilter('ignore')\n"
        + textwrap.dedent(OTHERS[name])
        + textwrap.dedent(
            """
            import threading
            torch.cuda.init()
            e, s = torch.cuda.Event(), torch.cuda.Stream()
            g = torch.cuda.CUDAGraph()
            a = torch.ones(64, 64, device="cuda")
            with torch.cuda.graph(g):
                b = a @ a + 1
            def work():
                for i in range(5):
                    other(i)
                    x = torch.arange(8, device="cuda")
                    other(i)
                    assert (x + i).sum().item() == 28 + 8 * i
                    other(i)
                    with torch.cuda.stream(s):
                        y = x.float().sort(descending=True)[0]
                        e.record()
                    other(i)
                    e.wait()
                    assert y.tolist()[0] == 7
                    other(i)
                    g.replay()
                    other(i)
                    assert b[0, 0].item() == 65
                    other(i)
                    torch.linalg.solve(a[:2, :2] + torch.eye(2, device="cuda"), x[:2].float())
                    other(i)
                    torch.cuda.empty_cache()
                    torch.cuda.synchronize()
            work()
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            """
        ),
        timeout=60,
    )
