"""The common part of commands that run Spark."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer

from penstock.errors import ConfigError, PenstockError

AvailableNow = Annotated[
    bool,
    typer.Option(
        "--available-now/--continuous",
        help="End when all messages of the log have landed, or run until stopped.",
    ),
]
AcceptDataLoss = Annotated[
    bool,
    typer.Option(
        "--accept-data-loss",
        help="Continue without messages that retention removed before they landed.",
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.0, help="Time to wait for the stream service."),
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master; default: this machine.")
]
OlderThan = Annotated[
    int,
    typer.Option(
        metavar="HOURS",
        min=0,
        help="Spare younger files. 0 only while no job writes to the table.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the files.")]
Full = Annotated[bool, typer.Option("--full", help="Show whole values, even long ones.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all details of an error.")]

_EXTRAS: Final = {"pyiceberg": "iceberg", "sqlalchemy": "iceberg"}


def table_directory(text: str) -> str:
    """Return the absolute path or the URL of a table, given on the command line.

    Raises:
        ConfigError: the text is a URL of another kind.
    """
    from penstock.config.table_places import parse_place

    return parse_place(text)


def local_directory(text: str) -> Path:
    """Return the path of a local directory, given on the command line as a path or a file: URL.

    Raises:
        ConfigError: the text is the URL of an object store or of another server.
    """
    from penstock.config import values

    try:
        return Path(values.local_directory(text))
    except ValueError as error:
        raise ConfigError(f"a job keeps its lock and output in {error}, not at {text}") from None


@contextmanager
def require_spark() -> Iterator[None]:
    """Raise ConfigError, which names the package to install, if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"this needs the package {package}: pip install"
            f" 'penstock[{_EXTRAS.get(package, 'spark')}]'"
        ) from error


@contextmanager
def print_traceback_if(verbose: bool) -> Iterator[None]:
    """Print the traceback of a PenstockError that leaves the block, if ``verbose``."""
    try:
        yield
    except PenstockError as error:
        if verbose:
            traceback.print_exception(error)
        raise


def exit_on_sigterm() -> None:
    """End the command on SIGTERM as on Ctrl-C, so that Spark is stopped and temporary files are
    removed."""

    def exit_with_code(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, exit_with_code)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Stop the job after the current batch on SIGTERM or SIGINT; at once on a second SIGINT."""

    def handle_first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGTERM, handle_first)
    signal.signal(signal.SIGINT, handle_first)


def print_removed(files: Sequence[str], *, dry_run: bool) -> None:
    """Print the files that a vacuum has removed, or would remove."""
    for file in files:
        print(file)
    print(f"{len(files)} files {'would be removed' if dry_run else 'removed'}")
