"""Sessions that are prepared change by change are those that a start reads from the store."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.server.server import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    GROUP_KEY_PREFIX,
    RecoveredState,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
    WindowPage,
    packet_id_checksum,
)
from penstock.errors import StoreCorrupt
from penstock.protocol.packets import Subscription
from penstock.store.parts import LARGE_BYTES
from penstock.store.rocks import RocksStore
from penstock.store.stored_sessions import StoredSessionsMirror, read_subscriptions
from tests.support.noted_changes import note_changes
from tests.support.readable import readable

NOW = Now(1000.0, 1_800_000_000_000_000)
LIMITS = EngineLimits()
SPILLING = EngineLimits("plant", max_inflight=7, max_mqueue_len=2, mqueue_overflow="spill")
LIMITS_BY_NAME = {"plant": SPILLING, "": LIMITS}
CLIENTS = [f"client-{number}" for number in range(6)]
FILTERS = ["a/b", "a/+", "a/#", "+/b", "#", "ä/+/c", "$share/g/a/+", "$share/h/#", "x"]
TOPICS = ["a/b", "a", "ä/1/c", "x", "other"]
STEPS = 60


class Commits:
    """Random commits such as an engine makes, with the state that they leave."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._end = 0
        self._next_number = 1
        self._records: dict[str, SessionRecord] = {}
        self._groups: set[str] = set()

    def next(self) -> Commit:
        """Return a commit with some changes of each kind."""
        random = self._random
        commit = Commit(self._end)
        for _ in range(random.randrange(3)):
            large = random.random() < 0.02
            payload = b"x" * (LARGE_BYTES + 9 if large else 20)
            commit.messages.append(self._message("t", payload, self._end + len(commit.messages)))
        self._end = commit.next_offset
        for client_id in random.sample(CLIENTS, random.randrange(4)):
            self._change(commit, client_id)
        for topic in random.sample(TOPICS, random.randrange(2)):
            large = random.random() < 0.1
            message = self._message(topic, b"r" * (LARGE_BYTES + 9 if large else 20), -1)
            commit.retained.append((topic, None if random.random() < 0.3 else message))
        for client_id in random.sample(CLIENTS, random.randrange(2)):
            will = WillRecord(self._message("w", b"will", -1), 5, 0)
            commit.wills.append((client_id, None if random.random() < 0.5 else will))
        return commit

    def _message(self, topic: str, payload: bytes, offset: int) -> Message:
        return Message(topic, payload, 1, offset < 0, "p", NOW.steady_us, offset=offset)

    def _change(self, commit: Commit, client_id: str) -> None:
        random = self._random
        known = self._records.get(client_id)
        if known is not None and random.random() < 0.2:
            commit.ended.append((client_id, known.number))
            known = self._records.pop(client_id, None)
            if random.random() < 0.3:
                return
            known = None
        if known is None or random.random() < 0.5:
            number = self._next_number if known is None else known.number
            account = random.choice(("", "user u")) if known is None else known.account
            self._next_number = max(self._next_number, number + 1)
            expiry_s, limits_name = (
                random.choice((0, 100, 100, 2**32 - 1)),
                random.choice(("", "plant")),
            )
            known = SessionRecord(
                client_id, number, expiry_s, random.choice((0, 5)), limits_name, "u", True, account
            )
            commit.sessions.append(known)
            self._records[client_id] = known
        number = known.number
        for topic_filter in random.sample(FILTERS, random.randrange(5)):
            kept = Subscription(topic_filter, random.randrange(3), random.random() < 0.2)
            removed = random.random() < 0.3
            identifier = random.choice((0, 7))
            commit.subscriptions.append(
                SubscriptionRecord(number, topic_filter, None if removed else kept, identifier)
            )
            if topic_filter.startswith("$share") and not removed:
                self._add_group(commit, topic_filter)
        if random.random() < 0.6:
            commit.progress.append(self._progress(number))

    def _add_group(self, commit: Commit, topic_filter: str) -> None:
        if topic_filter not in self._groups:
            self._groups.add(topic_filter)
            record = SessionRecord(GROUP_KEY_PREFIX + topic_filter, self._next_number, 2**32 - 1, 0)
            commit.sessions.append(record)
            self._next_number += 1

    def _progress(self, number: int) -> SessionState:
        ids = self._random.sample(range(1, 30), self._random.randrange(4))
        entries = [(one, 1, one, 0, 1, False, (), 80, None) for one in sorted(ids)]
        run = PackedRun(100)
        run.add(100, 0, 80, (1, False, (), None))
        squares = packet_id_checksum(ids)
        page = WindowPage(1, list(entries))
        return SessionState(
            number, 100, 101, [page], [], [run], [], [], [], 100, len(ids), 64, squares, 0, 0
        )


def rest_of(recovered: RecoveredState) -> object:
    """Everything but the subscriptions, comparable."""
    return {name: readable(value) for name, value in vars_of(recovered) if name != "subscriptions"}


def vars_of(recovered: RecoveredState) -> list[tuple[str, object]]:
    names = (
        *("epoch", "next_offset", "sessions", "subscriptions", "progress", "queues", "segments"),
        *("retained", "wills", "producers", "clock"),
    )
    return [(name, getattr(recovered, name)) for name in names]


def state_of(server: Server) -> object:
    """What a server was made to be: its sessions, matches, accounts, and its first commit."""
    matches = {}
    for topic in TOPICS:
        found = server.router.trie.match(topic)
        matches[topic] = (
            sorted(
                (one.session.client_id, readable(one.subscriptions.qos)) for one in found.sessions
            ),
            sorted(group.topic_filter for group in found.groups),
            found.identifiers,
        )
    sessions = {}
    for client_id, session in server.registry.sessions.items():
        entries = {name: readable(entry) for name, entry in session.subscriptions.items()}
        sessions[client_id] = (
            session.number,
            session.expiry_interval_s,
            session.limits_name,
            session.limits.name,
            session.username,
            session.is_stored,
            session.queue_length,
            session.window_length,
            session.disconnected_at_us,
            session.account.key,
            (session.account.sessions, session.account.sessions_bytes),
            entries,
        )
    members = {
        name: (group.queue.account.key, group.queue.queue_length, group.members.stored_qos)
        for name, group in server.router.sharing.groups.items()
    }
    counts = (
        server.router.subscription_count,
        server.router.shared_subscription_count,
        server.context.budget.sessions_bytes,
        server.context.budget.waiting_bytes,
        server.context.accounts.count,
        server.context.batch.next_number,
        server.context.batch.next_offset,
        server.context.store_health.durable_log_end,
        list(server.drops.counts),
        sorted(server.drops.clients),
        [session.number for session in server.registry.index.sessions_after(0, 100)],
    )
    return sessions, matches, members, counts, written_by(server), behaviour_of(server)


def written_by(server: Server) -> object:
    """What the next commit of a server has, but for the log."""
    commit = server.context.seal()
    return (
        commit.base_offset,
        readable(commit.ended),
        readable(commit.sessions),
        readable(sorted(commit.progress, key=lambda one: one.number)),
        len(commit.retained),
    )


def behaviour_of(server: Server) -> object:
    """What becomes of some messages, more than a queue has room for."""
    reached = []
    for topic in TOPICS * 3:
        for qos in (0, 1, 2):
            message = Message(topic, b"message", qos, False, "p", NOW.wall_us)
            reached.append(server.router.publish(message, None, NOW))
    written = written_by(server)
    queues = {
        client_id: (session.queue_length, session.backlog.queue.size_bytes)
        for client_id, session in server.registry.sessions.items()
    }
    return reached, written, queues, list(server.drops.counts)


def prepared_of(store: RocksStore) -> PreparedSessions:
    """Sessions prepared from what a store has now."""
    prepared = PreparedSessions(LIMITS, (), None, LIMITS_BY_NAME)
    StoredSessionsMirror(prepared).load(store._database)
    return prepared


def server_of(recovered: RecoveredState, prepared: PreparedSessions | None) -> Server:
    return Server(
        LIMITS, recovered, (), "fsync", NOW, limits_by_name=LIMITS_BY_NAME, prepared=prepared
    )


@pytest.mark.parametrize("seed", range(12))
def test_followed_sessions_are_those_of_the_store(tmp_path: Path, seed: int) -> None:
    store = RocksStore(tmp_path)
    commits = Commits(seed)
    followed = PreparedSessions(LIMITS, (), None, LIMITS_BY_NAME)
    mirror = StoredSessionsMirror(followed)
    for step in range(STEPS):
        if step == STEPS // 3:  # the standby comes: from here on it is told the changes
            mirror.load(store._database)
            note_changes(store, mirror.apply)
        store.commit(commits.next())
        if step >= STEPS // 3:
            found = list(read_subscriptions(store._database))
            assert readable(followed.subscriptions()) == readable(found)
    whole = store.recover()
    rest = store.recover(subscriptions=False)
    assert rest_of(rest) == rest_of(whole)
    assert rest.subscriptions == []
    assert followed.covers(rest.sessions)
    subscribed = len(whole.subscriptions)
    cold = server_of(whole, None)
    warm = server_of(rest, followed)
    assert cold.router.subscription_count <= subscribed
    assert warm.context.store_health.durable_log_end == whole.next_offset
    assert state_of(warm) == state_of(cold)
    loaded = server_of(store.recover(subscriptions=False), prepared_of(store))
    assert state_of(loaded) == state_of(server_of(store.recover(), None))
    store.close()


def test_missed_changes_are_noticed(tmp_path: Path) -> None:
    """A standby that did not see all changes of the sessions is not used."""
    store = RocksStore(tmp_path)
    commits = Commits(1)
    prepared = prepared_of(store)
    for _ in range(5):
        store.commit(commits.next())
    assert not prepared.covers(store.recover(subscriptions=False).sessions)
    assert prepared_of(store).covers(store.recover(subscriptions=False).sessions)
    store.close()


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """The first of its blocks can be read: nothing must pass for the end."""
    store = RocksStore(tmp_path)
    commit = Commit(0)
    commit.sessions = [SessionRecord("c", 1, 100, 0)]
    random = Random(1)
    for number in range(20_000):
        topic_filter = f"{number:05}/{random.randbytes(16).hex()}"
        kept = SubscriptionRecord(1, topic_filter, Subscription(topic_filter))
        commit.subscriptions.append(kept)
    store.commit(commit)
    store._database.families["subscriptions"].flush()
    store.close()
    table = max(tmp_path.glob("store/*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(table.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    table.write_bytes(content)
    store = RocksStore(tmp_path)
    with pytest.raises(StoreCorrupt):
        store.recover()
    store.close()
