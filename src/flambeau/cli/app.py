# SPDX-License-Identifier: Apache-2.0
"""The commands that describe and check; each imports what it needs when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_app = typer.Typer(
    name="flambeau",
    help="torch.cuda as a library of its own, on NVIDIA GPUs and on virtual ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_cache = typer.Typer(help="Compiled kernels kept on disk.", no_args_is_help=True)
_app.add_typer(_cache, name="cache")


def main(arguments: Sequence[str]) -> None:
    """Run a command of this module; ends with `SystemExit`."""
    typer.main.get_command(_app)(list(arguments), prog_name="flambeau")


@_app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        import flambeau

        print(flambeau.__version__)
        raise typer.Exit


@_app.command(
    name="run",
    no_args_is_help=True,
    options_metavar="[--virtual [MODEL][:N]] [--schedule POLICY] [--check CHECKS] "
    "[--sanitize[=MODE]] [--explore N]",
)
def _run(  # flambeau.cli.run reads the arguments; this is their description
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT [ARGUMENTS]...", help="A file, or -m MODULE, or -c CODE."),
    ],
    virtual: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option(
            metavar="[MODEL][:N]",
            help="Use N virtual GPUs of a model in place of real ones: h200, h200:2, :2.",
        ),
    ] = None,
    schedule: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="POLICY",
            help="Order of work on virtual GPUs: fifo, random:SEED or adversarial.",
        ),
    ] = None,
    check: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="CHECKS",
            help="Watch memory accesses on virtual GPUs: memory, init, race, some or all; "
            "if something is found the exit status is 3.",
        ),
    ] = None,
    sanitize: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="[=MODE]",
            help="Find accesses that no stream orders: raise (the default), warn or collect; "
            "if something is found the exit status is 3.",
        ),
    ] = None,
    explore: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N",
            help="Run the program under N schedules, each in a process of its own, and say which "
            "is the first that makes it fail.",
        ),
    ] = None,
) -> None:
    """Run a program written for torch.cuda, unchanged.

    `import torch` gives it flambeau. Without a GPU and without --virtual it runs on one virtual
    GPU. What follows the script belongs to the script.
    """


@_app.command(name="info")
def _info() -> None:
    """Show devices, driver, compiler, libraries and caches."""
    from flambeau.cli import info

    info.show()


@_app.command(name="doctor")
def _doctor() -> None:
    """Find out why CUDA is not available, and what to do about it.

    The exit status is 0 if CUDA is available, else 1.
    """
    from flambeau.cli import doctor

    raise typer.Exit(doctor.examine())


@_cache.command(name="info")
def _cache_info() -> None:
    """Show where compiled kernels are kept, and how much."""
    from flambeau.cli import cache

    cache.show()


@_cache.command(name="clear")
def _cache_clear() -> None:
    """Remove all compiled kernels; they are made again when needed."""
    from flambeau.cli import cache

    cache.clear()


_memory = typer.Typer(help="Snapshots of the memory allocator.", no_args_is_help=True)
_graph = typer.Typer(help="Captured CUDA graphs.", no_args_is_help=True)
_trace = typer.Typer(help="Traces of the profiler.", no_args_is_help=True)
_app.add_typer(_memory, name="memory")
_app.add_typer(_graph, name="graph")
_app.add_typer(_trace, name="trace")

_Output = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("-o", "--output", metavar="PAGE", help="The page; by default beside the file."),
]
_Rows = Annotated[int, typer.Option("-n", "--rows", help="Most rows.", min=1)]


@_memory.command(name="view")
def _memory_view(snapshot: str, output: _Output = None) -> None:
    """Write a page: memory over time by site, segments and their holes, the trace."""
    from flambeau.cli import memory

    memory.view(snapshot, output)


@_memory.command(name="top")
def _memory_top(snapshot: str, rows: _Rows = 20) -> None:
    """Show what holds most at the end of a snapshot."""
    from flambeau.cli import memory

    memory.top(snapshot, rows)


@_memory.command(name="diff")
def _memory_diff(before: str, after: str, rows: _Rows = 20) -> None:
    """Show which sites hold more or less in the second snapshot."""
    from flambeau.cli import memory

    memory.diff(before, after, rows)


@_memory.command(name="timeline")
def _memory_timeline(
    snapshot: str,
    device: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Which device; by default the first with a trace."),
    ] = None,
    width: Annotated[int, typer.Option(help="Columns.", min=10)] = 100,
    height: Annotated[int, typer.Option(help="Rows.", min=1)] = 12,
) -> None:
    """Draw how much memory was held over the trace."""
    from flambeau.cli import memory

    memory.timeline(snapshot, device, width, height)


@_memory.command(name="convert")
def _memory_convert(snapshot: str, output: str) -> None:
    """Write a snapshot as JSON lines (.jsonl, .jsonl.gz) or as a pickle (.pickle)."""
    from flambeau.cli import memory

    memory.convert(snapshot, output)


@_graph.command(name="view")
def _graph_view(
    graph: str,
    output: _Output = None,
    trace: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TRACE", help="A trace of a replay: nodes get their durations."),
    ] = None,
    annotations: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="JSON", help="Annotations, by nodes' ids."),
    ] = None,
) -> None:
    """Write a page of a graph that graphs.export_graph_data() wrote, or of the same as JSON."""
    from flambeau.cli import graph as command

    command.view(graph, output, trace, annotations)


@_trace.command(name="summary")
def _trace_summary(trace: str, rows: _Rows = 15) -> None:
    """Show how busy the devices were and what took longest."""
    from flambeau.cli import trace as command

    command.summary(trace, rows)


@_trace.command(name="view")
def _trace_view(trace: str, output: _Output = None) -> None:
    """Write a page of a trace: what ran, and when."""
    from flambeau.cli import trace as command

    command.view(trace, output)


@_app.command(name="top")
def _show_top(
    once: Annotated[bool, typer.Option("--once", help="Show the figures once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between readings.", min=0.1)] = 1.0,
) -> None:
    """Show what the GPUs are doing: load, memory, processes, temperature, power, clocks."""
    from flambeau.cli import top

    top.run(once=once, as_json=as_json, interval=interval)
