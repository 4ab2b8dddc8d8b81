"""The import as a whole: everything is read, then written beside its place, then renamed there.

::

      read configuration, users, access list, database ─▶ a stage beside DIR
         ─▶ penstock.toml is read as the broker reads it
         ─▶ the store is made beside its place, and renamed
         ─▶ the files are renamed into DIR, penstock.toml last

Killed at any point, it leaves whole files or none, and a whole store or none; what it made beside
them is named ``.importing-…`` and may be removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.auth.files import load_user_files, write_passwords
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.mosquitto.configuration import Configuration, read_configuration
from penstock.mosquitto.database import Snapshot, read_database
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings
from penstock.mosquitto.sessions import import_sessions
from penstock.mosquitto.translation import Translation
from penstock.mosquitto.users import ACCESS_LIST_FILE, USERS_FILE

SETTINGS_FILE: Final = "penstock.toml"
REPORT_FILE: Final = "report.txt"
_STAGE: Final = ".importing-"
_DATABASE: Final = "mosquitto.db"

Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it, and how much there is."""


@dataclass(frozen=True)
class ImportRequest:
    """The files to import, and the place for the result.

    Attributes:
        configuration: Mosquitto's configuration file.
        directory: the place of penstock.toml and the files beside it.
        data_dir: the place of the store; None for ``data`` in ``directory``.
        database: Mosquitto's database; None for the one that the configuration names.
        force: replace files that are there; a store is never replaced.
    """

    configuration: Path
    directory: Path
    data_dir: Path | None = None
    database: Path | None = None
    force: bool = False


@dataclass(frozen=True)
class ImportResult:
    """The result of an import.

    Attributes:
        findings: the findings of all lines.
        files: the files that were written.
        data_dir: the store that was made; None without one.
    """

    findings: Findings
    files: list[Path]
    data_dir: Path | None


def import_mosquitto(request: ImportRequest, progress: Progress) -> ImportResult:
    """Import a configuration of Mosquitto's, and its database where there is one.

    Raises:
        ConfigError: a file cannot be read or written, is damaged, or is there already.
        StoreError: the disk is full, or fails.
    """
    directory = request.directory.absolute()
    data_dir = (request.data_dir or directory / "data").absolute()
    _refuse_what_is_there(request, directory, data_dir)
    configuration = read_configuration(request.configuration.absolute())
    kept_in = _database_of(configuration)
    database = request.database or kept_in
    if database is not None and request.database is None and not _is_there(database):
        database = None
    snapshot: Snapshot | None = None
    if database is not None:
        snapshot = read_database(
            database, lambda done, total: progress("reading the database", done, total)
        )
    client_ids = frozenset() if snapshot is None else frozenset(snapshot.clients)
    translation = Translation(configuration, client_ids, directory)
    translation.set_data_dir(str(data_dir), "where the store is")
    if snapshot is not None:
        translation.make_room_for(*snapshot.largest_queue())
    _note_database(kept_in if database is None else database, snapshot, translation.findings)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=directory.parent))
    except OSError as error:
        raise ConfigError(f"{directory.parent} cannot be written: {_reason(error)}.") from None
    try:
        settings = _write_stage(translation, stage, directory)
        _refuse_memory(settings, request)
        if snapshot is not None:
            _make_store(snapshot, settings, data_dir, translation, progress)
        report = _report(request, translation.findings)
        _write(stage / REPORT_FILE, report)
        files = _publish(stage, directory)
    except OSError as error:
        place = error.filename2 or error.filename or directory
        raise ConfigError(f"{place} cannot be written: {_reason(error)}.") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return ImportResult(translation.findings, files, data_dir if snapshot is not None else None)


def _refuse_what_is_there(request: ImportRequest, directory: Path, data_dir: Path) -> None:
    try:
        _refuse(request, directory, data_dir)
    except OSError as error:
        place = error.filename or directory
        raise ConfigError(f"{place} cannot be read: {_reason(error)}.") from None


def _refuse(request: ImportRequest, directory: Path, data_dir: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is no directory: choose another one with --to.")
    names = (SETTINGS_FILE, USERS_FILE, ACCESS_LIST_FILE, REPORT_FILE)
    there = [name for name in names if (directory / name).exists()]
    if there and not request.force:
        raise ConfigError(
            f"{directory} has {', '.join(there)} already: choose another directory, or replace what"
            " is there with --force."
        )
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise ConfigError(
            f"{data_dir} is there already, and a store is never replaced: move it away, or choose"
            " another directory with --data-dir."
        )


def _database_of(configuration: Configuration) -> Path | None:
    """Return the database that the configuration names; None where Mosquitto keeps nothing."""
    kept = configuration.last("persistence") or configuration.last("retained_persistence")
    if kept is None or kept.value.split()[:1] not in (["true"], ["1"]):
        return None
    location = configuration.last("persistence_location")
    name = configuration.last("persistence_file")
    return Path(location.value if location else "") / (name.value if name else _DATABASE)


def _is_there(database: Path) -> bool:
    try:
        database.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"Mosquitto's database {database} cannot be read: {_reason(error)}."
        ) from None
    return True


def _note_database(database: Path | None, snapshot: Snapshot | None, found: Findings) -> None:
    if database is None:
        found.note(
            SAME,
            "",
            "no database",
            "Mosquitto kept nothing on disk, so there are no sessions and retained messages.",
        )
    elif snapshot is None:
        found.note(
            MISSING,
            "",
            f"no database {database}",
            "There is none to bring sessions, queues and retained messages from: --database names"
            " one that is elsewhere.",
        )
    elif not snapshot.is_final:
        found.note(
            DIFFERS,
            str(database),
            f"format {snapshot.format}, saved while Mosquitto was running",
            "What happened since is not in it: stop Mosquitto, which saves it once more, and import"
            " again.",
        )


# -- the files -----------------------------------------------------------------------------------


def _refuse_memory(settings: Settings, request: ImportRequest) -> None:
    if request.database is not None and settings.durability.persistence == "memory":
        raise ConfigError(
            f"{request.configuration} has `persistence false`, so the broker would not read the"
            " store that --database makes: leave out one of them. Nothing was written."
        )


def _write_stage(translation: Translation, stage: Path, directory: Path) -> Settings:
    """Write all files but the report, and read them as the broker will.

    Raises:
        ConfigError: a file cannot be written, or the broker would refuse the result.
    """
    access = translation.access
    if access.users is not None:
        write_passwords(stage / USERS_FILE, access.users)
    if access.rules is not None:
        text = "\n".join(access.rules).rstrip("\n") + "\n"
        _write(stage / ACCESS_LIST_FILE, text)
    for name, text in translation.bundles.items():
        _write(stage / name, text)
    _write(stage / SETTINGS_FILE, translation.toml())
    try:
        settings = load_settings(stage / SETTINGS_FILE, environ={})
        load_user_files(
            str(stage / USERS_FILE) if access.users is not None else "",
            str(stage / ACCESS_LIST_FILE) if access.rules is not None else "",
        )
    except ConfigError as error:
        told = str(error).replace(str(stage), str(directory))
        raise ConfigError(
            f"What Mosquitto's configuration says makes no settings of Penstock's, and nothing was"
            f" written: {told}"
        ) from None
    return settings


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # a bridge's password may be in it
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _publish(stage: Path, directory: Path) -> list[Path]:
    """Rename the files of the stage into ``directory``, the settings last; return them.

    In a directory of another group, which is the broker's user's, that group may read them.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    group = directory.stat().st_gid
    names = sorted(path.name for path in stage.iterdir())
    names.sort(key=lambda name: name == SETTINGS_FILE)
    for name in names:
        if group != os.getegid():
            with contextlib.suppress(PermissionError):  # who is not of that group may not
                os.chown(stage / name, -1, group)
                (stage / name).chmod(0o640)
        (stage / name).replace(directory / name)
    return [directory / name for name in names]


def _report(request: ImportRequest, findings: Findings) -> str:
    head = [f"What became of {request.configuration.absolute()}: `penstock import mosquitto`", ""]
    return "\n".join(head + findings.report()) + "\n"


# -- the store -----------------------------------------------------------------------------------


def _make_store(
    snapshot: Snapshot,
    settings: Settings,
    data_dir: Path,
    translation: Translation,
    progress: Progress,
) -> None:
    """Make the store beside its place, and rename it there."""
    data_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=_STAGE, dir=data_dir.parent))
    try:
        imported = import_sessions(
            snapshot,
            settings,
            made,
            translation.zones,
            translation.bridges,
            lambda done, total: progress("making the store", done, total),
        )
        if data_dir.exists():
            _hand_over(made, data_dir.stat())
            data_dir.rmdir()  # an empty one
        made.rename(data_dir)
        _sync(data_dir.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    findings = translation.findings
    for what, count in imported.counts.items():
        findings.note(TAKEN, "", f"{what}: {count:,}", f"in the store in {data_dir}.")
    for what, count in imported.left.items():
        if count:
            findings.note(MISSING, "", f"{what}: {count:,}", "They are not in the store.")


def _hand_over(made: Path, before: os.stat_result) -> None:
    """Give the store to the owner of the empty directory in its place: the broker's user."""
    if before.st_uid == os.geteuid():
        return
    with contextlib.suppress(PermissionError):  # only root may
        for directory, names, files in os.walk(made):
            os.chown(directory, before.st_uid, before.st_gid)
            for name in (*names, *files):
                os.chown(Path(directory) / name, before.st_uid, before.st_gid)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
