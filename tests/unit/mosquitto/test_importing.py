"""A database becomes a store, whole or not at all, and what it holds is there after a start."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from penstock.engine.batch.commit import Commit
from penstock.engine.values.clock import MICROSECONDS
from penstock.engine.values.records import RecoveredState, SessionRecord, ids_in
from penstock.errors import ConfigError, StoreUnavailable
from penstock.mosquitto import importing, sessions
from penstock.mosquitto.database import QUEUED, WAIT_FOR_PUBACK, WAIT_FOR_PUBCOMP, WAIT_FOR_PUBREL
from penstock.mosquitto.findings import MISSING
from penstock.mosquitto.importing import ImportRequest, ImportResult, import_mosquitto
from penstock.store.examination import examine
from penstock.store.rocks import RocksStore
from tests.support.mosquitto_database import (
    client,
    client_message,
    database,
    message,
    retained,
    subscription,
)

NEVER: Final = 4_294_967_295
NOW_S: Final = int(time.time())
EXPIRES_S: Final = NOW_S + 80_000  # long after this file was imported, on the slowest machine
CHUNKS: Final = (
    message(1, "plant/old", b"retained", 1, retain=True),
    message(2, "plant/n", b"two", 2),
    message(3, "plant/n", b"three", 1),
    message(4, "plant/n", b"four", 0),
    message(5, "plant/gone", b"five", 1, expires_at_s=NOW_S - 60),
    message(6, "half", b"six", 2),
    message(7, "half", b"seven", 2),
    client("alice", 86_400, expires_at_s=EXPIRES_S, port=1884, user="alice"),
    client_message("alice", 2, 7, 2, WAIT_FOR_PUBCOMP, is_repeat=True),
    client_message("alice", 3, 8, 1, WAIT_FOR_PUBACK, is_repeat=True),
    client_message("alice", 5, 9, 1, QUEUED),
    client_message("alice", 4, 0, 0, QUEUED),
    client_message("alice", 1, 10, 1, QUEUED, is_retained=True),
    subscription("alice", "plant/#", 2),
    client("bob", NEVER, port=9),
    client_message("bob", 6, 9, 2, WAIT_FOR_PUBREL, is_incoming=True),
    client_message("bob", 7, 10, 2, QUEUED, is_incoming=True),  # he got no PUBREC for it
    client("late", 60, expires_at_s=NOW_S - 10),
    client_message("late", 3, 1, 1, QUEUED),
    retained(1),
    retained(5),
)


@pytest.fixture
def wanted(tmp_path: Path) -> ImportRequest:
    (tmp_path / "mosquitto.conf").write_text(
        f"listener 1883 127.0.0.1\nlistener 1884 127.0.0.1\nallow_anonymous true\n"
        f"persistence true\npersistence_location {tmp_path}/\nmax_queued_messages 1\n"
    )
    (tmp_path / "mosquitto.db").write_bytes(database(6, *CHUNKS))
    return ImportRequest(tmp_path / "mosquitto.conf", tmp_path / "to")


def run(wanted: ImportRequest) -> ImportResult:
    told: list[tuple[str, int, int]] = []
    imported = import_mosquitto(wanted, lambda *progress: told.append(progress))
    assert {what for what, done, total in told if done == total} == {
        "reading the database",
        "making the store",
    }
    return imported


def recovered(imported: ImportResult) -> tuple[RecoveredState, dict[int, bytes]]:
    """What a start finds, and the bodies in the log."""
    assert imported.data_dir is not None
    assert examine(imported.data_dir).problems == []
    store = RocksStore(imported.data_dir, ())
    try:
        found = store.recover()
        bodies = store.read(range(found.next_offset))
        assert all(one.internal is (one.topic != "half") for one in bodies.values())
        return found, {offset: one.payload for offset, one in bodies.items()}
    finally:
        store.close()


def session(found: RecoveredState, client_id: str) -> SessionRecord:
    (one,) = [record for record in found.sessions if record.client_id == client_id]
    return one


def test_a_start_finds_what_the_database_held(wanted: ImportRequest) -> None:
    imported = run(wanted)
    found, bodies = recovered(imported)
    alice, bob = session(found, "alice"), session(found, "bob")
    assert (alice.username, alice.is_owner_known, alice.limits_name) == ("alice", True, "port-1884")
    assert (bob.username, bob.is_owner_known, bob.limits_name) == (None, False, "main")
    assert alice.expiry_interval_s == 86_400
    left_s = alice.disconnected_at_us // MICROSECONDS + 86_400 - EXPIRES_S
    assert abs(left_s) <= 1
    progress = found.progress[alice.number]
    window = [(entry[0], entry[1], bodies[entry[3]]) for entry in progress.in_flight()]
    assert window == [(7, 3, b"two"), (8, 1, b"three")]
    queued = [bodies[offset] for run in found.queues[alice.number] for offset in run.offsets]
    assert queued[0] == b"retained"  # it waits behind what was published later
    assert len(found.sessions) == 2
    assert [one.topic_filter for one in found.subscriptions] == ["plant/#"]
    assert [one.payload for one in found.retained] == [b"retained"]
    assert list(ids_in(found.progress[bob.number].inbound)) == [9]
    assert [body for body in bodies.values() if body in (b"six", b"seven")] == [b"six"]
    assert found.clock is not None


def test_the_report_counts_what_did_not_come_over(wanted: ImportRequest) -> None:
    imported = run(wanted)
    report = (wanted.directory / "report.txt").read_text()
    assert "\n".join(imported.findings.report()) in report
    for line in (
        "sessions: 2",
        "messages in flight: 2",
        "messages in queues: 1",
        "QoS 0 messages in queues, which Penstock keeps in memory only: 1",
        "messages in queues, expired: 1",
        "retained messages, expired: 1",
        "sessions, expired: 1",
        "messages for sessions, expired: 1",
        "messages without PUBREC, which their clients send again: 1",
        f"{sessions.WITHOUT_SUBSCRIPTIONS}: 1",
    ):
        assert f"  {line}\n" in report, line


def test_the_files_are_for_their_owner_only(wanted: ImportRequest) -> None:
    for file in run(wanted).files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_nothing_is_written_over(wanted: ImportRequest, tmp_path: Path) -> None:
    run(wanted)
    with pytest.raises(ConfigError, match="--force"):
        run(wanted)
    again = ImportRequest(wanted.configuration, wanted.directory, tmp_path / "other", force=True)
    assert run(again).data_dir == tmp_path / "other"
    store = ImportRequest(wanted.configuration, tmp_path / "third", tmp_path / "other", force=True)
    with pytest.raises(ConfigError, match="a store is never replaced"):
        run(store)
    assert not store.directory.exists()


@pytest.mark.parametrize("fails", ["import_sessions", "_publish"])
def test_an_import_that_ends_halfway_leaves_no_half(
    wanted: ImportRequest, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(importing, fails)

    def end_in_it(*arguments: object) -> None:
        if fails == "import_sessions":
            whole(*arguments)  # the store is written, and not in its place yet
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(importing, fails, end_in_it)
    with pytest.raises(StoreUnavailable):
        run(wanted)
    assert not (tmp_path / "to" / "penstock.toml").exists()
    assert list(tmp_path.glob("**/.importing-*")) == []
    assert (tmp_path / "to" / "data").exists() is (fails == "_publish")


def test_a_database_that_is_not_there_is_told(wanted: ImportRequest, tmp_path: Path) -> None:
    (tmp_path / "mosquitto.db").unlink()
    imported = import_mosquitto(wanted, print)
    assert imported.data_dir is None
    (told,) = [one for one in imported.findings.all if "no database" in one.text]
    assert (told.kind, told.text) == (MISSING, f"no database {tmp_path}/mosquitto.db")


def test_settings_that_the_broker_would_refuse_are_not_written(
    wanted: ImportRequest, tmp_path: Path
) -> None:
    twice = "listener 1883 127.0.0.1\nlistener 1883 127.0.0.1\nallow_anonymous true\n"
    wanted.configuration.write_text(twice)
    with pytest.raises(ConfigError, match=r"nothing was written: .*127\.0\.0\.1:1883"):
        import_mosquitto(wanted, print)
    wanted.configuration.write_text("persistence false\n")
    given = ImportRequest(
        wanted.configuration, wanted.directory, database=tmp_path / "mosquitto.db"
    )
    with pytest.raises(ConfigError, match="persistence false"):
        import_mosquitto(given, print)
    assert not wanted.directory.exists()


def test_a_large_message_comes_over_whole(wanted: ImportRequest, tmp_path: Path) -> None:
    large = bytes(range(256)) * 12_000  # parts of 1 MiB in the store
    chunks = (
        message(1, "plant/large", large, 1, retain=True),
        client("alice", NEVER),
        client_message("alice", 1, 0, 1, QUEUED),
        retained(1),
    )
    (tmp_path / "mosquitto.db").write_bytes(database(6, *chunks))
    found, bodies = recovered(run(wanted))
    assert list(bodies.values()) == [large]
    assert [one.payload for one in found.retained] == [large]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_a_message_that_is_in_queues_again_and_again_does_not_fill_the_disk(
    wanted: ImportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was a copy of its own, all in one commit: 240 MB of 1 MB, and then OverflowError."""
    monkeypatch.setattr(sessions, "_COPIES_BYTES_MIN", 0)
    monkeypatch.setattr(sessions, "_COMMIT_BYTES", 500_000)
    commits: list[Commit] = []
    commit = RocksStore.commit

    def counted(store: RocksStore, one: Commit) -> None:
        commits.append(one)
        commit(store, one)

    monkeypatch.setattr(RocksStore, "commit", counted)
    chunks = [message(1, "plant/old", bytes(100_000), 1), message(2, "plant/n", bytes(100_000), 1)]
    for name in ("alice", "bob"):
        chunks.append(client(name, NEVER, port=1883))
        chunks += [client_message(name, number, 0, 1, QUEUED) for number in (2, 1, 1, 1, 1, 1, 1)]
    (tmp_path / "mosquitto.db").write_bytes(database(6, *chunks))
    imported = run(wanted)
    found, bodies = recovered(imported)
    for name in ("alice", "bob"):  # they share the copies
        queues = found.queues[session(found, name).number]
        queued = [bodies[offset] for run in queues for offset in run.offsets]
        assert len(queued) == 1 + 4
    assert len(bodies) == 2 + 4
    assert len(commits) > 1  # in the middle of a queue
    report = (wanted.directory / "report.txt").read_text()
    assert "messages in queues, repeated without end: 4" in report


def test_the_user_of_the_broker_whose_directories_are_there_may_read_all(
    wanted: ImportRequest, tmp_path: Path
) -> None:
    for name, owner in (("broker", 1234), ("to", 0)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, owner, 1234)
    imported = run(ImportRequest(wanted.configuration, wanted.directory, tmp_path / "broker"))
    made = imported.data_dir
    assert made is not None
    assert {path.stat().st_uid for path in (made, *made.rglob("*"))} == {1234}
    for file in imported.files:
        found = file.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 1234, 0o640)


def test_limits_have_room_for_the_queues_that_come_over(wanted: ImportRequest) -> None:
    run(wanted)  # one message in the queue and two in flight, of max_queued_messages 1
    settings = load_settings(wanted.directory / "penstock.toml", environ={})
    assert settings.limits.max_mqueue_len == 4  # one that had expired is counted
    assert settings.limits.max_mqueue_bytes == 0


def test_a_database_saved_while_mosquitto_ran_is_told(
    wanted: ImportRequest, tmp_path: Path
) -> None:
    (tmp_path / "mosquitto.db").write_bytes(database(6, *CHUNKS, is_final=False))
    assert any("saved while Mosquitto" in one.text for one in run(wanted).findings.all)
