# SPDX-License-Identifier: Apache-2.0
"""Tuning from a list of products, on one GPU or shared out over several."""

from __future__ import annotations

import glob
import multiprocessing
import warnings
from pathlib import Path

from flambeau.cuda import _tunable_keys as keys
from flambeau.cuda._tunable_results import numbered, results, write_whole
from flambeau.cuda._tunable_settings import RESULTS, settings
from flambeau.cuda._tunable_tuning import tune
from flambeau.runtime import _cuda_device, _matmul, _state

__all__ = ["mgpu_tune_gemm_in_file", "tune_gemm_in_file"]


def _check_enabled() -> None:
    assert settings.get("enabled"), (
        "TunableOp is not enabled: call torch.cuda.tunable.enable() first"
    )
    assert settings.get("tuning"), (
        "Tuning is not enabled: call torch.cuda.tunable.tuning_enable() first"
    )


def _lines(name: str) -> list[tuple[str, str]]:
    """The products of a file, results or not, each once."""
    rows = [line.strip().split(",") for line in Path(name).read_text(encoding="utf-8").splitlines()]
    named = [(row[0], row[1]) for row in rows if len(row) > 1 and "TunableOp_" in row[0]]
    return list(dict.fromkeys(named))


def _tune_lines(lines: list[tuple[str, str]], device: int) -> None:
    for key in lines:
        if results.find(key) is not None:
            continue
        problem = keys.problem_of(*key)
        if problem is None or 1 in {problem.m, problem.n}:
            warnings.warn(
                f"Offline tuning is not supported for this GEMM: {key[0]},{key[1]}. It is left "
                "out: it is of a kind that flambeau does not compute, or a matrix times a vector.",
                UserWarning,
                stacklevel=3,
            )
            continue
        results.add(key, tune(problem, device))
    _matmul.forget_tuned()


def tune_gemm_in_file(filename: str) -> None:
    """Tune every product of a file on the current device.

    Parameters
    ----------
    filename
        Lines ``operation,parameters``, as recording untuned products writes them. Matrices get the
        recorded leading dimensions.

    Raises
    ------
    AssertionError
        TunableOp or its tuning is not enabled.
    """
    _check_enabled()
    device = _state.current_device()
    results.load_once(device)
    _tune_lines(_lines(filename), device)


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    """Share out the products of several files over several GPUs, a process for each.

    Every device's results file then holds all results: they are merged into the first one, whose
    name has ``_full``, and copied.

    Parameters
    ----------
    filename_pattern
        The files, with ``*`` and ``?``.
    num_gpus
        How many devices take part, from 0 on.

    Raises
    ------
    AssertionError
        TunableOp or its tuning is not enabled.
    """
    _check_enabled()
    names = sorted(glob.glob(filename_pattern))
    lines = list(dict.fromkeys(line for name in names for line in _lines(name)))
    total = _cuda_device.count_devices()
    if not 1 <= num_gpus <= total:
        raise ValueError(f"num_gpus is {num_gpus}, but there are {total} GPUs")
    base = settings.get("filename") or RESULTS
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_worker, args=(gpu, lines[gpu::num_gpus], base))
        for gpu in range(num_gpus)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = [i for i, worker in enumerate(workers) if worker.exitcode]
    if failed:
        raise RuntimeError(f"tuning failed in the processes of GPUs {failed}; they said why above")
    _gather(base, num_gpus)


def _worker(gpu: int, lines: list[tuple[str, str]], base: str) -> None:
    """Tune some products on one device. Runs in a process of its own."""
    _state.set_device(gpu)
    settings.set("enabled", True)
    settings.set("tuning", True)
    settings.set("filename", base)
    results.load_once(gpu)
    _tune_lines(lines, gpu)


def _gather(base: str, num_gpus: int) -> None:
    validators: list[str] = []
    found: dict[tuple[str, str], str] = {}
    for gpu in range(num_gpus):
        file = Path(numbered(base, gpu))
        if not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            row = line.split(",")
            if row[0] == "Validator":
                if line not in validators:
                    validators.append(line)
            elif len(row) > 2:
                found.setdefault((row[0], row[1]), line)
    full = base.replace("%d", "") if "%d" in base else base
    stem, dot, ending = full.rpartition(".")
    full = f"{stem}_full.{ending}" if dot else f"{full}_full"
    for gpu in range(num_gpus):
        text = "\n".join([*validators, *found.values()]) + "\n"
        write_whole(Path(numbered(full, gpu)), text)
