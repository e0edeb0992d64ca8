# SPDX-License-Identifier: Apache-2.0
"""What CUPTI's records become, shown on records that have their fields."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from flambeau.driver.nvidia import cupti

KINDS = SimpleNamespace(CONCURRENT_KERNEL=10, MEMCPY=1, MEMCPY2=22, MEMSET=2, DRIVER=4, RUNTIME=5)
NAMES = {(1, 3): "cuLaunchKernel", (1, 4): "cuMemcpyDtoHAsync_v2", (1, 5): "cuDeviceGetAttribute"}
NAMES |= {(2, 6): "cudaLaunchKernelExC_v11060", (2, 7): "cudaGetDevice_v3020"}


class Library:
    """The part of the package ``cupti-python`` that is used."""

    ActivityKind = KINDS
    CallbackDomain = SimpleNamespace(DRIVER_API=1, RUNTIME_API=2)
    cuptiError = type("cuptiError", (Exception,), {})  # noqa: N815 - the package's name

    def __init__(self, records=()):
        self.records = records
        self.enabled = set()

    def get_callback_name(self, domain, number):
        return NAMES[domain, number]

    def get_timestamp(self):
        return 1_000

    def activity_register_callbacks(self, requested, completed):
        assert requested()[0] >= 1 << 20
        self.completed = completed

    def activity_enable(self, kind):
        if kind == KINDS.MEMSET and self.records is None:
            raise self.cuptiError("insufficient privileges")
        self.enabled.add(kind)

    def activity_disable(self, kind):
        self.enabled.discard(kind)

    def activity_flush_all(self, flag):
        self.completed(list(self.records))


def collect(*records):
    activity = cupti.NvidiaActivity()
    activity._cupti = Library(records)
    activity._trouble = ""
    activity.start()
    assert activity._cupti.enabled == set(vars(KINDS).values())
    found = activity.stop()
    assert activity._cupti.enabled == set()
    return found


def call(kind, number, thread, start=5):
    return SimpleNamespace(kind=kind, cbid=number, correlation_id=9, thread_id=thread, start=start,
                           end=start + 2)  # fmt: skip


def transfer(kind, **more):
    common = {"device_id": 0, "context_id": 1, "stream_id": 7, "correlation_id": 9, "start": 20,
              "end": 30, "graph_id": 0, "graph_node_id": 0, "bytes": 64}  # fmt: skip
    return SimpleNamespace(kind=kind, **{**common, **more})


def test_kernels_of_graphs_have_the_id_that_annotations_have():
    record = transfer(
        KINDS.CONCURRENT_KERNEL, name="f", queued=3, grid_x=2, grid_y=1, grid_z=1, block_x=64,
        block_y=1, block_z=1, dynamic_shared_memory=16, static_shared_memory=8,
        registers_per_thread=24, graph_id=5, graph_node_id=5 << 32 | 3,
    )  # fmt: skip
    (work,) = collect(record).work
    assert (work.kind, work.name, work.grid, work.block) == ("kernel", "f", (2, 1, 1), (64, 1, 1))
    assert work.tools_id == 5 << 32 | 3
    assert (work.static_shared, work.dynamic_shared, work.registers) == (8, 16, 24)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("mul_kernel", "mul_kernel"),
        ("_Z5scaleIfEvPT_", "void scale<float>(float*)"),
        ("_ZN2cu4copyILi3EEEvv", "void cu::copy<3>()"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_names_of_kernels_are_as_in_their_source(symbol, name):
    assert cupti._plain(symbol) == name


def test_copies_say_from_where_to_where():
    copies = [
        transfer(KINDS.MEMCPY, copy_kind=1, src_kind=2, dst_kind=3),
        transfer(KINDS.MEMCPY, copy_kind=2, src_kind=3, dst_kind=1, start=40, end=50),
        transfer(KINDS.MEMCPY2, copy_kind=10, src_kind=3, dst_kind=3, start=60, end=70),
        transfer(KINDS.MEMSET, start=80, end=90),
    ]
    assert [(w.kind, w.name, w.size) for w in collect(*reversed(copies)).work] == [
        ("memcpy", "HtoD (Pinned -> Device)", 64),
        ("memcpy", "DtoH (Device -> Pageable)", 64),
        ("memcpy", "PtoP (Device -> Device)", 64),
        ("memset", "", 64),
    ]


def test_calls_have_plain_names_and_the_systems_thread():
    own = threading.get_ident() & 0xFFFFFFFF
    found = collect(
        call(KINDS.DRIVER, 3, own),
        call(KINDS.DRIVER, 4, own, 8),
        call(KINDS.DRIVER, 5, own, 9),
        call(KINDS.RUNTIME, 6, 123, 12),
        call(KINDS.RUNTIME, 7, own, 13),
    )
    assert [(c.name, c.library, c.thread) for c in found.calls] == [
        ("cuLaunchKernel", "driver", threading.get_native_id()),
        ("cuMemcpyDtoHAsync", "driver", threading.get_native_id()),
        ("cudaLaunchKernelExC", "runtime", 123),
    ]


def test_a_refusal_says_why():
    activity = cupti.NvidiaActivity()
    activity._cupti = Library(None)
    activity._trouble = ""
    with pytest.raises(RuntimeError, match=r"insufficient privileges.*ERR_NVGPUCTRPERM"):
        activity.start()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupti", None)
    activity = cupti.NvidiaActivity()
    assert "pip install 'flambeau[profile]'" in activity.unavailable()
    with pytest.raises(RuntimeError, match="CUPTI"):
        activity.start()
    assert activity.now() > 1 << 60
