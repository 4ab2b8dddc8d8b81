"""`penstock import mosquitto`: a configuration, users, access list and database of Mosquitto's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

app = typer.Typer(no_args_is_help=True, help="Come from another broker.")

_LISTED_MAX: Final = 2000  # lines of the report on the terminal
_STEPS: Final = 200  # of a bar


@app.callback()
def begin(context: typer.Context) -> None:
    """Come from another broker."""
    from penstock.store.permissions import private_umask

    context.with_resource(private_umask())  # until the command has ended


@app.command()
def mosquitto(
    configuration: Annotated[
        Path, typer.Argument(metavar="MOSQUITTO.CONF", help="Mosquitto's configuration file.")
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Directory for penstock.toml and the rest.")
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Where the store is made; DIR/data."),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database",
            metavar="FILE",
            help="Mosquitto's database, if not the one that the configuration names.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there; never a store.")
    ] = False,
) -> None:
    """Make settings, users, access list and store from those of Mosquitto 2.0 or 2.1.

    Stop Mosquitto first: it saves its database when it ends. What became of each line is printed
    and written into report.txt.
    """
    from penstock.mosquitto.importing import ImportRequest, import_mosquitto

    request = ImportRequest(configuration, to, data_dir, database, force)
    with _progress_shown() as progress:
        imported = import_mosquitto(request, progress)
    lines = imported.findings.report()
    for line in lines[:_LISTED_MAX]:
        print(line)
    if len(lines) > _LISTED_MAX:
        print(f"... and {len(lines) - _LISTED_MAX:,} lines more, in report.txt")
    print()
    for file in imported.files:
        print(f"wrote {file}")
    if imported.data_dir is not None:
        print(f"made the store in {imported.data_dir}")
    print(f"start it with: penstock serve --config {to / 'penstock.toml'}")


@contextmanager
def _progress_shown() -> Iterator[Callable[[str, int, int], None]]:
    """Show on standard error how far the import is, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from penstock.cli.screen import Screen

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Screen(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        shown = 0

        def show(what: str, done: int, total: int) -> None:
            nonlocal shown
            if done == total or done < shown or done - shown >= total // _STEPS:
                shown = done  # not for each of a million chunks: that would take longer than they
                display.update(task, description=what, completed=done, total=total)

        yield show


def _show_nothing(what: str, done: int, total: int) -> None:
    del what, done, total


def refuse_configuration_of_mosquitto(config: Path | None) -> None:
    """Refuse a configuration file that is Mosquitto's, and say which command reads it.

    Raises:
        ConfigError: ``config`` is Mosquitto's.
    """
    from penstock.errors import ConfigError
    from penstock.mosquitto.configuration import looks_like_mosquitto

    if config is not None and config.suffix != ".toml" and looks_like_mosquitto(config):
        raise ConfigError(
            f"{config} is Mosquitto's configuration: make Penstock's, users, access list"
            f" and store with `penstock import mosquitto {config} --to penstock`."
        )
