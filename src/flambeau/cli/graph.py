# SPDX-License-Identifier: Apache-2.0
"""``flambeau graph``: a captured graph as a page."""

from __future__ import annotations

import json
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from flambeau.pages import graph as graph_page

__all__ = ["load", "view"]


def load(path: str) -> dict[str, Any]:
    """Read a graph: what ``export_graph_data`` wrote, or the same as JSON. No pickle is run.

    Raises
    ------
    SystemExit
        It cannot be read; the message says why.
    """
    from flambeau.cuda import _memory_file

    try:
        with open(path, "rb") as file:
            raw = file.read(1)
            file.seek(0)
            found = _memory_file.load_pickle(file) if raw == b"\x80" else json.load(file)
    except (OSError, ValueError, UnpicklingError) as error:
        raise SystemExit(f"flambeau graph: {path}: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list):
        raise SystemExit(
            f"flambeau graph: {path}: no graph; torch.cuda.graphs.export_graph_data() writes one"
        )
    return found


def view(path: str, output: str | None, trace: str | None, annotations: str | None) -> None:
    """Write the page of a graph, with durations from a trace if there is one."""
    from flambeau.cli.trace import load as load_trace

    data = load(path)
    durations = graph_page.durations_of(load_trace(trace)) if trace else None
    notes = json.loads(Path(annotations).read_text(encoding="utf-8")) if annotations else None
    if durations is not None and not any(n["tools_id"] in durations for n in data["nodes"]):
        raise SystemExit(
            f"flambeau graph: {trace} has no work of graph {data.get('exec_graph_id')}; it must "
            "not be instantiated again between the export and the recording"
        )
    target = output or str(Path(path).with_suffix(".html"))
    text = graph_page.page(data, f"Graph {Path(path).name}", annotations=notes, durations=durations)
    Path(target).write_text(text, encoding="utf-8")
    print(target)
