"""``python -m benchmarks.recovery``: which part of a start takes how long, cold and prepared?

A store has many sessions with a hundred subscriptions each; some of them have a full window and a
queue, and there are retained messages. A broker is started on it as far as its engine, *cold* or as
a *warm* standby that takes over, with the garbage collector as the broker runs it. Each start has a
process of its own, as a broker has; the figures are medians, and the parts of one start are timed
one after the other.

The file is read before the first start, so that its pages are in the system's cache: a standby has
just written them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, final

from rich.console import Console
from rich.table import Table

from benchmarks.subscriptions import resident_bytes
from penstock.engine.batch.commit import Commit
from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.batch.records import (
    Progress,
    RecoveredState,
    SessionRecord,
    SubscriptionRecord,
    WindowEntry,
    WindowPage,
    packet_id_checksum,
)
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.message import Message
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.server.server import Server
from penstock.protocol.packets import Subscription
from penstock.services.garbage import collect_in_portions, freezing
from penstock.store.chunk import encode_key
from penstock.store.database import PRODUCERS, open_for_reading
from penstock.store.preparing import DELETE, PUT, Operation, Preparation
from penstock.store.records import encode_subscription
from penstock.store.rocks import RocksStore
from penstock.version import build_kind

SESSIONS_IN_A_COMMIT: Final = 500
MESSAGES: Final = 1000  # in the log, for the windows and queues
WINDOW: Final = 32
QUEUE: Final = 100
FOLLOWED: Final = 100_000  # operations that the standby is told
BUSY_ONE_IN: Final = 10  # sessions with a window and a queue
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)
_LIMITS: Final = EngineLimits(receive_maximum=65535)


def fill(data_dir: Path, sessions: int, subscriptions: int, retained: int) -> None:
    """Write the store of a broker with so many sessions, subscriptions of each, and messages."""
    store = RocksStore(data_dir)
    commit = Commit(0)
    commit.messages = [
        Message(f"plant/{number}", b"x" * 64, 1, False, "p", 1, offset=number)
        for number in range(MESSAGES)
    ]
    store.commit(commit)
    for begin in range(0, sessions, SESSIONS_IN_A_COMMIT):
        commit = Commit(MESSAGES)
        for number in range(begin + 1, min(sessions, begin + SESSIONS_IN_A_COMMIT) + 1):
            client_id = f"client-{number * 7919 % (sessions + 1):06}-{number}"
            commit.sessions.append(SessionRecord(client_id, number, 86_400, 1))
            commit.progress.append(_progress(number, number % BUSY_ONE_IN == 0))
            for place in range(subscriptions):
                topic_filter = filter_of(number, place)
                kept = Subscription(topic_filter, place % 3)
                commit.subscriptions.append(SubscriptionRecord(number, topic_filter, kept))
        store.commit(commit)
    for begin in range(0, retained, SESSIONS_IN_A_COMMIT):
        commit = Commit(MESSAGES)
        for number in range(begin, min(retained, begin + SESSIONS_IN_A_COMMIT)):
            message = Message(f"state/{number % 97}/{number}", b"x" * 64, 1, True, "p", 1)
            commit.retained.append((message.topic, message))
        store.commit(commit)
    store.close()


def filter_of(session: int, place: int) -> str:
    """Return the topic filter of a session's subscription: most are its own, some are shared."""
    shape = place % 4
    if shape == 0:
        return f"plant/{place}/line/+/temperature"  # all sessions have it
    if shape == 1:
        return f"device/{session}/command/{place}"
    if shape == 2:
        return f"plant/{session % 97}/line/{session}/{place}/#"
    return f"building/{place}/{session}/+/state"


def _progress(number: int, is_busy: bool) -> Progress:
    if not is_busy:
        return Progress(number, 1, 1, [], [], [], [], [], [], 1, 0, 1, 0, 0, 0)
    window: list[WindowEntry] = [
        (one, 1, one, one, 1, False, (), 80, None) for one in range(1, WINDOW + 1)
    ]
    pages = [WindowPage(1, window)]
    run = PackedRun(WINDOW + 1)
    for sequence in range(WINDOW + 1, WINDOW + 1 + QUEUE):
        run.add(sequence, sequence, 80, (1, False, (), None))
    squares = packet_id_checksum([entry[0] for entry in window])
    head, following = WINDOW + 1, WINDOW + 1 + QUEUE
    return Progress(
        number, head, following, pages, [], [run], [], [], [], head, WINDOW, 64, squares, 0, 0
    )


@final
class Parts:
    """Seconds of each part of a start, and CPU seconds of this process in it, in their order.

    On a machine that has other work, the CPU seconds tell more.
    """

    def __init__(self) -> None:
        self.figures: dict[str, tuple[float, float]] = {}
        self.bytes_a_subscription = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin to time a part."""
        self._began_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def end(self, name: str) -> None:
        """End the part ``name``, and begin the next."""
        wall_s, cpu_s = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s
        self.figures[name] = (wall_s, cpu_s)
        self.begin()


def cold(data_dir: Path) -> Parts:
    """Start as a broker does."""
    collect_in_portions()
    parts = Parts()
    store = RocksStore(data_dir)
    parts.end("open the database")
    with freezing():
        recovered = store.recover()
        parts.end("read and decode all")
        _build(recovered, None, parts)
    store.close()
    return parts


def warm(data_dir: Path) -> Parts:
    """Take over as a standby does, whose database is open."""
    collect_in_portions()
    view = open_for_reading(data_dir)
    parts = Parts()
    prepared = PreparedSessions(_LIMITS)
    preparation = Preparation(prepared)
    before = resident_bytes()
    with freezing():
        preparation.load(view)
    parts.end("(before: prepare)")
    count = prepared.router.subscription_count
    parts.bytes_a_subscription = (resident_bytes() - before) / max(1, count)
    _follow(preparation, parts)
    view.close()
    store = RocksStore(data_dir)
    parts.begin()
    with freezing():
        recovered = store.recover(subscriptions=False)
        parts.end("read and decode the rest")
        assert prepared.covers(recovered.sessions)
        parts.end("compare the sessions")
        server = _build(recovered, prepared, parts)
    assert server.router.subscription_count == count
    store.close()
    return parts


def _follow(preparation: Preparation, parts: Parts) -> None:
    """Apply operations that concern nothing prepared, and subscriptions that come and go."""
    key, value = encode_key(1), encode_subscription(Subscription("a/b"), 0)
    others: list[Operation] = [(PUT, "progress", key, value)] * FOLLOWED
    changes: list[Operation] = []
    for number in range(FOLLOWED // 2):
        changed = key + f"new/{number}/state".encode()
        changes += [(PUT, "subscriptions", changed, value), (DELETE, "subscriptions", changed, b"")]
    parts.begin()
    preparation.apply(others)
    parts.end(f"(before: follow {FOLLOWED:,} other changes)")
    preparation.apply(changes)
    parts.end(f"(before: follow {FOLLOWED:,} of subscriptions)")


def _build(recovered: RecoveredState, prepared: PreparedSessions | None, parts: Parts) -> Server:
    """Build the engine in two steps: without retained messages, and these."""
    retained, recovered.retained = recovered.retained, []
    parts.begin()
    server = Server(_LIMITS, recovered, (), "fsync", _NOW, prepared=prepared)
    parts.end("build sessions and subscriptions")
    for message in retained:
        server.router.retained.restore(message)
    parts.end("restore retained messages")
    return server


def families(data_dir: Path) -> Parts:
    """Read each column family, without decoding."""
    database = open_for_reading(data_dir)
    parts = Parts()
    for name in ("sessions", "subscriptions", "progress", "queue", "retained", "wills"):
        for _ in database.items(name):
            pass
        parts.end(name)
    for _ in database.items("meta", PRODUCERS):
        pass
    parts.end("producers")
    database.close()
    return parts


KINDS: Final = {"cold": cold, "warm": warm, "families": families}


def _apart(answers: Connection, kind: str, data_dir: Path) -> None:
    answers.send(KINDS[kind](data_dir))


def run(kind: str, data_dir: Path) -> Parts:
    """Run one start in a process of its own; return its parts."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_apart, args=(theirs, kind, data_dir))
    process.start()
    theirs.close()
    answer: Parts = ours.recv()
    process.join()
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--subscriptions", type=int, default=100, help="of each session")
    parser.add_argument("--retained", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--store", type=Path, help="keep the store here, and use it if it exists")
    chosen = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as directory:
        data_dir = chosen.store or Path(directory) / "data"
        if not data_dir.exists():
            fill(data_dir, chosen.sessions, chosen.subscriptions, chosen.retained)
        figures: dict[str, list[Parts]] = {}
        run("families", data_dir)
        for _ in range(chosen.repeats):
            for kind in chosen.kinds:
                figures.setdefault(kind, []).append(run(kind, data_dir))
    console.print(
        f"{chosen.sessions:,} sessions with {chosen.subscriptions} subscriptions each,"
        f" {chosen.retained:,} retained messages; penstock runs {build_kind()}"
    )
    for kind, runs in figures.items():
        console.print(_table(kind, runs))


def _table(kind: str, runs: list[Parts]) -> Table:
    table = Table(title=f"{kind}: medians of {len(runs)}")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("CPU ms", justify="right")
    for name in runs[0].figures:
        table.add_row(name, *_medians([one.figures[name] for one in runs]))
    together = [
        [figures for name, figures in one.figures.items() if not name.startswith("(")]
        for one in runs
    ]
    sums = [(sum(wall for wall, _ in one), sum(cpu for _, cpu in one)) for one in together]
    table.add_row("together", *_medians(sums))
    if runs[0].bytes_a_subscription:
        used = statistics.median(one.bytes_a_subscription for one in runs)
        table.caption = f"{used:,.0f} bytes a subscription, with its session"
    return table


def _medians(figures: list[tuple[float, float]]) -> tuple[str, str]:
    wall_s = statistics.median(wall for wall, _ in figures)
    cpu_s = statistics.median(cpu for _, cpu in figures)
    return f"{wall_s * 1000:,.0f}", f"{cpu_s * 1000:,.0f}"


if __name__ == "__main__":
    main()
