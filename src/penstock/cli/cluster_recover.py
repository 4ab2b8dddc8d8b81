"""`penstock cluster recover`: let a store begin a new history of the cluster.

For a log that lost entries, and for a cluster whose members cannot begin one by themselves
(docs/cluster.md). It is the word of an operator: without ``--yes`` it only says what is given up.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, DataDir
from penstock.cli.stopped_member import heard_beats, open_stopped_member
from penstock.errors import ConfigError, PenstockError, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from penstock.cluster.histories import Word
    from penstock.cluster.record import Position
    from penstock.cluster.recovering import FoundLog, FoundStore
    from penstock.config.settings import Settings

Source = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Data directory of a member that does not run, or a backup; else this member's own.",
    ),
]
Empty = Annotated[
    bool, typer.Option("--empty", help="Begin with nothing: this member has no store.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; otherwise only say what is given up.")]


def recover(
    source: Source = None,
    empty: Empty = False,
    yes: Yes = False,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Let the store of this member, which must be stopped, begin a new history of the cluster.

    Says what it has, and what is given up of the log and of the other members. With --yes the store
    begins the history when this member is started; the others take copies of it. Readers go on in a
    new epoch. If the log has gone on until then, the member ends and gives nothing up. It is
    refused while another member that is heard is the primary of a log that is there, or has begun a
    newer history that contains this store.
    """
    from penstock.cluster.histories import Word
    from penstock.cluster.recovering import consequences, obstacle

    settings = open_stopped_member(config, data_dir)
    directory = settings.durability.data_dir
    place = directory if source is None else source
    store = _read_store(place)
    if empty and (store.epoch or source is not None):
        raise ConfigError(f"--empty begins with nothing, and there is a store in {place}")
    if not empty and not store.epoch:
        raise StoreError(
            f"there is no store in {place}: name another with --from DIR, or begin with nothing:"
            " --empty"
        )
    cluster = settings.cluster
    beats = {}
    for heard in heard_beats(cluster):
        beats = heard
        if set(cluster.members) <= {cluster.node_name, *beats}:
            break
    log = _find_log(settings, store.position)
    if (refusal := obstacle(store, log, beats)) is not None:
        raise StoreError(refusal)
    others = [name for name in cluster.members if name != cluster.node_name]
    for sentence in consequences(store, log, beats, others):
        print(sentence)
    if not yes:
        print("nothing was changed: run it again with --yes")
        return
    if source is not None and source.resolve() != directory.resolve():
        _copy_store(source, directory)
    epoch = _begin(directory, Word(None if log.bounds is None else log.bounds.last))
    named = f"epoch {epoch}" if epoch else "an epoch of its own"
    print(
        f"the store in {directory} begins a new history of the cluster, with {named}: start this"
        " member now, then the others; those whose stores it does not contain keep them beside, or"
        " refuse to start until 'penstock cluster reseed'"
    )


def _read_store(data_dir: Path) -> FoundStore:
    from penstock.cluster.record import Position
    from penstock.cluster.recovering import FoundStore
    from penstock.cluster.view import read_position
    from penstock.store.database import has_database, open_for_reading
    from penstock.store.identity import find_begin, find_end, read_epoch

    if not has_database(data_dir):
        return FoundStore("", Position(), 0, 0)
    database = open_for_reading(data_dir)
    try:
        return FoundStore(
            read_epoch(database) or "",
            read_position(database),
            find_begin(database),
            find_end(database),
        )
    finally:
        database.close()


def _find_log(settings: Settings, position: Position) -> FoundLog:
    from penstock.cluster.connecting import connector_for
    from penstock.cluster.reading import READ_S
    from penstock.cluster.record import checksum_of
    from penstock.cluster.recovering import FoundLog

    log = connector_for(settings.cluster).log("recover")
    try:
        with contextlib.suppress(PenstockError):
            log.open(READ_S)
            bounds = log.bounds(READ_S)
            entry = log.entry_at(position.sequence, READ_S) if position.sequence else None
            follows = entry is not None and checksum_of(entry.data) == position.checksum
            return FoundLog(bounds, follows)
    finally:
        log.close()
    return FoundLog(None, False)


def _copy_store(source: Path, data_dir: Path) -> None:
    """Put a copy of the store or backup in ``source`` in place of the one in ``data_dir``, which is
    kept beside."""
    import shutil

    from penstock.store.backup import back_up_offline
    from penstock.store.examination import examine
    from penstock.store.manifest import read_manifest
    from penstock.store.replacing import UNFINISHED_COPY, finish_replacement, mark_copy_ready

    unfinished = data_dir / UNFINISHED_COPY
    shutil.rmtree(unfinished, ignore_errors=True)
    problems = examine(source).problems
    if problems:
        raise StoreCorrupt(f"the store in {source} is damaged: {'; '.join(problems)}")
    if read_manifest(source) is None:
        back_up_offline(source, unfinished)
    else:
        shutil.copytree(source, unfinished)
    mark_copy_ready(data_dir, keep_old_store=True)
    kept = finish_replacement(data_dir)
    if kept is not None:
        print(f"the old store is kept as {kept}: remove it when nothing of it is needed")


def _begin(data_dir: Path, word: Word) -> str:
    """Let the store in ``data_dir`` begin a new history; return its epoch, empty for an empty
    store."""
    from penstock.cluster.histories import begin_history
    from penstock.store.database import open_database
    from penstock.store.identity import COMMITS, find_begin, find_end, read_counter
    from penstock.store.watermark import Watermark, write_watermark

    database = open_database(data_dir)
    try:
        epoch = begin_history(database, word)
        if epoch:
            end, begin = find_end(database), find_begin(database)
            commits = read_counter(database, COMMITS)
            write_watermark(data_dir, Watermark(end, begin, commits, epoch))
        return epoch
    finally:
        database.close()
