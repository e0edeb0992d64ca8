# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau.testing import assert_close


def differ(actual: Any, expected: Any, *phrases: str, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected, **options)
    text = str(caught.value)
    for phrase in phrases:
        assert phrase in text, text
    return text


@pytest.mark.parametrize(
    ("name", "rtol", "atol"),
    [
        ("float16", 1e-3, 1e-5),
        ("bfloat16", 1.6e-2, 1e-5),
        ("float32", 1.3e-6, 1e-5),
        ("float64", 1e-7, 1e-7),
        ("complex64", 1.3e-6, 1e-5),
        ("complex128", 1e-7, 1e-7),
    ],
)
def test_tolerances_by_dtype(name: str, rtol: float, atol: float) -> None:
    dtype = getattr(torch, name)

    def of(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.float64).to(dtype)

    step = torch.finfo(dtype).eps * 1024
    inside = int((rtol * 1024 + atol) / step)
    assert_close(of(1024 + inside * step), of(1024))
    differ(of(1024 + (inside + 2) * step), of(1024), "not close!")
    assert_close(of(atol * 0.9), of(0))
    differ(of(atol * 1.2), of(0), f"(up to {atol:g} allowed)")


def test_integers_and_bools_are_exact() -> None:
    assert_close(torch.tensor([2**62, -1]), torch.tensor([2**62, -1]))
    differ(torch.tensor([2**62]), torch.tensor([2**62 + 1]), "Tensor-likes are not equal!", "1 at")
    differ(torch.tensor([True]), torch.tensor([False]), "not equal!", "expected False, got True")
    assert_close(torch.tensor([1, 5]), torch.tensor([1, 8]), rtol=0, atol=3)
    differ(torch.tensor([200, 5]).to(torch.uint8), torch.tensor([3, 5]).to(torch.uint8), "197")


def test_the_message_says_how_many_how_far_and_where() -> None:
    text = differ(
        torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        torch.tensor([[1.0, 2.5, 3.0], [4.0, 5.0, 9.0]]),
        "Tensor-likes are not close!",
        "Mismatched elements: 2 / 6 (33.3%)",
        "Greatest absolute difference: 3.0 at index (1, 2) (up to 1e-05 allowed)",
        "Greatest relative difference: 0.33333333333333",
        "At index (0, 1): expected 2.5, got 2.0",
        "At index (1, 2): expected 9.0, got 6.0",
    )
    assert "more" not in text
    differ(torch.zeros(100), torch.ones(100), "(100.0%)", "and 95 more")


def test_tensors_without_dimensions_and_numbers() -> None:
    phrases = ("Scalars are not close!", "Expected 2.0 but got 1.0.", "Absolute difference: 1.0")
    differ(torch.tensor(1.0), torch.tensor(2.0), *phrases)
    differ(1.0, 2.0, *phrases)
    assert_close(1.0, 1.0 + 1e-8)
    assert_close(1, 1)
    differ(1, 2, "Scalars are not equal!")
    differ(1, 1.0, "The (d)types do not match: <class 'int'> != <class 'float'>.")
    assert_close(1, 1.0, check_dtype=False)
    differ(True, False, "Booleans mismatch: True is not False")
    assert_close(1 + 1j, 1 + 1j)
    differ(0.0, 1.0, "Relative difference: 1.0")
    differ(1.0, 0.0, "Relative difference: inf")


def test_nan_and_infinity() -> None:
    nan, inf = float("nan"), float("inf")
    differ(torch.tensor([nan]), torch.tensor([nan]), "Mismatched elements: 1 / 1")
    assert_close(torch.tensor([nan, 1.0]), torch.tensor([nan, 1.0]), equal_nan=True)
    differ(torch.tensor([nan, 1.0]), torch.tensor([1.0, nan]), "2 / 2", equal_nan=True)
    assert_close(torch.tensor([inf, -inf]), torch.tensor([inf, -inf]))
    for a, b in ((inf, -inf), (inf, 1.0), (1.0, inf)):
        differ(torch.tensor([a]), torch.tensor([b]), "not close!")
        differ(a, b, "Scalars are not close!")
    differ(nan, nan, "not close!")
    assert_close(nan, nan, equal_nan=True)


def test_attributes_are_compared(gpu: Any) -> None:
    x = torch.ones(2, 2)
    phrase = "The values for attribute '{}' do not match: "
    differ(x, torch.ones(2), phrase.format("shape"))
    differ(x, x.double(), phrase.format("dtype") + "torch.float32 != torch.float64.")
    differ(x, x.to(gpu), phrase.format("device") + "cpu != cuda:0.")
    differ(x, x.t().contiguous().t(), phrase.format("stride()"), check_stride=True)
    assert_close(x, x.double(), check_dtype=False)
    assert_close(x, x.to(gpu), check_device=False)
    assert_close(x, x.t().contiguous().t())


def test_cuda_tensors_of_each_kind(gpu: Any) -> None:
    for dtype in (torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.complex64):
        x = torch.tensor([1, 0, 1]).to(dtype).to(gpu)
        assert_close(x, x.clone())
    differ(torch.ones(2, device=gpu), torch.zeros(2, device=gpu), "Mismatched elements: 2 / 2")


def test_containers_say_where_they_differ() -> None:
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert_close({"a": [one, (two, 3)]}, {"a": [one, (two, 3)]})
    differ({"a": [one, one]}, {"a": [one, two]}, "The failure occurred for item ['a'][1]")
    differ([one], [one, two], "The length of the sequences mismatch: 1 != 2")
    differ({"a": 1}, {"b": 1}, "Missing keys in the actual mapping: ['b']", "Additional keys")
    assert_close(None, None)
    differ(None, 1, "None mismatch: None is not 1")
    assert_close([], [])


def test_numpy_arrays() -> None:
    assert_close(np.ones(3), np.ones(3))
    differ(np.ones(3), np.zeros(3), "Tensor-likes are not close!")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [("a", "a"), (1, torch.tensor(1)), (torch.ones(1), np.ones(1)), ([1], {0: 1}), (b"", b"")],
)
def test_what_is_not_compared(actual: Any, expected: Any) -> None:
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type"):
        assert_close(actual, expected)


def test_subclasses() -> None:
    class Marked(torch.Tensor):
        pass

    x = torch.ones(2)
    assert_close(x.as_subclass(Marked), x)
    with pytest.raises(TypeError):
        assert_close(x.as_subclass(Marked), x, allow_subclasses=False)


def test_tolerances_come_in_pairs() -> None:
    x = torch.ones(1)
    with pytest.raises(ValueError, match=r"must be either specified or omitted.*got rtol without"):
        assert_close(x, x, rtol=1e-3)
    with pytest.raises(ValueError, match="got atol without rtol"):
        assert_close(x, x, atol=1e-3)
    with pytest.raises(ValueError, match="tolerances are at least 0"):
        assert_close(x, x, rtol=-1, atol=0)


def test_a_message_of_one_s_own() -> None:
    differ(1, 2, "mine", msg="mine")
    differ(1, 2, "mine: Scalars are not equal!", msg="mine: {}".format)


@given(
    actual=st.floats(allow_nan=False),
    expected=st.floats(allow_nan=False),
    rtol=st.floats(0, 1),
    atol=st.floats(0, 1e300),
)
def test_as_numpy_s_isclose(actual: float, expected: float, rtol: float, atol: float) -> None:
    with np.errstate(all="ignore"):
        wanted = bool(np.isclose(actual, expected, rtol=rtol, atol=atol))
    for make in (float, lambda x: torch.tensor([x], dtype=torch.float64)):
        arguments = (make(actual), make(expected))
        if wanted:
            assert_close(*arguments, rtol=rtol, atol=atol)
            continue
        with pytest.raises(AssertionError, match=r"not close!|not equal!"):
            assert_close(*arguments, rtol=rtol, atol=atol)
