"""The import as a whole: read everything, write the result beside its place, then rename it there.

::

      read configuration, users, access list, database ─▶ a staging directory beside DIR
         ─▶ penstock.toml is read as the broker reads it
         ─▶ the store is made beside its place, and renamed
         ─▶ the files are renamed into DIR, penstock.toml last

An import that is killed leaves whole files or none, and a whole store or none; its temporary
directories are named ``.importing-…`` and may be removed.
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
from penstock.mosquitto.sessions import WITHOUT_SUBSCRIPTIONS, import_sessions
from penstock.mosquitto.translation import Translation
from penstock.mosquitto.users import ACCESS_LIST_FILE, USERS_FILE

SETTINGS_FILE: Final = "penstock.toml"
REPORT_FILE: Final = "report.txt"
_STAGING_PREFIX: Final = ".importing-"
_DATABASE_FILE: Final = "mosquitto.db"

Progress = Callable[[str, int, int], None]
"""Callback for progress: the step in words, the amount done, and the whole amount."""


@dataclass(frozen=True)
class ImportRequest:
    """The files to import, and where to write the result.

    Attributes:
        configuration: Mosquitto's configuration file.
        directory: directory of penstock.toml and the files beside it.
        data_dir: directory of the store; None for ``data`` in ``directory``.
        database: Mosquitto's database; None for the database that the configuration names.
        force: replace existing files; a store is never replaced.
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
        findings: the outcome for all lines.
        files: the files that were written.
        data_dir: directory of the new store; None without a database.
    """

    findings: Findings
    files: list[Path]
    data_dir: Path | None


def import_mosquitto(request: ImportRequest, progress: Progress) -> ImportResult:
    """Import a configuration of Mosquitto's, and its database if there is one.

    Raises:
        ConfigError: a file cannot be read or written, is damaged, or exists already.
        StoreError: the disk is full, or fails.
    """
    directory = request.directory.absolute()
    data_dir = (request.data_dir or directory / "data").absolute()
    _refuse_existing(request, directory, data_dir)
    configuration = read_configuration(request.configuration.absolute())
    configured_database = _database_of(configuration)
    database = request.database or configured_database
    if database is not None and request.database is None and not _exists(database):
        database = None
    snapshot: Snapshot | None = None
    if database is not None:
        snapshot = read_database(
            database, lambda done, total: progress("reading the database", done, total)
        )
    client_ids = frozenset() if snapshot is None else frozenset(snapshot.clients)
    translation = Translation(configuration, client_ids, directory)
    translation.set_data_dir(str(data_dir), "the directory of the store")
    if snapshot is not None:
        translation.raise_queue_limits(*snapshot.largest_queue())
    _note_database(
        configured_database if database is None else database, snapshot, translation.findings
    )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=directory.parent))
    except OSError as error:
        raise ConfigError(f"{directory.parent} cannot be written: {_reason(error)}.") from None
    try:
        settings = _write_stage(translation, stage, directory)
        _refuse_memory_store(settings, request)
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


def _refuse_existing(request: ImportRequest, directory: Path, data_dir: Path) -> None:
    """Refuse to write over files or a store that exist.

    Raises:
        ConfigError: files exist and the request does not say ``force``, or a store exists.
    """
    try:
        _check_targets(request, directory, data_dir)
    except OSError as error:
        place = error.filename or directory
        raise ConfigError(f"{place} cannot be read: {_reason(error)}.") from None


def _check_targets(request: ImportRequest, directory: Path, data_dir: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is no directory: choose another one with --to.")
    names = (SETTINGS_FILE, USERS_FILE, ACCESS_LIST_FILE, REPORT_FILE)
    existing = [name for name in names if (directory / name).exists()]
    if existing and not request.force:
        raise ConfigError(
            f"{directory} has {', '.join(existing)} already: choose another directory, or replace"
            " the files with --force."
        )
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise ConfigError(
            f"{data_dir} exists already, and a store is never replaced: move it away, or choose"
            " another directory with --data-dir."
        )


def _database_of(configuration: Configuration) -> Path | None:
    """Return the path of the database that the configuration names; None if Mosquitto writes
    none."""
    persistence = configuration.last("persistence") or configuration.last("retained_persistence")
    if persistence is None or persistence.value.split()[:1] not in (["true"], ["1"]):
        return None
    location = configuration.last("persistence_location")
    name = configuration.last("persistence_file")
    return Path(location.value if location else "") / (name.value if name else _DATABASE_FILE)


def _exists(database: Path) -> bool:
    try:
        database.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"Mosquitto's database {database} cannot be read: {_reason(error)}."
        ) from None
    return True


def _note_database(database: Path | None, snapshot: Snapshot | None, findings: Findings) -> None:
    if database is None:
        findings.note(
            SAME,
            "",
            "no database",
            "Mosquitto stored nothing on disk, so there are no sessions and retained messages.",
        )
    elif snapshot is None:
        findings.note(
            MISSING,
            "",
            f"no database {database}",
            "Without a database there are no sessions, queues and retained messages to import:"
            " --database names a file elsewhere.",
        )
    elif not snapshot.is_final:
        findings.note(
            DIFFERS,
            str(database),
            f"format {snapshot.format}, saved while Mosquitto was running",
            "The database lacks later changes: stop Mosquitto, which saves it once more, and import"
            " again.",
        )


# -- the files -----------------------------------------------------------------------------------


def _refuse_memory_store(settings: Settings, request: ImportRequest) -> None:
    if request.database is not None and settings.durability.persistence == "memory":
        raise ConfigError(
            f"{request.configuration} has `persistence false`, so the broker would not read the"
            " store that --database makes: leave out one of them. Nothing was written."
        )


def _write_stage(translation: Translation, stage: Path, directory: Path) -> Settings:
    """Write all files but the report into the staging directory, and return the settings that the
    broker will read from them.

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
        reason = str(error).replace(str(stage), str(directory))
        raise ConfigError(
            "Mosquitto's configuration cannot be translated into valid settings, and nothing was"
            f" written: {reason}"
        ) from None
    return settings


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # a bridge's password may be in it
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _publish(stage: Path, directory: Path) -> list[Path]:
    """Rename the files of the staging directory into ``directory``, the settings last; return their
    paths.

    If ``directory`` belongs to another group, that of the broker's user, the group may read the
    files.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    group = directory.stat().st_gid
    names = sorted(path.name for path in stage.iterdir())
    names.sort(key=lambda name: name == SETTINGS_FILE)
    for name in names:
        if group != os.getegid():
            with contextlib.suppress(PermissionError):  # only root and members of the group may
                os.chown(stage / name, -1, group)
                (stage / name).chmod(0o640)
        (stage / name).replace(directory / name)
    return [directory / name for name in names]


def _report(request: ImportRequest, findings: Findings) -> str:
    head = [f"The import of {request.configuration.absolute()} by `penstock import mosquitto`", ""]
    return "\n".join(head + findings.report()) + "\n"


# -- the store -----------------------------------------------------------------------------------


def _make_store(
    snapshot: Snapshot,
    settings: Settings,
    data_dir: Path,
    translation: Translation,
    progress: Progress,
) -> None:
    """Write the store beside ``data_dir``, and rename it there; add findings of what it has."""
    data_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=data_dir.parent))
    try:
        imported = import_sessions(
            snapshot,
            settings,
            staged,
            translation.listener_names,
            translation.bridges,
            lambda done, total: progress("making the store", done, total),
        )
        if data_dir.exists():
            _set_owner(staged, data_dir.stat())
            data_dir.rmdir()  # it is empty
        staged.rename(data_dir)
        _sync_directory(data_dir.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    findings = translation.findings
    for kind, count in imported.imported.items():
        findings.note(TAKEN, "", f"{kind}: {count:,}", f"in the store in {data_dir}.")
    for kind, count in imported.omitted.items():
        if count and kind == WITHOUT_SUBSCRIPTIONS:
            explanation = (
                "Clients that only publish have none. Mosquitto does not save those to $share/…:"
                " clients that had one must subscribe again."
            )
            findings.note(DIFFERS, "", f"{kind}: {count:,}", explanation)
        elif count:
            findings.note(MISSING, "", f"{kind}: {count:,}", "They are not in the store.")


def _set_owner(store: Path, owner: os.stat_result) -> None:
    """Give the store to the owner of the empty directory in its place: the broker's user."""
    if owner.st_uid == os.geteuid():
        return
    with contextlib.suppress(PermissionError):  # only root may
        for directory, names, files in os.walk(store):
            os.chown(directory, owner.st_uid, owner.st_gid)
            for name in (*names, *files):
                os.chown(Path(directory) / name, owner.st_uid, owner.st_gid)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
