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
    "[--sanitize[=MODE]]",
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
