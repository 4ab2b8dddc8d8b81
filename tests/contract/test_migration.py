"""A store of an older Penstock becomes one of this format, whenever the start is killed.

Nothing that was in flight or waited is lost, and nothing is there twice: neither in the store nor
for the clients, who finish what they were sent.
"""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from rocksdict import WriteBatch

from penstock.cli.store import _summary_pairs
from penstock.engine.batch.records import RecoveredState, SessionState
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.server.server import Server
from penstock.engine.session.inbound import ids_in
from penstock.engine.session.queue import PRIORITY_SHIFT
from penstock.engine.session.window import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC, PAGE_PLACES
from penstock.errors import StoreError, StoreFormatError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from penstock.store import migration
from penstock.store.backup import back_up_offline, restore
from penstock.store.database import FORMAT, FORMAT_KEY, PARTS_KEY, Database, open_database
from penstock.store.examination import examine
from penstock.store.identity import refuse_format
from penstock.store.migration import MIGRATING
from penstock.store.parts import LARGE_BYTES
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from tests.contract.test_store import rows
from tests.model.shell import Shell
from tests.support.broker import environment
from tests.support.crash_image import copy_running
from tests.support.format_1 import FormerSession, write_sessions

MESSAGES: Final = 2000
LENGTHS: Final = (0, 1, PAGE_PLACES - 1, PAGE_PLACES, PAGE_PLACES + 1, 40, 333)  # of windows
WAITING: Final = 5
NOW: Final = Now(1000.0, 1_800_000_000_000_000)
STATES: Final = (AWAIT_PUBACK, AWAIT_PUBREC, AWAIT_PUBCOMP)

State: TypeAlias = dict[int, tuple[object, ...]]


class Killed(BaseException):
    """The process dies here."""


def former_session(number: int, length: int) -> FormerSession:
    window: list[tuple[int, int, int, int, int, bool, tuple[int, ...]]] = []
    for place in range(length):
        state = STATES[(number + place) % 3]
        sequence = place + 1 if place % 5 else ((3 << PRIORITY_SHIFT) + place + 1)
        offset = (number * 37 + place) % (MESSAGES - 100)
        ids = (place + 1,) if place % 7 == 0 else ()
        qos = 1 if state == AWAIT_PUBACK else 2
        window.append((65_535 - 3 * place, state, sequence, offset, qos, place % 2 == 0, ids))
    head = length + 1
    return FormerSession(
        f"c{number}",
        number,
        head,
        head + WAITING,
        window,
        [] if number % 2 else [100 + place for place in range(length)],
        [(entry[2], "$share/g/t", 2, True) for entry in window[::4]],
        [number, 65_535, number * 31 + 64],
        [MESSAGES - 50 + place for place in range(WAITING)],
        [(3, (3 << PRIORITY_SHIFT) + length + 1, (3 << PRIORITY_SHIFT) + length + 1)],
        [],
        head,
    )


SESSIONS: Final = [
    former_session(number, length)
    for number, length in enumerate(LENGTHS * 2, start=1)  # with sizes and without
]


def expected() -> State:
    found: State = {}
    for one in SESSIONS:
        shared = {sequence: tuple(kind) for sequence, *kind in one.shared}
        sizes = one.sizes or [0] * len(one.window)
        entries = [
            (*entry, size, shared.get(entry[2]))
            for entry, size in zip(one.window, sizes, strict=True)
        ]
        waiting = [(one.head + place, offset) for place, offset in enumerate(one.waiting)]
        found[one.number] = (
            *(one.head, one.following, sorted(one.inbound), one.lanes, one.held, one.sent_below),
            entries,
            waiting,
        )
    return found


def state_of(recovered: RecoveredState) -> State:
    return {
        number: (
            *(
                kept.queue_head,
                kept.next_sequence,
                ids_in(kept.inbound),
                kept.lanes,
                kept.unreleased,
            ),
            kept.sent_below,
            kept.in_flight(),
            [
                (run.first + place, offset)
                for run in recovered.queues.get(number, [])
                for place, offset in enumerate(run.offsets)
            ],
        )
        for number, kept in recovered.progress.items()
    }


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a store of format 1."""
    data_dir = tmp_path_factory.mktemp("former") / "data"
    store = RocksStore(data_dir)
    for first in range(0, MESSAGES, 500):
        store.commit(rows(first, 500))
    store.close()
    write_sessions(data_dir, SESSIONS)
    return data_dir


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    portion: Any = migration.migrate.__defaults__
    assert portion == (migration.PORTION_BYTES,)
    monkeypatch.setattr(migration.migrate, "__defaults__", (1,))


def copy_of(former: Path, directory: Path) -> Path:
    shutil.copytree(former, directory)
    return directory


def kept_state(data_dir: Path) -> State:
    """What the store holds, after a start that is not killed."""
    store = RocksStore(data_dir)
    state = state_of(store.recover())
    meta = store._database.families["meta"]
    assert (meta.get(FORMAT_KEY), meta.get(MIGRATING)) == (FORMAT, None)
    store.close()
    return state


def kill_at_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the process die in place of the write with this number, from 0 on."""
    written = 0
    write = Database.write

    def dying(self: Database, batch: WriteBatch, sync: bool = True) -> None:
        nonlocal written
        if written == number:
            raise Killed
        written += 1
        write(self, batch, sync)

    monkeypatch.setattr(Database, "write", dying)


# -- a start migrates ----------------------------------------------------------------------


def test_a_store_of_format_1_is_migrated_by_a_start(
    former: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    data_dir = copy_of(former, tmp_path / "data")
    assert kept_state(data_dir) == expected()
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "is of format 1, of an older Penstock" in line]
    assert [
        line for line in lines if f"is of format 3 now; sessions rewritten: {len(SESSIONS)}" in line
    ]
    caplog.clear()
    assert kept_state(data_dir) == expected()
    assert not [record for record in caplog.records if "format" in record.getMessage()]


@pytest.mark.usefixtures("small_portions")
def test_a_long_migration_tells_how_far_it_is(
    former: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(migration, "_REPORT_INTERVAL_S", 0.0)
    RocksStore(copy_of(former, tmp_path / "data")).close()
    lines = [record.getMessage() for record in caplog.records]
    told = [line for line in lines if line.startswith("migrating the store")]
    assert [line.rpartition(": ")[2] for line in told] == [
        str(number) for number in range(1, len(SESSIONS) + 1)
    ]


def test_pages_are_no_longer_than_those_that_are_written(former: Path, tmp_path: Path) -> None:
    store = RocksStore(copy_of(former, tmp_path / "data"))
    for kept in store.recover().progress.values():
        lengths = [len(page.entries) for page in kept.pages]
        assert all(length == PAGE_PLACES for length in lengths[:-1])
        assert all(0 < length <= PAGE_PLACES for length in lengths)
    store.close()


@pytest.mark.usefixtures("small_portions")
def test_whichever_write_a_start_is_killed_at_nothing_is_lost_or_there_twice(
    former: Path, tmp_path: Path
) -> None:
    at = 0
    was_killed = True
    while was_killed:
        data_dir = copy_of(former, tmp_path / f"{at}")
        with pytest.MonkeyPatch.context() as patch:
            kill_at_write(patch, at)
            try:
                RocksStore(data_dir).close()
                was_killed = False
            except Killed:
                pass
        found = examine(data_dir)
        assert found.problems == []
        assert found.in_flight == sum(len(one.window) for one in SESSIONS)
        assert kept_state(data_dir) == expected()
        at += 1
    assert at > len(SESSIONS) + 2, "a write for each session, and those around them"


@pytest.mark.usefixtures("small_portions")
def test_a_start_that_is_killed_again_and_again_goes_on_where_it_was(
    former: Path, tmp_path: Path
) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    starts = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            kill_at_write(patch, 2)
            try:
                RocksStore(data_dir).close()
                break
            except Killed:
                starts += 1
    assert len(SESSIONS) // 2 <= starts <= len(SESSIONS)
    assert kept_state(data_dir) == expected()


@pytest.mark.usefixtures("small_portions")
def test_a_power_cut_in_the_middle_of_a_write_loses_that_write_only(
    former: Path, tmp_path: Path
) -> None:
    """The write-ahead log of the start that migrates, cut anywhere."""
    migrated = copy_of(former, tmp_path / "migrated")
    store = RocksStore(migrated)
    running = tmp_path / "running"
    copy_running(migrated, running)
    store.close()
    log = max((running / "store").glob("*.log"), key=lambda path: int(path.stem))
    whole = log.read_bytes()
    assert len(whole) > 1000
    for length in [0, *sorted(random.Random(5).sample(range(len(whole)), 30))]:
        log.write_bytes(whole[:length])
        data_dir = copy_of(running, tmp_path / f"cut-{length}")
        assert kept_state(data_dir) == expected()
        shutil.rmtree(data_dir)


def test_sigkill_at_every_write(former: Path, tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from penstock.store import migration
from penstock.store.database import Database
from penstock.store.rocks import RocksStore
migration.migrate.__defaults__ = (12000,)
left, write = int(sys.argv[2]), Database.write
def dying(self, batch, sync=True):
    global left
    write(self, batch, sync)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Database.write = dying
RocksStore(Path(sys.argv[1])).close()
"""
    at = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        at += 1
        data_dir = copy_of(former, tmp_path / f"{at}")
        command = [sys.executable, "-c", program, str(data_dir), str(at)]
        code = subprocess.run(command, env=environment(), check=False).returncode
        assert kept_state(data_dir) == expected()
    assert (code, at > 3) == (0, True)


# -- what clients get ----------------------------------------------------------------------


def answers_of(one: FormerSession, shell: Shell) -> Counter[object]:
    """Let a client take up its session and finish everything; return what it got."""
    pipe = shell.accept(NOW)
    decoder = Decoder(1_000_000, V5, server=False)
    properties = Properties(session_expiry_interval=0xFFFFFFFF)
    pipe.to_broker += encode(Connect(one.client_id, V5, False, 0, properties=properties), V5)
    for packet_id in one.inbound:
        pipe.to_broker += encode(Pubrel(packet_id), V5)
    got: Counter[object] = Counter()
    while True:
        data, pipe.to_broker = bytes(pipe.to_broker), bytearray()
        pipe.connection.receive(data, NOW)
        for _ in range(4):  # a commit, bodies from the log, and what follows from them
            shell.end_turn()
            shell.write()
            shell.release()
            for read in shell.reads[:]:
                shell.reads.remove(read)
                read.session.supply(read.offsets, shell.store.read(read.offsets), NOW)
            shell.server.resume(NOW)
        if not pipe.to_device:
            return got
        decoder.feed(bytes(pipe.to_device))
        pipe.to_device.clear()
        answers: list[Packet] = []
        while (packet := decoder.next_packet()) is not None:
            if isinstance(packet, Publish):
                got[packet.qos, packet.packet_id, packet.payload] += 1
                ack = Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id)
                answers.append(ack)
            elif isinstance(packet, Pubrel):
                got["PUBREL", packet.packet_id] += 1
                answers.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Pubcomp):
                got["PUBCOMP", packet.packet_id, packet.reason_code] += 1
        for answer in answers:
            pipe.to_broker += encode(answer, V5)


@pytest.mark.usefixtures("small_portions")
def test_clients_of_a_migrated_store_get_everything_once(former: Path, tmp_path: Path) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    with pytest.MonkeyPatch.context() as patch:
        kill_at_write(patch, len(SESSIONS) // 2)
        with pytest.raises(Killed):
            RocksStore(data_dir)
    store = RocksStore(data_dir)
    bodies = {offset: message.payload for offset, message in store.read(range(MESSAGES)).items()}
    server = Server(EngineLimits(), store.recover(), ("#",), "fsync", NOW)
    shell = Shell(server, store)
    for one in SESSIONS:
        got = answers_of(one, shell)
        assert set(got.values()) == {1}
        sent = {what for what in got if isinstance(what, tuple) and isinstance(what[0], int)}
        due: set[object] = {
            (entry[4], entry[0], bodies[entry[3]])
            for entry in one.window
            if entry[1] != AWAIT_PUBCOMP
        }
        assert due <= sent
        assert {what[2] for what in sent - due} == {bodies[offset] for offset in one.waiting}
        assert len(sent) == len(due) + WAITING
        completed = {what[1:] for what in got if isinstance(what, tuple) and what[0] == "PUBCOMP"}
        assert completed == {(packet_id, 0) for packet_id in one.inbound}
        released = {what[1] for what in got if isinstance(what, tuple) and what[0] == "PUBREL"}
        assert released == {entry[0] for entry in one.window if entry[1] != AWAIT_PUBACK}
    left: list[SessionState] = list(store.recover().progress.values())
    assert [kept.in_flight() for kept in left] == [[]] * len(SESSIONS)
    store.close()
    assert not [key for key, _ in pages(data_dir)]


def pages(data_dir: Path) -> list[tuple[bytes, bytes]]:
    database = open_database(data_dir)
    found = [item for item in database.items("progress") if len(item[0]) != 8]
    database.close()
    return found


# -- formats -------------------------------------------------------------------------------


def test_a_store_of_format_2_keeps_its_large_values(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    store = RocksStore(data_dir)
    large = rows(0, 1, size=LARGE_BYTES + 1)
    store.commit(large)
    store.close()
    write_sessions(data_dir, SESSIONS[:1])
    assert examine(data_dir).problems != [], "what its session waits for is not there"
    store = RocksStore(data_dir)
    meta = store._database.families["meta"]
    assert (meta.get(FORMAT_KEY), meta.get(PARTS_KEY)) == (FORMAT, b"1")
    assert store.read([0])[0].payload == large.messages[0].payload
    store.close()


def test_formats_that_are_read_and_those_of_a_newer_penstock() -> None:
    for known in (b"1", b"2", FORMAT):
        refuse_format(known)
    says = (
        "^the store has format 4, this version of Penstock reads formats 1 to 3: use the version"
        " that wrote it$"
    )
    with pytest.raises(StoreFormatError, match=says):
        refuse_format(b"4")


def test_a_newer_format_is_refused_by_a_start_and_left_as_it_is(
    former: Path, tmp_path: Path
) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    database = open_database(data_dir)
    database.families["meta"][FORMAT_KEY] = b"4"
    database.close()
    with pytest.raises(StoreFormatError, match="format 4"):
        RocksStore(data_dir)
    database = open_database(data_dir)
    assert database.families["meta"].get(FORMAT_KEY) == b"4"
    database.close()


def test_commands_read_a_store_of_format_1_and_leave_it_as_it_is(
    former: Path, tmp_path: Path
) -> None:
    data_dir, restored = copy_of(former, tmp_path / "data"), tmp_path / "restored"
    in_flight = sum(len(one.window) for one in SESSIONS)
    backup = tmp_path / "backup"
    found = examine(data_dir)
    assert (found.problems, found.in_flight, found.format) == ([], in_flight, "1")
    version = "1, of an older version; 3 once a broker starts on it"
    assert ("format", version) in _summary_pairs(found)
    assert repair(data_dir).moved_paths == []
    back_up_offline(data_dir, backup)
    assert examine(backup).in_flight == in_flight
    restore(backup, restored)
    for directory in (data_dir, restored):
        database = open_database(directory)
        assert database.families["meta"].get(FORMAT_KEY) == b"1"
        database.close()
        assert kept_state(directory) == expected()
        assert ("format", "3") in _summary_pairs(examine(directory))


def test_a_repair_makes_a_store_of_this_format(former: Path, tmp_path: Path) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    database = open_database(data_dir)
    database.families["wills"][b"c"] = b"\x93"
    database.close()
    assert repair(data_dir).moved_paths
    assert examine(data_dir).problems == []
    assert kept_state(data_dir) == expected()


# -- damage to pages -----------------------------------------------------------------------


def test_a_session_whose_progress_is_lost_goes_on_behind_what_is_in_flight(
    former: Path, tmp_path: Path
) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    one = next(one for one in SESSIONS if len(one.window) == PAGE_PLACES)
    kept_state(data_dir)
    database = open_database(data_dir)
    database.families["progress"].delete(one.number.to_bytes(8, "big"))
    database.close()
    with pytest.raises(StoreError, match=f"the progress of session {one.number} is missing"):
        RocksStore(data_dir).recover()
    told = examine(data_dir).problems
    sentence = (
        f"the progress of {one.client_id!r} is lost, or older than its queue: some messages may"
        " reach it again"
    )
    assert told == [sentence]
    repair(data_dir)
    assert examine(data_dir).problems == []
    head, following, *_, window, waiting = kept_state(data_dir)[one.number]
    sent = max(entry[2] for entry in one.window if entry[2] < 1 << PRIORITY_SHIFT)
    assert (head, following) == (sent + 1, one.following)
    assert (window, waiting) == expected()[one.number][-2:]


def test_a_session_of_whose_progress_only_inbound_identifiers_are_left_keeps_them(
    former: Path, tmp_path: Path
) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    one = next(one for one in SESSIONS if not one.window)
    kept_state(data_dir)
    database = open_database(data_dir)
    database.families["progress"].delete(one.number.to_bytes(8, "big"))
    for queued, _ in list(database.items("queue", one.number.to_bytes(8, "big"))):
        database.families["queue"].delete(queued)
    database.close()
    assert [line for line in examine(data_dir).problems if repr(one.client_id) in line]
    repair(data_dir)
    assert examine(data_dir).problems == []
    assert kept_state(data_dir)[one.number][2] == sorted(one.inbound)


def test_of_two_messages_with_one_packet_identifier_the_later_page_is_right(
    former: Path, tmp_path: Path
) -> None:
    data_dir = copy_of(former, tmp_path / "data")
    one = next(one for one in SESSIONS if len(one.window) == PAGE_PLACES + 1)
    kept_state(data_dir)
    database = open_database(data_dir)
    family, key = database.families["progress"], one.number.to_bytes(8, "big")
    family[key + (9).to_bytes(8, "big")] = family[key + (0).to_bytes(8, "big")]
    database.close()
    told = examine(data_dir).problems
    sentence = (
        f"the in-flight window of {one.client_id!r} has {PAGE_PLACES} messages with packet"
        " identifiers of later ones"
    )
    assert told == [sentence]
    repair(data_dir)
    assert examine(data_dir).problems == []
    window: Any = kept_state(data_dir)[one.number][-2]
    assert sorted(window) == sorted(expected()[one.number][-2])  # type: ignore[call-overload]
