# SPDX-License-Identifier: Apache-2.0
"""The exception tree and the one place where a status becomes an exception."""

import pickle

import pytest

from flambeau.driver import _table, errors
from flambeau.driver.status import STATUSES, describe, runtime_name


def test_statuses_have_unique_names_and_texts_without_blanks_around():
    assert len({row.name for row in STATUSES.values()}) == len(STATUSES)
    assert all(row.text == row.text.strip() and row.text for row in STATUSES.values())
    assert all(code == row.code for code, row in STATUSES.items())


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "cudaSuccess"),
        (101, "cudaErrorInvalidDevice"),
        (901, "cudaErrorStreamCaptureInvalidated"),
    ],
)
def test_runtime_names(code, name):
    assert runtime_name(code) == name


def test_unknown_status_is_still_described():
    assert describe(12345).code == 12345
    assert "12345" in describe(12345).name


def test_success_raises_nothing():
    assert _table.check_status(0) is None


def test_failure_carries_code_text_and_name():
    with pytest.raises(
        errors.AcceleratorError, match="CUDA error: invalid device ordinal"
    ) as caught:
        _table.check_status(101)
    assert caught.value.error_code == 101
    assert "CUDA_ERROR_INVALID_DEVICE" in str(caught.value)
    assert "asynchronously" not in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


def test_faults_say_that_they_may_come_late_unless_launches_block(monkeypatch):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    assert "asynchronously reported" in str(errors.from_status(700))
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "asynchronously reported" not in str(errors.from_status(700))


def test_out_of_memory_has_its_own_class():
    error = errors.from_status(2)
    assert type(error) is errors.OutOfMemoryError
    assert "CUDA out of memory" in str(error)


def test_detail_is_part_of_the_message():
    assert "block (1, 0, 0)" in str(errors.from_status(700, "block (1, 0, 0) read past the end"))


@pytest.mark.parametrize(
    "error",
    [
        errors.AcceleratorError("text", 700),
        errors.CudaError(2),
        errors.CompilationError("text", "log"),
        errors.OutOfMemoryError("text"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_exceptions_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_cuda_error_text():
    assert str(errors.CudaError(2)) == "out of memory (2)"


def test_the_tree_in_the_docstring_names_every_class():
    for name in errors.__all__:
        thing = getattr(errors, name)
        if isinstance(thing, type):
            assert issubclass(thing, errors.FlambeauError)
            assert name in (errors.__doc__ or "")
