# SPDX-License-Identifier: Apache-2.0
"""TunableOp: switches, results, files, offline tuning."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends import _precision
from flambeau.cuda import _tunable_keys as keys
from flambeau.cuda import _tunable_tuning, tunable
from flambeau.cuda._tunable_results import numbered, results
from flambeau.cuda._tunable_settings import settings
from flambeau.driver.libraries import Algorithm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: Any) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    settings.reset()
    results.reset()
    tunable.set_max_tuning_iterations(5)
    tunable.set_rotating_buffer_size(0)
    yield
    monkeypatch.undo()
    settings.reset()
    results.reset()
    tunable.apply()


def _product(m: int = 64, k: int = 32, n: int = 48, **options: Any) -> torch.Tensor:
    a = torch.ones(m, k, device="cuda", **options)
    return a @ torch.ones(k, n, device="cuda", **options)


def test_switches_at_first() -> None:
    settings.reset()
    assert not tunable.is_enabled()
    assert tunable.tuning_is_enabled()
    assert not tunable.record_untuned_is_enabled()
    assert not tunable.wildcard_fallback_is_enabled()
    assert tunable.get_max_tuning_duration() == 30
    assert tunable.get_max_tuning_iterations() == 100
    assert tunable.get_cublaslt_requested_algo_count() == 8
    assert tunable.get_filename() == ""
    assert tunable.get_results() == ()


def test_limits() -> None:
    tunable.set_max_tuning_duration(-5)
    tunable.set_max_tuning_iterations(-1)
    tunable.set_cublaslt_requested_algo_count(0)
    assert tunable.get_max_tuning_duration() == 0
    assert tunable.get_max_tuning_iterations() == 0
    assert tunable.get_cublaslt_requested_algo_count() == 1
    tunable.set_rotating_buffer_size(5)
    assert tunable.get_rotating_buffer_size() == 5242880
    tunable.set_rotating_buffer_size(0)
    assert tunable.get_rotating_buffer_size() == 0
    tunable.set_rotating_buffer_size(-1)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    assert tunable.get_rotating_buffer_size() == l2
    with pytest.raises(RuntimeError, match="Numerical check tolerances must be positive"):
        tunable.set_numerical_check_tolerances(True, atol=0.0)


def test_names_of_products() -> None:
    tunable.enable()
    _product()
    torch.ones(3, 64, 32, device="cuda") @ torch.ones(3, 32, 48, device="cuda")
    torch.ones(64, 32, device="cuda") @ torch.ones(16, 32, device="cuda").t()
    _product(dtype=torch.bfloat16)
    x, weight = torch.ones(64, 32, device="cuda"), torch.ones(16, 32, device="cuda")
    assert torch.nn.functional.linear(x, weight, weight[:, 0].clone())[0, 0].item() == 33.0
    named = [(operation, parameters) for operation, parameters, *_ in tunable.get_results()]
    assert named == [
        ("GemmTunableOp_float_NN", "nn_48_64_32_ld_48_32_48"),
        ("GemmStridedBatchedTunableOp_float_NN", "nn_48_64_32_B_3_ld_48_32_48"),
        ("GemmTunableOp_float_TN", "tn_16_64_32_ld_32_32_16"),
        ("GemmTunableOp_BFloat16_NN", "nn_48_64_32_ld_48_32_48"),
        ("GemmAndBiasTunableOp_float_TN", "tn_16_64_32_ld_32_32_16"),
    ]


def test_precisions_have_names_of_their_own() -> None:
    tunable.enable()
    before = _precision.saved()
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        _product()
    finally:
        _precision.restore(before)
    assert tunable.get_results()[0][0] == "GemmTunableOp_tf32_NN"


def test_vectors_are_not_tuned() -> None:
    tunable.enable()
    x = torch.ones(8, 8, device="cuda")
    assert (x @ x[0]).tolist() == [8.0] * 8
    x[:1] @ x
    assert tunable.get_results() == ()


def test_tuned_products_are_right_and_files_are_taken_up(tmp_path: Path) -> None:
    tunable.enable()
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(96, 96)).astype(np.float32) for _ in range(2))
    x, y = (torch.from_numpy(array).to("cuda") for array in (a, b))
    for _ in range(2):
        np.testing.assert_allclose((x @ y).cpu().numpy(), a @ b, rtol=1e-3, atol=1e-3)
    assert tunable.get_filename() == "tunableop_results0.csv"
    lines = (tmp_path / "tunableop_results0.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines if line.startswith("Validator")] == [
        "FLAMBEAU_VERSION",
        "CUDA_DEVICE",
        "CUBLASLT_VERSION",
    ]
    found = tunable.get_results()
    assert lines[3].split(",")[:3] == list(found[0][:3])
    results.reset()
    tunable.tuning_enable(False)
    assert tunable.read_file("tunableop_results0.csv")
    assert [one[:3] for one in tunable.get_results()] == [one[:3] for one in found]
    np.testing.assert_allclose((x @ y).cpu().numpy(), a @ b, rtol=1e-3, atol=1e-3)


def test_processes_that_make_a_file_at_once_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunable.enable()
    file = tmp_path / "tunableop_results0.csv"
    make = tempfile.mkstemp

    def slow(**options: Any) -> tuple[int, str]:
        if not file.exists():
            lines = [f"Validator,{key},{value}" for key, value in tunable.get_validators()]
            file.write_text(
                "\n".join([*lines, "GemmTunableOp_float_NN,of_another,Default,1"]) + "\n"
            )
        return make(**options)

    monkeypatch.setattr("flambeau.cuda._tunable_results.tempfile.mkstemp", slow)
    _product()
    lines = file.read_text().splitlines()
    assert [line.split(",")[1] for line in lines[-2:]] == ["of_another", "nn_48_64_32_ld_48_32_48"]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_read_entries_replace_none_that_are_known(tmp_path: Path) -> None:
    head = "".join(f"Validator,{key},{value}\n" for key, value in tunable.get_validators())
    for name, solution in (("a.csv", "Default"), ("b.csv", "Other")):
        (tmp_path / name).write_text(f"{head}GemmTunableOp_float_NN,nn_1_1_1_ld_1_1_1,{solution}\n")
        assert tunable.read_file(name)
    assert tunable.get_results() == (
        ("GemmTunableOp_float_NN", "nn_1_1_1_ld_1_1_1", "Default", 0.0),
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Validator,CUDA_DEVICE,another", "Failed validator: CUDA_DEVICE"),
        ("Validator,PT_VERSION,2.11.0", "Unmatched validator: PT_VERSION"),
        ("", "Unmatched validator: the file does not say"),
    ],
)
def test_files_of_other_makers_are_refused(line: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(f"{line}\nGemmTunableOp_float_NN,nn_1_1_1_ld_1_1_1,Default\n")
    with pytest.warns(UserWarning, match=text):
        assert not tunable.read_file("r.csv")
    assert tunable.get_results() == ()
    assert (tmp_path / "r.csv.refused").exists()
    assert not tunable.read_file("r.csv")


def test_unknown_solutions_run_the_default(tmp_path: Path) -> None:
    head = "".join(f"Validator,{key},{value}\n" for key, value in tunable.get_validators())
    line = "GemmTunableOp_float_NN,nn_48_64_32_ld_48_32_48,Gemm_Cublaslt_id_999999_tile_1,0.1\n"
    (tmp_path / "r.csv").write_text(head + line)
    tunable.enable()
    assert tunable.read_file("r.csv")
    assert _product()[0, 0].item() == 32.0


def test_ordinals_in_names() -> None:
    names = {"a.b.csv": "a.b0.csv", "x%d_y.csv": "x0_y.csv", "noext": "noext0"}
    assert {name: numbered(name, 0) for name in names} == names
    tunable.set_filename("given.csv")
    assert tunable.get_filename() == "given.csv"
    tunable.set_filename("given.csv", insert_device_ordinal=True)
    assert tunable.get_filename() == "given0.csv"


def test_untuned_products_are_listed_once_and_tuned_later(tmp_path: Path) -> None:
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    for _ in range(2):
        _product()
        _product(32)
    listed = (tmp_path / "tunableop_untuned0.csv").read_text().splitlines()
    assert listed == [
        "GemmTunableOp_float_NN,nn_48_64_32_ld_48_32_48",
        "GemmTunableOp_float_NN,nn_48_32_32_ld_48_32_48",
    ]
    assert tunable.get_results() == ()
    with pytest.raises(AssertionError, match="Tuning is not enabled"):
        tunable.tune_gemm_in_file("tunableop_untuned0.csv")
    tunable.tuning_enable()
    tunable.record_untuned_enable(False)
    tunable.tune_gemm_in_file("tunableop_untuned0.csv")
    assert [",".join(one[:2]) for one in tunable.get_results()] == listed
    tunable.enable(False)
    with pytest.raises(AssertionError, match="TunableOp is not enabled"):
        tunable.tune_gemm_in_file("tunableop_untuned0.csv")


def test_a_product_with_a_bias_is_tuned_as_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias = (
        torch.from_numpy(rng.normal(size=size).astype(np.float32)).to("cuda")
        for size in ((64, 96), (32, 96), (32,))
    )
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    expected = x.cpu().numpy() @ weight.cpu().numpy().T + bias.cpu().numpy()
    for affine in (
        lambda: torch.nn.functional.linear(x, weight, bias),
        lambda: torch.addmm(bias, x, weight.t()),
    ):
        np.testing.assert_allclose(affine().cpu().numpy(), expected, rtol=1e-3, atol=1e-3)
    line = "GemmAndBiasTunableOp_float_TN,tn_32_64_96_ld_96_96_32"
    assert (tmp_path / "tunableop_untuned0.csv").read_text().splitlines() == [line]
    tunable.tuning_enable()
    tunable.record_untuned_enable(False)
    tunable.tune_gemm_in_file("tunableop_untuned0.csv")
    ((operation, parameters, solution, _),) = tunable.get_results()
    assert f"{operation},{parameters}" == line
    assert solution == "Default" or solution.startswith("Gemm_Cublaslt_id_")
    found = torch.nn.functional.linear(x, weight, bias).cpu().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_tuning_is_not_slower_than_the_library_itself() -> None:
    took = {"Default": (5.0, 4.0), "own": (6.0, 3.0), "cold": (4.0, 3.1), "both": (4.5, 3.0)}
    numbers = {"Default": 0, "own": 1, "cold": 7, "both": 8}
    bench = _FakeBench(took)
    for names, best in (
        (("Default", "own", "cold", "both"), "both"),
        (("Default", "own", "cold"), "own"),
        (("Default", "cold"), "cold"),
    ):
        race = _tunable_tuning.Race(bench)  # type: ignore[arg-type]
        for name in names:
            race.times[Algorithm(name, numbers[name], 0)] = took[name][0]
        assert race.winner()[0].name == best


class _FakeBench:
    """Times that are known: cold ones and warm ones."""

    def __init__(self, took: dict[str, tuple[float, float]]) -> None:
        self.took = took

    def mean(self, algorithm: Algorithm, runs: int, warm: bool = False) -> float:
        del runs
        return self.took[algorithm.name][warm]

    def affordable(self, runs: int) -> int:
        return runs


def test_products_of_other_programs_are_tuned(tmp_path: Path) -> None:
    lines = [
        "GemmTunableOp_float_NN,nn_48_64_32_ld_48_32_48",
        "GemmStridedBatchedTunableOp_float_NN,nn_48_64_32_B_3_ld_48_32_48",
        "GemmAndBiasTunableOp_float_TN,tn_16_64_32_ld_32_32_16",
        "GemmTunableOp_float_NN,nn_48_64_32_ld_48_32_48",
    ]
    (tmp_path / "u.csv").write_text("\n".join(lines))
    tunable.enable()
    tunable.tune_gemm_in_file("u.csv")
    assert {",".join(one[:2]) for one in tunable.get_results()} >= set(lines)
    assert len(tunable.get_results()) == len({one[:2] for one in tunable.get_results()})


def test_lines_that_cannot_be_tuned_warn(tmp_path: Path) -> None:
    (tmp_path / "u.csv").write_text("GemmTunableOp_float_NN,nn_1_64_32_ld_1_32_1\n")
    tunable.enable()
    with pytest.warns(UserWarning, match="Offline tuning is not supported for this GEMM"):
        tunable.tune_gemm_in_file("u.csv")


def test_open_dimensions() -> None:
    tunable.enable()
    with tunable.dynamic_dims_mask(N=True):
        _product()
    assert [one[1] for one in tunable.get_results()] == [
        "nn_48_64_32_ld_48_32_48",
        "nn_48_*_32_ld_48_32_48",
    ]
    tunable.tuning_enable(False)
    assert results.find_wild(("GemmTunableOp_float_NN", "nn_48_7_32_ld_48_32_48")) is not None
    assert results.find_wild(("GemmTunableOp_float_NN", "nn_47_7_32_ld_47_32_47")) is None
    tunable.wildcard_fallback_enable()
    assert _product(16)[0, 0].item() == 32.0


def test_masks_leave_leading_dimensions_that_follow_open() -> None:
    from flambeau.cuda._tunable_settings import Mask

    problem = keys.problem_of("GemmTunableOp_float_NN", "nn_48_64_32_ld_48_32_50")
    assert problem is not None
    assert keys.key_of(problem)[1] == "nn_48_64_32_ld_48_32_50"
    assert keys.wild_key_of(problem, Mask(m=True))[1] == "nn_*_64_32_ld_*_32_50"
    assert keys.wild_key_of(problem, Mask(k=True))[1] == "nn_48_64_*_ld_48_*_50"


def test_nothing_is_tuned_while_capturing() -> None:
    tunable.enable()
    x = torch.ones(64, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ x
    assert tunable.get_results() == ()
    graph.replay()
    assert y[0, 0].item() == 64.0
    x @ x
    assert len(tunable.get_results()) == 1


def test_products_work_where_there_is_no_memory_to_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(_tunable_tuning, "Bench", full)
    tunable.enable()
    assert _product()[0, 0].item() == 32.0
    assert tunable.get_results() == ()


def test_tuning_leaves_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4, device="cuda").tolist()
    torch.manual_seed(3)
    tunable.enable()
    _product()
    assert torch.rand(4, device="cuda").tolist() == expected


def test_numerical_check_keeps_what_is_right() -> None:
    tunable.enable()
    tunable.set_numerical_check_tolerances(True, 1e-3, 1e-3)
    assert _product()[0, 0].item() == 32.0


def test_environment_beats_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_FILENAME", "env_%d.csv")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS", "-3")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS", "2")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE", "2")
    settings.reset()
    tunable.enable(False)
    tunable.set_filename("mine.csv")
    assert tunable.is_enabled()
    tunable.set_max_tuning_iterations(7)
    assert tunable.get_max_tuning_duration() == 0
    assert tunable.get_max_tuning_iterations() == 2
    assert tunable.get_rotating_buffer_size() == 2 << 20
    _product()
    assert tunable.get_filename() == "env_0.csv"


def test_environment_alone_tunes(tmp_path: Path) -> None:
    code = "import flambeau as t; x = t.ones(64, 64, device='cuda'); print((x @ x)[0, 0].item())"
    environment = {
        **os.environ,
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS": "2",
        "PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE": "0",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert done.stdout == "64.0\n"
    rows = (tmp_path / "tunableop_results0.csv").read_text().splitlines()
    assert rows[-1].startswith("GemmTunableOp_float_NN,nn_64_64_64_ld_64_64_64,")


def test_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_TUNABLEOP_NUMERICAL_CHECK", "1e-5")
    settings.reset()
    with pytest.raises(ValueError, match="Expected 'atol_rtol'"):
        settings.get("tolerances")


def test_it_says_what_it_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTORCH_TUNABLEOP_VERBOSE", "3")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_VERBOSE_FILENAME", "log.txt")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_BLAS_LOG", "1")
    settings.reset()
    tunable.enable()
    _product()
    said = (tmp_path / "log.txt").read_text()
    assert "tuning GemmTunableOp_float_NN nn_48_64_32_ld_48_32_48" in said
    assert (
        "BLAS_PARAMS: { function: matmul, M: 48" in (tmp_path / tunable.get_filename()).read_text()
    )


def test_long_tuning_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(_tunable_tuning, "_LONG", -1.0)
    with _tunable_tuning.Progress("a product", 2) as progress:
        progress.step()
        assert progress._bar is not None
        progress.step()
    assert progress._bar.finished


@pytest.mark.slow
def test_several_gpus_share_the_work(tmp_path: Path, gpus: Any) -> None:
    gpus(2)
    lines = [f"GemmTunableOp_float_NN,nn_{n}_64_32_ld_{n}_32_{n}" for n in (16, 32, 48)]
    (tmp_path / "untuned_a.csv").write_text("\n".join(lines[:2]) + "\n")
    (tmp_path / "untuned_b.csv").write_text("\n".join(lines[1:]) + "\n")
    tunable.enable()
    tunable.mgpu_tune_gemm_in_file("untuned_*.csv", 2)
    for name in ("tunableop_results_full0.csv", "tunableop_results_full1.csv"):
        rows = (tmp_path / name).read_text().splitlines()
        tuned = {",".join(row.split(",")[:2]) for row in rows if "TunableOp" in row}
        assert tuned == set(lines)
