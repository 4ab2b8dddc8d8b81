"""`penstock store`: check, back up, restore and repair the directory with a broker's log and
state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, DataDir

if TYPE_CHECKING:
    from penstock.control.history_requests import LogForked
    from penstock.store.archive import Archive
    from penstock.store.findings import Examination
    from penstock.store.forking import Fork
    from penstock.store.repair import RepairResult

EXIT_DAMAGED: Final = 1
_OPENINGS_SHOWN: Final = 5

app = typer.Typer(no_args_is_help=True, help="Maintain a broker's log and state.")


@app.callback()
def begin(context: typer.Context) -> None:
    """Maintain a broker's log and state."""
    from penstock.store.permissions import private_umask

    context.with_resource(private_umask())  # until the command has ended


BackupDir = Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of the backup.")]
StoreOrBackupDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the store, or a backup.")
]


@app.command()
def check(config: ConfigFile = None, data_dir: StoreOrBackupDir = None) -> None:
    """Read the whole store, and report what is missing or damaged.

    Every checksum is compared; exit code 1 if something is wrong. Nothing is changed; no broker may
    be running.
    """
    from penstock.config.load import load_settings
    from penstock.store.examination import examine
    from penstock.store.faults import DISK_FIRST, is_disk_failure
    from penstock.store.manifest import read_manifest

    settings = load_settings(config, {"durability.data_dir": data_dir})
    directory = settings.durability.data_dir
    found = examine(directory)
    _print_problems(found)
    for note in found.notes:
        print(note)
    if found.problems:
        if any(is_disk_failure(problem) for problem in found.problems):
            print(f"the disk does not return what {directory} has: {DISK_FIRST}, before all else")
        if read_manifest(directory) is not None:
            print(f"the backup in {directory} is damaged: use another one")
        elif settings.cluster.enabled:
            print(
                f"the view in {directory} is damaged: run 'penstock cluster reseed' to replace it"
                " by a copy of another member's"
            )
        else:
            print(
                f"the store in {directory} is damaged: run 'penstock store repair --data-dir"
                f" {directory}' to continue with the rest ('--dry-run' says what would be lost),"
                " or move it away and restore a backup"
            )
        raise typer.Exit(EXIT_DAMAGED)
    print(
        f"the store in {directory} is whole: {found.messages:,} messages, "
        f"{found.sessions:,} sessions, {found.retained:,} retained messages"
    )


def _print_problems(found: Examination) -> None:
    for problem in found.problems:
        print(problem)
    if found.problems_unlisted:
        print(f"and {found.problems_unlisted:,} more")


@app.command()
def inspect(config: ConfigFile = None, data_dir: StoreOrBackupDir = None) -> None:
    """Show the content of a store or a backup. Nothing is changed; no broker may be running."""
    from penstock.cli.screen import print_pairs
    from penstock.store.examination import examine

    directory = _directory(config, data_dir)
    print_pairs(_summary_pairs(examine(directory)))


def _summary_pairs(found: Examination) -> list[tuple[str, str]]:
    from penstock.store.ranges import range_in_words

    span = f"offsets {found.begin:,} to {found.end - 1:,}" if found.messages else "empty"
    lines = [
        ("epoch", found.epoch),
        *(("before that", f"{epoch}, up to offset {end:,}") for epoch, end in found.lineage[::-1]),
        ("created", f"{datetime.fromtimestamp(found.created_at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"),
        ("format", found.format),
        ("commits", f"{found.commits:,}"),
        *(("opened", _openings_text(found)) for _ in found.runs[:1]),
        ("log", f"{span}, {found.chunks:,} chunks, {found.log_size_bytes:,} bytes"),
        ("messages", f"{found.messages:,}"),
        *((f"kept of {archive.stream}", _archive_text(archive)) for archive in found.archives),
        ("sessions", f"{found.sessions:,} with {found.subscriptions:,} subscriptions"),
        ("waiting", f"{found.queued:,} in queues, {found.in_flight:,} in flight"),
        *(("given up", range_in_words(begin, end)) for begin, end in found.given_up),
        ("retained", f"{found.retained:,}"),
        ("wills", f"{found.wills:,}"),
    ]
    problems = len(found.problems) + found.problems_unlisted
    if problems:
        lines.append(("problems", f"{problems:,}: see 'penstock store check'"))
    return lines


def _openings_text(found: Examination) -> str:
    newest = [f"{run.begin:,}" for run in found.runs[1:]][-_OPENINGS_SHOWN:]
    return f"for writing at offset {', '.join(newest)}"


def _archive_text(archive: Archive) -> str:
    span = f"offsets {archive.begin:,} to {archive.end:,} (excluded)"
    text = f"{span}, {archive.messages:,} messages, {archive.size_bytes:,} bytes"
    return text if archive.is_open else f"{text}; no stream reads them"


@app.command()
def backup(
    destination: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Directory to create, for instance by date.")
    ],
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Write a copy of the store; its broker may be running.

    The copy has everything that was acknowledged before. A path in the same file system takes
    almost no space or time (hard links); copy it elsewhere then.
    """
    from penstock.control.client import BrokerUnreachable, ask_for_backup

    directory = _directory(config, data_dir)
    try:
        manifest = ask_for_backup(directory, destination)
    except BrokerUnreachable:
        from penstock.store.backup import back_up_offline

        manifest = back_up_offline(directory, destination)
    print(
        f"wrote {destination}: epoch {manifest.epoch}, offsets {manifest.begin} to"
        f" {manifest.end} (excluded), {manifest.commits:,} commits"
    )


@app.command()
def restore(source: BackupDir, config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Create a store from a backup, in a new epoch. There must be no store yet."""
    from penstock.store.backup import restore as restore_store

    directory = _directory(config, data_dir)
    manifest, epoch = restore_store(source, directory)
    print(
        f"restored {directory} as it was at {manifest.made_at}: what was acknowledged since then is"
        " not in it\n"
        f"the log continues at offset {manifest.end}, in the new epoch {epoch}: {_READERS_ADVICE}"
    )


_CONSEQUENCES: Final = {
    "meta": "sequence numbers of producers may be lost: such a producer is not known any more, and"
    " may publish messages again that are in the log; see docs/producers.md",
    "sessions": "sessions may be lost: their clients begin new ones, and subscribe again",
    "subscriptions": "subscriptions may be lost, of sessions that are kept: let clients subscribe"
    " again, even if the broker says that their session is present",
    "queue": "messages that waited for clients may be lost to them",
    "progress": "messages in flight may be sent again, or be lost to their client",
    "retained": "retained messages may be lost: let them be published again",
    "wills": "wills may be lost, until their clients connect again",
    "archive": "messages that a stream keeps longer than the log may be lost to its readers",
}
"""The consequence of an incomplete column family, by its name."""


@app.command()
def repair(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be lost; change nothing.")
    ] = False,
) -> None:
    """Continue with the undamaged part of a store; the damaged store is kept beside it.

    If messages are lost, the log continues in a new epoch, so that its readers notice. A store that
    lost nothing is left as it is. No broker may be running.
    """
    from penstock.store.repair import repair as repair_store

    directory = _directory(config, data_dir)
    with store_progress() as report:
        repaired = repair_store(directory, dry_run, report)
    found = repaired.examination
    if found is not None and not found.problems:
        print(f"the store in {directory} has lost nothing; it was left as it is")
        return
    if found is not None:
        _print_problems(found)
        _print_losses(found)
    if dry_run:
        print(f"the store in {directory} was left as it is; without --dry-run it is repaired")
        return
    _print_repaired(directory, repaired)


def _print_losses(found: Examination) -> None:
    from penstock.store.ranges import range_in_words

    print(f"kept: {found.messages:,} messages, {found.sessions:,} sessions")
    if found.lost_ranges:
        count = sum(end - begin for begin, end in found.lost_ranges)
        ranges = ", ".join(range_in_words(begin, end) for begin, end in found.lost_ranges)
        print(f"given up: {count:,} messages, {ranges}")
    elif found.loss is not None:
        print(f"given up: {found.loss}")
    if found.lost_archive_ranges:
        ranges = ", ".join(range_in_words(begin, end) for begin, end in found.lost_archive_ranges)
        print(f"given up in archives of streams: messages with the {ranges}")
    for client_id, count in sorted(found.removed_messages.items()):
        print(f"removed from the queue of {client_id!r}, because their bodies are lost: {count:,}")
    for family, consequence in _CONSEQUENCES.items():
        if family in found.incomplete_families:
            print(consequence)


def _print_repaired(directory: Path, repaired: RepairResult) -> None:
    if repaired.moved_paths:
        names = " and ".join(str(path) for path in repaired.moved_paths)
        print(
            f"the damaged store is kept as {names}, {repaired.moved_bytes:,} bytes: remove it when"
            " nothing more is to be saved from it"
        )
    if repaired.is_new_epoch:
        print(
            f"repaired {directory}: the log continues at offset {repaired.end}, in the new epoch"
            f" {repaired.epoch}: {_READERS_ADVICE}"
        )
    else:
        print(
            f"repaired {directory}: the log has lost nothing; it continues at offset {repaired.end}"
        )


@contextmanager
def store_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the progress as a bar on standard error, if that is a
    terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from penstock.cli.screen import Screen

    console = Screen(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("reading", total=None)
        yield lambda step, done, total: bar.update(
            task, description=step, completed=done, total=total
        )


@app.command()
def fork(
    at: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", help="The first offset of the new epoch; else the log's end.", min=0
        ),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would happen; change nothing.")
    ] = False,
) -> None:
    """Let the log go on under a new epoch from an offset on; its broker may be running.

    For readers that have messages from that offset on which this log does not have, because an
    older copy of the data directory was put back. The log keeps all its messages. Where the broker
    knows the offset, it does this by itself when such a reader comes. It also says that the copy is
    meant to be used: bridges and outboxes that were refused because of it go on.
    """
    from penstock.config.load import load_settings
    from penstock.control.client import BrokerUnreachable, ask
    from penstock.control.history_requests import ForkLog, LogForked
    from penstock.errors import StoreError
    from penstock.store.forking import fork_offline

    settings = load_settings(config, {"durability.data_dir": data_dir})
    directory = settings.durability.data_dir
    forked: LogForked | Fork
    try:
        begins_at = at
        if begins_at is None:
            begins_at = ask(directory, ForkLog(0, is_dry_run=True), LogForked).end
        forked = ask(directory, ForkLog(begins_at, is_dry_run=dry_run), LogForked)
    except BrokerUnreachable:
        if settings.cluster.enabled:
            raise StoreError(
                "the primary of the cluster forks its log: run this on its machine while it runs"
            ) from None
        forked = fork_offline(directory, at, dry_run)
    _print_fork(directory, forked, dry_run)


def _print_fork(directory: Path, forked: LogForked | Fork, dry_run: bool) -> None:
    count = forked.end - forked.at
    print(
        f"the log keeps all its messages; {count:,} of them, from offset {forked.at} on, are of a"
        f" new epoch\nreaders of the epoch {forked.former_epoch} go on where they are, up to offset"
        f" {forked.at}; one that is beyond goes on there, unless its mark is of this log's history."
        " What it has beyond is of a history that this log does not have: tables keep those rows"
    )
    if dry_run:
        print(f"the store in {directory} was left as it is; without --dry-run its log is forked")
    else:
        print(f"forked: the log continues at offset {forked.end}, in the new epoch {forked.epoch}")


@app.command()
def forget(
    stream: Annotated[str, typer.Argument(help="Name of the stream.")],
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Remove the archive of a stream that is no longer configured, or is configured differently.

    No broker may be running. The archive of a stream as it is configured now stays.
    """
    from penstock.store.archive_removal import forget as forget_stream

    for archive in forget_stream(_directory(config, data_dir), stream):
        print(
            f"removed {archive.messages:,} messages of {stream}, {archive.size_bytes:,} bytes: its"
            f" offsets {archive.begin} to {archive.end} (excluded);"
            " 'penstock store compact' gives the space back at once"
        )


@app.command()
def compact(config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Give back the space of removed data. No broker may be running."""
    from penstock.store.compaction import compact as compact_store

    directory = _directory(config, data_dir)
    before, after = compact_store(directory)
    print(f"compacted {directory}: {before:,} bytes before, {after:,} after")


_READERS_ADVICE: Final = (
    "queries and tables go on by themselves, and 'penstock tables status' counts rows that the log"
    " no longer has"
)


def _directory(config: Path | None, data_dir: Path | None) -> Path:
    from penstock.config.load import load_settings

    return load_settings(config, {"durability.data_dir": data_dir}).durability.data_dir
