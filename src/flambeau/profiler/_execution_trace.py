# SPDX-License-Identifier: Apache-2.0
"""Execution traces: which operations ran, in order, with what."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from flambeau.profiler._recorder import public_name
from flambeau.runtime import observers

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["ExecutionTraceObserver"]

_ENABLE, _PATH = "ENABLE_PYTORCH_EXECUTION_TRACE", "ENABLE_PYTORCH_EXECUTION_TRACE_PATH"
_SCHEMA = "1.1.1-chakra.0.0.4"


class ExecutionTraceObserver:
    """Writes operations with their operands' shapes and dtypes to a JSON file.

    Examples
    --------
    >>> import flambeau as torch, json, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
    >>> observer = torch.profiler.ExecutionTraceObserver().register_callback(path)
    >>> observer.start()
    >>> y = torch.ones(4, device="cuda") * 2
    >>> observer.stop()
    >>> observer.unregister_callback()
    >>> with open(path) as file:
    ...     [node["name"] for node in json.load(file)["nodes"]]
    ['[pytorch|profiler|execution_trace|process]', 'aten::fill_', 'aten::mul']
    """

    def __init__(self) -> None:
        self._path = ""
        self._resources = False
        self._running = False
        self._nodes: list[dict[str, Any]] = []
        self._began = 0

    def __del__(self) -> None:
        if self._running:
            self.unregister_callback()

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver | None:
        """An observer if ``ENABLE_PYTORCH_EXECUTION_TRACE=1``, else None.

        ``ENABLE_PYTORCH_EXECUTION_TRACE_PATH`` names the file; by default it is
        ``execution_trace.json`` in the present directory.
        """
        if os.environ.get(_ENABLE) != "1":
            return None
        path = os.environ.get(_PATH) or "execution_trace.json"
        return ExecutionTraceObserver().register_callback(path)

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Attach the file to write.

        Parameters
        ----------
        output_file_path
            The file; it is written by `unregister_callback`.

        Returns
        -------
        ExecutionTraceObserver
            Itself.
        """
        if not self._path:
            self._path = os.fspath(output_file_path)
            self._nodes.clear()
            self._began = time.time_ns()
        return self

    def unregister_callback(self) -> None:
        """Stop, write the file and detach it; nothing happens without one."""
        if not self._path:
            return
        self.stop()
        process = _node(1, "[pytorch|profiler|execution_trace|process]", 0, [], [])
        data = {
            "schema": _SCHEMA,
            "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "start_ts": self._began // 1000,
            "nodes": [process, *self._nodes],
            "finish_ts": time.time_ns() // 1000,
        }
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        self._path = ""

    @property
    def is_registered(self) -> bool:
        """Whether a file is attached."""
        return bool(self._path)

    def is_running(self) -> bool:
        """Whether operations are being noted."""
        return self._running

    def start(self) -> None:
        """Begin to note operations; nothing happens without a file."""
        if self._path and not self._running:
            observers.register("operation", self._operation)
            observers.register("host_access", self._host_access)
            self._running = True

    def stop(self) -> None:
        """Note no more."""
        if self._running:
            self._running = False
            observers.unregister("operation", self._operation)
            observers.unregister("host_access", self._host_access)

    def cleanup(self) -> None:
        """As `unregister_callback`."""
        self.unregister_callback()

    def get_output_file_path(self) -> str | None:
        """The file that is attached, or None."""
        return self._path or None

    def set_extra_resource_collection(self, val: bool) -> None:
        """Whether a directory for more files is made beside the trace. Default: it is not."""
        self._resources = bool(val)

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """The directory for more files; None without a file, or unless they are collected.

        Parameters
        ----------
        can_create
            Whether to make it if it is not there. Default False.
        """
        if not self._path or not self._resources:
            return None
        return self.get_resources_dir_for_et_path(self._path, can_create)

    @staticmethod
    def get_resources_dir_for_et_path(trace_path: str, create_dir: bool = False) -> str | None:
        """The directory for more files beside a trace; None if it is not there.

        Parameters
        ----------
        trace_path
            The trace.
        create_dir
            Whether to make it. Default False.
        """
        folder = f"{os.path.splitext(trace_path)[0]}_resources"
        if create_dir:
            os.makedirs(folder, exist_ok=True)
        return folder if os.path.isdir(folder) else None

    def _host_access(
        self, name: str, read: tuple[Tensor, ...], written: tuple[Tensor, ...]
    ) -> None:
        self._operation(name, read, written, 0)

    def _operation(
        self, name: str, read: tuple[Tensor, ...], written: tuple[Tensor, ...], stream: int
    ) -> None:
        number = len(self._nodes) + 2
        inputs = [_operand(t) for t in read]
        outputs = [_operand(t) for t in written]
        self._nodes.append(_node(number, public_name(name), 1, inputs, outputs))


def _operand(tensor: Tensor) -> tuple[list[object], list[int], str]:
    dtype = str(tensor.dtype).rpartition(".")[2]
    value = [tensor.data_ptr(), tensor.storage_offset(), tensor.numel(), tensor.element_size()]
    return [*value, str(tensor.device)], list(tensor.shape), f"Tensor({dtype})"


def _node(
    number: int,
    name: str,
    parent: int,
    inputs: list[tuple[list[object], list[int], str]],
    outputs: list[tuple[list[object], list[int], str]],
) -> dict[str, Any]:
    def columns(operands: list[tuple[list[object], list[int], str]]) -> dict[str, Any]:
        return {
            "values": [value for value, _, _ in operands],
            "shapes": [shape for _, shape, _ in operands],
            "types": [kind for _, _, kind in operands],
        }

    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": columns(inputs),
        "outputs": columns(outputs),
        "attrs": [{"name": "tid", "type": "uint64", "value": threading.get_native_id()}],
    }


ExecutionTraceObserver.__module__ = "flambeau.profiler"
