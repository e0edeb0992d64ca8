# SPDX-License-Identifier: Apache-2.0
"""The public face of virtual GPUs."""

from __future__ import annotations

import dataclasses
import os

import pytest

from driver.virtual.scripts import run
from flambeau import virtual

if os.environ.get("FLAMBEAU_TEST_DEVICE", "virtual") == "real":
    pytest.skip("virtual GPUs only", allow_module_level=True)


def test_names() -> None:
    assert virtual.__all__ == sorted(virtual.__all__, key=lambda n: (n[0].islower(), n))
    assert all(getattr(virtual, name).__module__ == "flambeau.virtual" for name in virtual.__all__)


def test_models_are_read_only() -> None:
    models = virtual.models()
    assert models["h200"].name == "Virtual NVIDIA H200"
    with pytest.raises(TypeError):
        models["mine"] = models["h200"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        models["h200"].name = "mine"  # type: ignore[misc]


def test_enable_needs_no_variable() -> None:
    run(
        """
        del os.environ["FLAMBEAU_VIRTUAL"]
        assert not virtual.is_enabled()
        virtual.enable("l4", 3)
        assert virtual.is_enabled() and driver.peek() is None
        start()
        assert virtual.is_enabled()
        assert (calls.device_count(), calls.device_name(2)) == (3, "Virtual NVIDIA L4")
        virtual.enable("l4", 3)
        try:
            virtual.enable("h200")
        except RuntimeError as error:
            assert "already runs on 3 x Virtual NVIDIA L4" in str(error)
        else:
            raise AssertionError("the machine is running")
        """
    )


def test_enable_wins_over_the_variable_and_over_itself() -> None:
    run(
        """
        driver.current()
        virtual.enable("a100", 2)
        virtual.enable("t4")
        start()
        assert (calls.device_count(), calls.device_name(0)) == (1, "Virtual Tesla T4")
        """,
        machine="h100:4",
    )


def test_a_model_of_one_s_own() -> None:
    run(
        """
        import dataclasses
        mine = dataclasses.replace(virtual.models()["h200"], name="Virtual Pocket",
                                   multiprocessors=2, memory_bytes=64 << 20, context_bytes=0)
        virtual.enable(mine)
        start()
        assert calls.device_name(0) == "Virtual Pocket"
        assert calls.device_attribute(16, 0) == 2
        assert calls.mem_get_info() == (64 << 20, 64 << 20)
        calls.mem_alloc(64 << 20)
        assert status_of(calls.mem_alloc, 1) == 2
        """
    )


@pytest.mark.parametrize(
    ("model", "count", "says"),
    [("v100", 1, "no device model"), ("h200", 0, "1 to 64"), ("h200", True, "1 to 64")],
)
def test_what_enable_refuses(model: str, count: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        virtual.enable(model, count)


def test_a_bad_variable_says_what_there_is() -> None:
    done = run("driver.current()", machine="v100:2", check=False)
    assert "ValueError" in done.stderr
    assert "there is no device model 'v100'" in done.stderr
    done = run("driver.current()", FLAMBEAU_SCHEDULE="lifo", check=False)
    assert "there is no schedule policy 'lifo'" in done.stderr


def test_the_schedule_variable() -> None:
    script = """
        start()
        virtual.set_progress(False)
        streams, ran = [calls.stream_create() for _ in range(2)], []
        for index, stream in enumerate(streams):
            calls.launch_host_function(stream, lambda index=index: ran.append(index))
        calls.ctx_synchronize()
        print(ran)
    """
    assert run(script).stdout == "[0, 1]\n"
    assert run(script, FLAMBEAU_SCHEDULE="adversarial").stdout == "[1, 0]\n"


def test_a_schedule_ends_with_its_block() -> None:
    run(
        """
        from flambeau.driver.virtual import driver as chosen
        with virtual.schedule("random:3"):
            assert str(chosen.requested_schedule()) == "random:3"
            try:
                virtual.set_schedule("nothing")
            except ValueError:
                pass
            else:
                raise AssertionError
            with virtual.schedule("adversarial"):
                pass
            assert str(chosen.requested_schedule()) == "random:3"
        assert chosen.requested_schedule() is None
        """
    )


def test_nothing_is_loaded_by_importing_it() -> None:
    run(
        """
        assert "numpy" not in sys.modules and "llvmlite" not in sys.modules
        """
    )
