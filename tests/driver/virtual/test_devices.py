# SPDX-License-Identifier: Apache-2.0
"""Devices: names, figures, which are visible, contexts, management figures."""

from __future__ import annotations

from driver.virtual.scripts import run


def test_before_initialisation() -> None:
    run("""
        driver.current()
        for call, args in ((calls.device_count, ()), (calls.mem_alloc, (1,)),
                           (calls.primary_ctx_retain, (0,)), (calls.ctx_synchronize, ())):
            assert status_of(call, *args) == 3
        assert calls.driver_version() == 13050
        assert status_of(calls.init, 1) == 1
    """)


def test_an_h200() -> None:
    run("""
        start()
        assert calls.device_count() == 1
        assert calls.device_name(0) == "Virtual NVIDIA H200"
        assert calls.device_total_mem(0) == 150109880320
        expected = {16: 132, 75: 9, 76: 0, 39: 2048, 1: 1024, 10: 32, 82: 65536, 8: 49152,
                    97: 232448, 81: 233472, 38: 62914560, 13: 1980000, 36: 3201000, 37: 6016,
                    40: 3, 34: 6, 33: 0, 50: 0}
        assert {a: calls.device_attribute(a, 0) for a in expected} == expected
        assert status_of(calls.device_attribute, 0, 0) == 1
        assert status_of(calls.device_attribute, 16, 1) == 101
        assert status_of(calls.device_name, -1) == 101
    """)


def test_every_model_starts() -> None:
    run("""
        for name, model in virtual.models().items():
            virtual.enable(name)
            start()
            assert calls.device_name(0) == model.name
            assert calls.device_attribute(16, 0) == model.multiprocessors
            assert tuple(calls.device_attribute(a, 0) for a in (75, 76)) == model.capability
            calls.mem_free(calls.mem_alloc(1 << 30))
            virtual.reset()
    """)


def test_visible_devices() -> None:
    run(
        """
        start(2)
        management = driver.current().management
        assert calls.device_count() == 2
        assert management.device_count() == 4
        names = ["GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
                 for h in (calls.device_uuid(i).hex() for i in range(2))]
        assert names == [management.uuid(3), management.uuid(1)]
        assert calls.device_attribute(34, 0) == 9
        """,
        machine="h100:4",
        CUDA_VISIBLE_DEVICES="3,1",
    )


def test_no_device_is_visible() -> None:
    run("driver.current(); assert status_of(calls.init) == 100", CUDA_VISIBLE_DEVICES="")


def test_the_variable_is_read_when_the_driver_starts() -> None:
    run(
        """
        driver.current()
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        start()
        assert calls.device_count() == 1
        """,
        machine="h200:2",
    )


def test_contexts() -> None:
    run(
        """
        driver.current()
        calls.init()
        assert not calls.primary_ctx_active(0)
        assert calls.ctx_get_current() == 0
        context = calls.primary_ctx_retain(0)
        assert calls.primary_ctx_retain(0) == context
        assert calls.primary_ctx_active(0) and not calls.primary_ctx_active(1)
        calls.ctx_set_current(context)
        calls.mem_alloc(1 << 20)
        stream = calls.stream_create()
        calls.primary_ctx_release(0)
        assert calls.primary_ctx_active(0)
        calls.primary_ctx_release(0)
        assert not calls.primary_ctx_active(0)
        assert status_of(calls.primary_ctx_release, 0) == 201
        assert status_of(calls.mem_alloc, 1) == 201
        assert status_of(calls.stream_query, stream) == 400
        assert status_of(calls.ctx_set_current, context) == 201
        calls.ctx_set_current(calls.primary_ctx_retain(0))
        free, total = calls.mem_get_info()
        assert total - free < 1 << 30
        """,
        machine="h200:2",
    )


def test_management_figures() -> None:
    run(
        """
        management = driver.current().management
        assert management.used_bytes(0) == 0 and management.processes(0) == []
        start()
        own = management.used_bytes(0)
        pointer = calls.mem_alloc(1 << 30)
        assert management.used_bytes(0) == own + (1 << 30)
        assert management.used_bytes(1) == 0
        assert [p.pid for p in management.processes(0)] == [os.getpid()]
        free, total = calls.mem_get_info()
        assert abs(total - free - management.used_bytes(0)) < 2 << 20
        assert management.clock_rate(0) == 1980
        assert management.utilization(0) == management.memory_utilization(0) == 0
        assert 0 < management.temperature(0) < 100 and management.power_draw(0) > 0
        try:
            management.uuid(2)
        except IndexError as error:
            assert "no GPU 2" in str(error)
        else:
            raise AssertionError("there are two GPUs")
        """,
        machine="h200:2",
    )


def test_what_the_driver_offers() -> None:
    run("""
        current = driver.current()
        assert current.name == "virtual"
        assert current.code_target(0).kind == "ptx" and current.code_target(0).arch == "compute_80"
        assert current.supports("green_contexts") and not current.supports("programmatic_launch")
        from flambeau.driver.contract import Driver
        assert isinstance(current, Driver)
    """)
