"""`penstock import mosquitto`: translate the files of a Mosquitto broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

app = typer.Typer(no_args_is_help=True, help="Import from another broker.")

_PRINTED_LINES_MAX: Final = 2000  # of the report on the terminal
_BAR_STEPS: Final = 200


@app.callback()
def begin(context: typer.Context) -> None:
    """Import from another broker."""
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
        typer.Option("--data-dir", metavar="DIR", help="Directory of the new store; DIR/data."),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database",
            metavar="FILE",
            help="Mosquitto's database; default: as the configuration says.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files; never a store.")
    ] = False,
) -> None:
    """Translate settings, users, access list and database of Mosquitto 2.0 or 2.1.

    Stop Mosquitto first: it saves its database when it ends. The outcome for each line of its files
    is printed and written into report.txt.
    """
    from penstock.mosquitto.importing import ImportRequest, import_mosquitto

    request = ImportRequest(configuration, to, data_dir, database, force)
    with _show_progress() as progress:
        imported = import_mosquitto(request, progress)
    lines = imported.findings.report()
    for line in lines[:_PRINTED_LINES_MAX]:
        print(line)
    if len(lines) > _PRINTED_LINES_MAX:
        print(f"... and {len(lines) - _PRINTED_LINES_MAX:,} lines more, in report.txt")
    print()
    for file in imported.files:
        print(f"wrote {file}")
    if imported.data_dir is not None:
        print(f"made the store in {imported.data_dir}")
    print(f"start it with: penstock serve --config {to / 'penstock.toml'}")


@contextmanager
def _show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the progress on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from penstock.cli.screen import Screen

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Screen(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        last_shown = 0

        def show(step: str, done: int, total: int) -> None:
            nonlocal last_shown
            if done == total or done < last_shown or done - last_shown >= total // _BAR_STEPS:
                last_shown = done  # an update for each of a million chunks would be slow
                display.update(task, description=step, completed=done, total=total)

        yield show


def _show_nothing(step: str, done: int, total: int) -> None:
    del step, done, total


def refuse_mosquitto_configuration(config: Path | None) -> None:
    """Refuse a configuration file of Mosquitto's; the error names the command that imports it.

    Raises:
        ConfigError: ``config`` is Mosquitto's.
    """
    from penstock.errors import ConfigError
    from penstock.mosquitto.configuration import looks_like_mosquitto

    if config is not None and config.suffix != ".toml" and looks_like_mosquitto(config):
        raise ConfigError(
            f"{config} is Mosquitto's configuration: import it, with users, access list and"
            f" database, by `penstock import mosquitto {config} --to penstock`."
        )
