"""`penstock store`: look after the directory in which a broker keeps its log and its state."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, DataDir

if TYPE_CHECKING:
    from penstock.store.examination import Examination

EXIT_DAMAGED: Final = 1

app = typer.Typer(no_args_is_help=True, help="Look after a broker's log and state.")

BackupDir = Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of the backup.")]
WhatToRead = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the store, or a backup.")
]


@app.command()
def check(config: ConfigFile = None, data_dir: WhatToRead = None) -> None:
    """Read everything, and say what is missing.

    Every checksum is compared; exit code 1 where something is wrong. Nothing is changed; no
    broker may be running.
    """
    from penstock.store.examination import examine

    directory = _directory(config, data_dir)
    found = examine(directory)
    for problem in found.problems:
        print(problem)
    if found.problems_untold:
        print(f"and {found.problems_untold:,} more")
    if found.problems:
        remedy = "move it away and restore a backup"
        if found.loss is not None and not found.unreadable:
            remedy += f", or accept the loss with 'penstock store repair --data-dir {directory}'"
        print(f"the store in {directory} is damaged: {remedy}")
        raise typer.Exit(EXIT_DAMAGED)
    print(
        f"the store in {directory} is whole: {found.messages:,} messages, "
        f"{found.sessions:,} sessions, {found.retained:,} retained messages"
    )


@app.command()
def inspect(config: ConfigFile = None, data_dir: WhatToRead = None) -> None:
    """Show what the store, or a backup, holds. Nothing is changed; no broker may be running."""
    from rich.console import Console
    from rich.table import Table

    from penstock.store.examination import examine

    directory = _directory(config, data_dir)
    grid = Table.grid(padding=(0, 2))
    for name, value in _lines(examine(directory)):
        grid.add_row(name, value)
    Console().print(grid, highlight=False, soft_wrap=True)


def _lines(found: Examination) -> list[tuple[str, str]]:
    span = f"offsets {found.begin:,} to {found.end - 1:,}" if found.messages else "empty"
    lines = [
        ("epoch", found.epoch),
        *(("before that", f"{epoch}, up to offset {end:,}") for epoch, end in found.lineage[::-1]),
        ("created", f"{datetime.fromtimestamp(found.created_at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"),
        ("commits", f"{found.commits:,}"),
        ("log", f"{span}, {found.chunks:,} chunks, {found.log_size_bytes:,} bytes"),
        ("messages", f"{found.messages:,}"),
        ("sessions", f"{found.sessions:,} with {found.subscriptions:,} subscriptions"),
        ("waiting", f"{found.queued:,} in queues, {found.in_flight:,} in flight"),
        ("retained", f"{found.retained:,}"),
        ("wills", f"{found.wills:,}"),
    ]
    problems = len(found.problems) + found.problems_untold
    if problems:
        lines.append(("problems", f"{problems:,}: see 'penstock store check'"))
    return lines


@app.command()
def backup(
    destination: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Directory to create, for instance by date.")
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Write a copy of the store; its broker may run.

    Everything acknowledged before is in it. A path in the same file system takes almost no space
    or time (hard links); copy it elsewhere then.
    """
    from penstock.store.control import NoBroker, ask_for_backup

    directory = _directory(config, data_dir)
    try:
        made = ask_for_backup(directory, destination)
    except NoBroker:
        from penstock.store.backup import back_up_unused

        made = back_up_unused(directory, destination)
    print(
        f"wrote {destination}: epoch {made.epoch}, offsets {made.begin} to {made.end} (excluded),"
        f" {made.commits:,} commits"
    )


@app.command()
def restore(source: BackupDir, config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Make a store of a backup, in a new epoch. There must be no store yet."""
    from penstock.store.backup import restore as restore_store

    directory = _directory(config, data_dir)
    manifest, epoch = restore_store(source, directory)
    print(
        f"restored {directory} as it was at {manifest.made_at}\n"
        f"the log goes on at offset {manifest.end}, in the new epoch {epoch}: {_READERS}"
    )


@app.command()
def repair(config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Accept the loss of what a damaged store does not hold any more.

    The log goes on in a new epoch, so that readers notice. A store that lost nothing is left as
    it is.
    """
    from penstock.store.repair import repair as repair_store

    directory = _directory(config, data_dir)
    repaired = repair_store(directory)
    if repaired.loss is None:
        print(f"the store in {directory} has lost nothing; it was left as it is")
        return
    print(
        f"given up in {directory}: {repaired.loss}\n"
        f"the log goes on at offset {repaired.end}, in the new epoch {repaired.epoch}: {_READERS}"
    )


@app.command()
def compact(config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Give back the space of what was removed. No broker may be running."""
    from penstock.store.compaction import compact as compact_store

    directory = _directory(config, data_dir)
    before, after = compact_store(directory)
    print(f"compacted {directory}: {before:,} bytes before, {after:,} after")


_READERS: Final = "start readers of the log, such as 'penstock table run', with a new checkpoint"


def _directory(config: Path | None, data_dir: Path | None) -> Path:
    from penstock.config import load_settings

    return load_settings(config, {"durability.data_dir": data_dir}).durability.data_dir
