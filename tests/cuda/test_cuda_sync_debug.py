# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "called a synchronizing CUDA operation"


def set_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first call announces a prototype
        torch.cuda.set_sync_debug_mode(mode)


@pytest.fixture(autouse=True)
def _silent_afterwards() -> Iterator[None]:
    yield
    set_mode(0)


def test_modes_by_number_and_by_name() -> None:
    for number, name in enumerate(("default", "warn", "error")):
        set_mode(number)
        assert torch.cuda.get_sync_debug_mode() == number
        set_mode("default")
        set_mode(name)
        assert torch.cuda.get_sync_debug_mode() == number


@pytest.mark.parametrize("mode", ["x", "", 3, -1])
def test_other_values_are_refused(mode: object) -> None:
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        torch.cuda.set_sync_debug_mode(mode)


@pytest.mark.parametrize("mode", [True, False, 1.0, None])
def test_other_types_are_refused(mode: object) -> None:
    with pytest.raises(RuntimeError, match="invalid argument to set_sync_debug_mode"):
        torch.cuda.set_sync_debug_mode(mode)


def test_the_first_call_says_that_it_is_a_prototype() -> None:
    run_script("""
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode(1)
            torch.cuda.set_sync_debug_mode(0)
        assert ["prototype" in str(w.message) for w in seen] == [True]
        assert seen[0].filename == "<string>", seen[0].filename
    """)


SYNCHRONIZING = {
    "item": lambda x, p: x[0].item(),
    "cpu": lambda x, p: x.cpu(),
    "tolist": lambda x, p: x.tolist(),
    "bool": lambda x, p: bool(x[0]),
    "repr": lambda x, p: repr(x),
    "copy from pinned memory": lambda x, p: x.copy_(p),
    "copy to pinned memory": lambda x, p: p.copy_(x),
    "tensor from a list": lambda x, p: torch.tensor([1.0, 2.0], device="cuda"),
    "Stream.synchronize": lambda x, p: torch.cuda.current_stream().synchronize(),
    "nonzero": lambda x, p: x.nonzero(),
    "selection by a mask": lambda x, p: x[x > 0],
    "masked_select": lambda x, p: x.masked_select(x > 0),
    "unique": lambda x, p: x.unique(),
    "bincount": lambda x, p: torch.bincount(x.to(torch.int64)),
    "repeat_interleave": lambda x, p: x.repeat_interleave(x.to(torch.int64)),
}
SILENT = {
    "cuda.synchronize": lambda x, p: torch.cuda.synchronize(),
    "Event.synchronize": lambda x, p: torch.cuda.current_stream().record_event().synchronize(),
    "Stream.query": lambda x, p: torch.cuda.current_stream().query(),
    "empty_cache": lambda x, p: torch.cuda.empty_cache(),
    "mem_get_info": lambda x, p: torch.cuda.mem_get_info(),
    "arithmetic": lambda x, p: x + 1,
    "copy in without blocking": lambda x, p: x.copy_(p, non_blocking=True),
    "copy out without blocking": lambda x, p: p.copy_(x, non_blocking=True),
    "full": lambda x, p: torch.full((3,), 2.0, device="cuda"),
    "Event.query": lambda x, p: torch.cuda.current_stream().record_event().query(),
    "randperm": lambda x, p: torch.randperm(9, device="cuda"),
    "multinomial": lambda x, p: torch.multinomial(x, 2),
    "assignment by a mask": lambda x, p: x.__setitem__(x > 0, 1.0),
    "assignment of a number": lambda x, p: x.__setitem__(0, 3.0),
    "to the host without blocking": lambda x, p: x.to("cpu", non_blocking=True),
}


@pytest.fixture
def operands() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.ones(4, device="cuda")
    return x, torch.ones(4).pin_memory()


@pytest.mark.parametrize("name", SYNCHRONIZING)
def test_a_hidden_wait_is_an_error_or_a_warning(name: str, operands: tuple) -> None:
    set_mode("error")
    with pytest.raises(RuntimeError, match=TEXT):
        SYNCHRONIZING[name](*operands)
    set_mode("warn")
    with pytest.warns(UserWarning, match=TEXT):
        SYNCHRONIZING[name](*operands)
    set_mode("default")
    SYNCHRONIZING[name](*operands)


@pytest.mark.parametrize("name", SILENT)
def test_what_waits_openly_or_not_at_all_is_silent(name: str, operands: tuple) -> None:
    set_mode("error")
    SILENT[name](*operands)
    set_mode("default")
    torch.cuda.synchronize()


def test_the_message_shows_the_line() -> None:
    x = torch.ones(1, device="cuda")
    set_mode("error")
    with pytest.raises(RuntimeError, match=r"test_cuda_sync_debug\.py:\d+ in `x\.item\(\)`"):
        x.item()


def test_a_guard_of_one_thread_hears_of_explicit_waits_too() -> None:
    x = torch.ones(1, device="cuda")
    with torch.cuda.expect_no_sync():
        y = x + 1
        with pytest.raises(RuntimeError, match=r"torch\.cuda\.synchronize"):
            torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match=TEXT):
            y.item()
    assert y.item() == 2.0
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_guard_can_record_every_wait_with_its_stack() -> None:
    x = torch.ones(1, device="cuda")
    with torch.cuda.expect_no_sync("record") as guard:
        x.item()
        torch.cuda.synchronize()
    assert len(guard.found) == 2
    assert guard.found[1].operation == "torch.cuda.synchronize"
    assert all(__file__ in found.stack for found in guard.found)


def test_a_guard_can_warn_and_the_inner_one_counts() -> None:
    x = torch.ones(1, device="cuda")
    outer, inner = torch.cuda.expect_no_sync(), torch.cuda.expect_no_sync("warn")
    with outer, inner, pytest.warns(UserWarning, match=TEXT):
        x.item()
    with pytest.raises(ValueError, match="action is one of"):
        torch.cuda.expect_no_sync("shout")


def test_a_guard_concerns_its_thread_alone() -> None:
    x = torch.ones(1, device="cuda")
    values: list[float] = []
    with torch.cuda.expect_no_sync():
        thread = threading.Thread(target=lambda: values.append(x.item()))
        thread.start()
        thread.join()
    assert values == [1.0]
