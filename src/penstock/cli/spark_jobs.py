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
        help="End when all that is there has landed, or go on until stopped.",
    ),
]
AcceptDataLoss = Annotated[
    bool,
    typer.Option(
        "--accept-data-loss",
        help="Go on without messages that retention removed before they landed.",
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.0, help="How long the stream service may be away."),
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master; default: this machine.")
]
OlderThan = Annotated[
    int,
    typer.Option(
        metavar="HOURS",
        min=0,
        help="Spare younger files. 0 only while no job writes to what is looked at.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the files.")]
Full = Annotated[bool, typer.Option("--full", help="Show whole values, however long they are.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all details of an error.")]

_EXTRAS: Final = {"pyiceberg": "iceberg", "sqlalchemy": "iceberg"}


def local_directory(text: str) -> Path:
    """Return a directory of this machine that was given on the command line.

    Raises:
        ConfigError: it is a location elsewhere.
    """
    from penstock.config import values

    try:
        return Path(values.local_directory(text))
    except ValueError as error:
        raise ConfigError(f"a table must lie in {error}, not at {text}") from None


@contextmanager
def spark_installed() -> Iterator[None]:
    """Turn an import that fails into an error that names the package to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"this needs the package {package}: pip install"
            f" 'penstock[{_EXTRAS.get(package, 'spark')}]'"
        ) from error


@contextmanager
def explained(*, verbose: bool) -> Iterator[None]:
    """Print the traceback of an error if ``verbose``, before its sentence."""
    try:
        yield
    except PenstockError as error:
        if verbose:
            traceback.print_exception(error)
        raise


def exit_on_sigterm() -> None:
    """End the command in order on SIGTERM, as on Ctrl-C: its Spark and its files go with it."""

    def leave(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Stop the job after the current batch on SIGTERM or SIGINT; at once on a second SIGINT."""

    def first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGTERM, first)
    signal.signal(signal.SIGINT, first)


def print_removed(files: Sequence[str], *, dry_run: bool) -> None:
    """Print the files that a vacuum found."""
    for file in files:
        print(file)
    print(f"{len(files)} files {'would be removed' if dry_run else 'removed'}")
