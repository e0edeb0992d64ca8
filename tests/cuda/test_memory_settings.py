# SPDX-License-Identifier: Apache-2.0
"""Allocator options from the environment and at run time."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.runtime import _allocator_settings
from support import run_script

MIB = 1 << 20
NONE = dict.fromkeys(_allocator_settings.VARIABLES)


def run(source: str, **environment: str) -> None:
    run_script(source, {**NONE, **environment})


def test_the_environment_counts() -> None:
    run(
        """
        x = torch.empty(5000, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == 5120
        assert torch.cuda.memory_stats()["max_split_size"] == 41943040
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        assert settings["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:40")
        assert settings["max_split_size"] == 41943040
        assert settings["roundup_power2_divisions"]["1"] == 4
        y = torch.empty((1 << 20) + 1, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == 5120 + 1310720
        """,
        PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40,roundup_power2_divisions:4",
    )


@pytest.mark.parametrize(
    "others",
    [
        {"PYTORCH_ALLOC_CONF": "max_split_size_mb:60"},
        {"PYTORCH_HIP_ALLOC_CONF": "foo:1", "PYTORCH_ALLOC_CONF": "foo:1"},
    ],
)
def test_of_several_variables_one_counts(others: dict[str, str]) -> None:
    run(
        """
        torch.cuda.init()
        assert torch.cuda.memory_stats()["max_split_size"] == 41943040
        """,
        PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40",
        **others,
    )
    run(
        """
        torch.cuda.init()
        assert torch.cuda.memory_stats()["max_split_size"] == -1
        """,
        FLAMBEAU_ALLOC_CONF="large_segment_size_mb:40",
        PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40",
        **others,
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [("foo:1", "ValueError"), ("max_split_size_mb:", "RuntimeError"),
     ("backend:mine", "ValueError")],
)  # fmt: skip
def test_a_wrong_environment_stops_every_use(text: str, kind: str) -> None:
    run(
        f"""
        for call in (torch.cuda.init, lambda: torch.empty(1, device="cuda"),
                     lambda: torch.cuda.memory._set_allocator_settings("")):
            try:
                import warnings
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call()
            except {kind} as error:
                assert "{text.split(":", maxsplit=1)[0]}" in str(error)
            else:
                raise AssertionError
        assert not torch.cuda.is_initialized()
        assert torch.cuda.memory_allocated() == 0
        """,
        PYTORCH_ALLOC_CONF=text,
    )


def test_a_share_of_the_memory_for_every_device() -> None:
    run(
        """
        from flambeau.runtime import _allocator_settings
        import warnings
        c = torch.cuda
        assert c.get_per_process_memory_fraction(0) == 0.25
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _allocator_settings.set_("per_process_memory_fraction:0.5")
        assert "set_per_process_memory_fraction" in str(caught[0].message)
        assert c.get_per_process_memory_fraction(0) == 0.25
        """,
        PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.25",
    )


@pytest.mark.parametrize("value", ["0", "1", "true"])
def test_caching_can_be_turned_off_by_the_environment(value: str) -> None:
    source = """
        import os, warnings
        value = os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.init()
        assert bool(caught) == (value == "true"), caught
        x = torch.empty(1 << 20, device="cuda")
        assert torch.cuda.memory_reserved() == (0 if value == "1" else 20 << 20)
        """
    run(source, PYTORCH_NO_CUDA_MEMORY_CACHING=value)


def test_changing_options_while_running() -> None:
    run(
        """
        import warnings
        warnings.simplefilter("ignore", FutureWarning)
        change = torch.cuda.memory._set_allocator_settings
        torch.cuda.init()
        change("max_split_size_mb:40")
        assert torch.cuda.memory_stats()["max_split_size"] == -1
        x = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_stats()["oversize_allocations.current"] == 1
        for text in ("max_split_size_mb:60,foo:1", "roundup_power2_divisions:3"):
            try:
                change(text)
            except ValueError:
                pass
            else:
                raise AssertionError
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        assert settings["max_split_size"] == 40 << 20    # all or nothing
        change("")
        assert torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"] == -1
        try:
            change("backend:cudaMallocAsync")
        except RuntimeError as error:
            assert "cudaMallocAsync" in str(error)
        else:
            raise AssertionError
        """
    )


def test_changing_options_before_the_first_use() -> None:
    run(
        """
        from flambeau.runtime import _allocator_settings
        _allocator_settings.set_("max_split_size_mb:40")
        assert not torch.cuda.is_initialized()
        torch.cuda.init()
        assert torch.cuda.memory_stats()["max_split_size"] == 41943040
        """
    )


def test_the_old_name_warns() -> None:
    with pytest.warns(FutureWarning, match="_accelerator_setAllocatorSettings"):
        torch.cuda.memory._set_allocator_settings("")
    with pytest.raises(TypeError, match="str"):
        _allocator_settings.set_(None)  # type: ignore[arg-type]


def test_a_class_is_attached_to_a_stream(gpu: object) -> None:
    attach = torch.cuda.memory._set_stream_reserve_class
    stream = torch.cuda.Stream()
    attach(stream, "small")
    attach(stream.cuda_stream, None)
    for wrong in (True, "x", None):
        with pytest.raises(TypeError, match="expected a Stream or its handle"):
            attach(wrong, "small")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a str or None"):
        attach(stream, 3)  # type: ignore[arg-type]
