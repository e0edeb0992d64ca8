# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import flambeau as torch


def contents(storage: torch.UntypedStorage) -> list[int]:
    made = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return list(made.tolist())


def test_a_number_makes_so_many_bytes() -> None:
    storage = torch.UntypedStorage(8)
    assert (storage.nbytes(), storage.device.type, storage.resizable()) == (8, "cpu", True)
    assert len(torch.UntypedStorage()) == 0
    assert len(torch.UntypedStorage(torch.UntypedStorage(3).nbytes())) == 3


def test_a_sequence_gives_the_bytes() -> None:
    assert contents(torch.UntypedStorage([1, 2, 300])) == [1, 2, 44]
    assert contents(torch.UntypedStorage((7,))) == [7]
    assert len(torch.UntypedStorage([])) == 0


def test_on_a_device(gpu: torch.device) -> None:
    storage = torch.UntypedStorage([1, 2, 3], device=gpu)
    assert storage.is_cuda
    assert contents(storage) == [1, 2, 3]
    before = torch.cuda.memory_allocated()
    large = torch.UntypedStorage(4096, device="cuda")
    assert torch.cuda.memory_allocated() == before + 4096
    del large
    assert torch.cuda.memory_allocated() == before


def test_making_it_again_lets_go_of_the_first(gpu: torch.device) -> None:
    before = torch.cuda.memory_allocated()
    storage = torch.UntypedStorage(512, device=gpu)
    storage.__init__(1024, device=gpu)  # type: ignore[misc]
    assert storage.nbytes() == 1024
    assert torch.cuda.memory_allocated() == before + 1024


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (-1, "negative number"),
        (1.5, "Expected a sequence type"),
        (True, "Expected a sequence type"),
        ("ab", "one of the items was of type str instead of int"),
        ([1, "a"], "one of the items was of type str instead of int"),
    ],
)
def test_what_is_no_size_and_no_sequence_is_refused(wrong: object, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        torch.UntypedStorage(wrong)  # type: ignore[arg-type]
