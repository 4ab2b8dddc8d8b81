"""``python -m benchmarks.recovery``: the time of each part of a start, cold and as a standby.

A store has many sessions with a hundred subscriptions each; some of them have a full window and a
queue, and there are retained messages. A broker starts on it up to its engine, *cold* or as a
*warm* standby that takes over, with the broker's settings of the garbage collector. Each start has
its own process. The figures are medians; the parts of one start follow each other.

The store is read before the first start, so that its pages are in the system's cache: a standby has
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
from penstock.engine.api import Commit, PreparedSessions, Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    RecoveredState,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WindowEntry,
    WindowPage,
    packet_id_checksum,
)
from penstock.protocol.packets import Subscription
from penstock.services.garbage import collect_in_portions, freezing
from penstock.store.chunk import encode_key
from penstock.store.database import PRODUCERS, open_for_reading
from penstock.store.records import encode_subscription
from penstock.store.rocks import RocksStore
from penstock.store.stored_sessions import DELETE, PUT, Operation, StoredSessionsMirror
from penstock.version import build_kind

SESSIONS_IN_A_COMMIT: Final = 500
MESSAGES: Final = 1000  # in the log; windows and queues refer to them
WINDOW: Final = 32
QUEUE: Final = 100
FOLLOWED_OPERATIONS: Final = 100_000  # operations that the standby applies before it takes over
BUSY_ONE_IN: Final = 10  # share of sessions with a window and a queue
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)
_LIMITS: Final = EngineLimits(receive_maximum=65535)


def fill(data_dir: Path, sessions: int, subscriptions: int, retained: int) -> None:
    """Write a store with ``sessions``, ``subscriptions`` of each, and ``retained`` messages."""
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
                topic_filter = filter_of_session(number, place)
                subscription = Subscription(topic_filter, place % 3)
                record = SubscriptionRecord(number, topic_filter, subscription)
                commit.subscriptions.append(record)
        store.commit(commit)
    for begin in range(0, retained, SESSIONS_IN_A_COMMIT):
        commit = Commit(MESSAGES)
        for number in range(begin, min(retained, begin + SESSIONS_IN_A_COMMIT)):
            message = Message(f"state/{number % 97}/{number}", b"x" * 64, 1, True, "p", 1)
            commit.retained.append((message.topic, message))
        store.commit(commit)
    store.close()


def filter_of_session(session: int, place: int) -> str:
    """Return a session's topic filter number ``place``; one in four is equal in all sessions."""
    shape = place % 4
    if shape == 0:
        return f"plant/{place}/line/+/temperature"  # equal in all sessions
    if shape == 1:
        return f"device/{session}/command/{place}"
    if shape == 2:
        return f"plant/{session % 97}/line/{session}/{place}/#"
    return f"building/{place}/{session}/+/state"


def _progress(number: int, is_busy: bool) -> SessionState:
    if not is_busy:
        return SessionState(number, 1, 1, [], [], [], [], [], [], 1, 0, 1, 0, 0, 0)
    window: list[WindowEntry] = [
        (packet_id, 1, packet_id, packet_id, 1, False, (), 80, None)
        for packet_id in range(1, WINDOW + 1)
    ]
    pages = [WindowPage(1, window)]
    run = PackedRun(WINDOW + 1)
    for sequence in range(WINDOW + 1, WINDOW + 1 + QUEUE):
        run.add(sequence, sequence, 80, (1, False, (), None))
    checksum = packet_id_checksum([entry[0] for entry in window])
    head, following = WINDOW + 1, WINDOW + 1 + QUEUE
    return SessionState(
        number, head, following, pages, [], [run], [], [], [], head, WINDOW, 64, checksum, 0, 0
    )


@final
class StartTimes:
    """The time of each part of a start: elapsed and CPU seconds by name, in the order of the parts.

    On a machine with other load, compare the CPU seconds.
    """

    def __init__(self) -> None:
        self.figures: dict[str, tuple[float, float]] = {}
        self.subscription_bytes = 0.0
        self.begin()

    def begin(self) -> None:
        """Start to time a part."""
        self._began_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def end(self, name: str) -> None:
        """Record the part ``name`` as finished, and start to time the next."""
        wall_s, cpu_s = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s
        self.figures[name] = (wall_s, cpu_s)
        self.begin()


def start_cold(data_dir: Path) -> StartTimes:
    """Start as a single broker does; return the times of the parts."""
    collect_in_portions()
    times = StartTimes()
    store = RocksStore(data_dir)
    times.end("open the database")
    with freezing():
        recovered = store.recover()
        times.end("read and decode all")
        _build(recovered, None, times)
    store.close()
    return times


def take_over_warm(data_dir: Path) -> StartTimes:
    """Take over as a standby does, with an open database; return the times of the parts."""
    collect_in_portions()
    view = open_for_reading(data_dir)
    times = StartTimes()
    prepared = PreparedSessions(_LIMITS)
    mirror = StoredSessionsMirror(prepared)
    before = resident_bytes()
    with freezing():
        mirror.load(view)
    times.end("(before: prepare)")
    count = prepared.router.subscription_count
    times.subscription_bytes = (resident_bytes() - before) / max(1, count)
    _follow(mirror, times)
    view.close()
    store = RocksStore(data_dir)
    times.begin()
    with freezing():
        recovered = store.recover(subscriptions=False)
        times.end("read and decode the rest")
        assert prepared.covers(recovered.sessions)
        times.end("compare the sessions")
        server = _build(recovered, prepared, times)
    assert server.router.subscription_count == count
    store.close()
    return times


def _follow(mirror: StoredSessionsMirror, times: StartTimes) -> None:
    """Apply unrelated operations, then added and removed subscriptions, as a standby does."""
    key, value = encode_key(1), encode_subscription(Subscription("a/b"), 0)
    unrelated: list[Operation] = [(PUT, "progress", key, value)] * FOLLOWED_OPERATIONS
    changes: list[Operation] = []
    for number in range(FOLLOWED_OPERATIONS // 2):
        subscription_key = key + f"new/{number}/state".encode()
        changes += [
            (PUT, "subscriptions", subscription_key, value),
            (DELETE, "subscriptions", subscription_key, b""),
        ]
    times.begin()
    mirror.apply(unrelated)
    times.end(f"(before: follow {FOLLOWED_OPERATIONS:,} other changes)")
    mirror.apply(changes)
    times.end(f"(before: follow {FOLLOWED_OPERATIONS:,} of subscriptions)")


def _build(
    recovered: RecoveredState, prepared: PreparedSessions | None, times: StartTimes
) -> Server:
    """Build the engine and restore the retained messages; time each as a part."""
    retained, recovered.retained = recovered.retained, []
    times.begin()
    server = Server(_LIMITS, recovered, (), "fsync", _NOW, prepared=prepared)
    times.end("build sessions and subscriptions")
    for message in retained:
        server.router.retained.restore(message)
    times.end("restore retained messages")
    return server


def read_families(data_dir: Path) -> StartTimes:
    """Read each column family without decoding; return the time of each."""
    database = open_for_reading(data_dir)
    times = StartTimes()
    for name in ("sessions", "subscriptions", "progress", "queue", "retained", "wills"):
        for _ in database.items(name):
            pass
        times.end(name)
    for _ in database.items("meta", PRODUCERS):
        pass
    times.end("producers")
    database.close()
    return times


KINDS: Final = {"cold": start_cold, "warm": take_over_warm, "families": read_families}


def _run_in_process(results: Connection, kind: str, data_dir: Path) -> None:
    results.send(KINDS[kind](data_dir))


def run(kind: str, data_dir: Path) -> StartTimes:
    """Run one start in its own process; return the times of its parts."""
    spawn = multiprocessing.get_context("spawn")
    parent_end, child_end = spawn.Pipe()
    process = spawn.Process(target=_run_in_process, args=(child_end, kind, data_dir))
    process.start()
    child_end.close()
    result: StartTimes = parent_end.recv()
    process.join()
    return result


def main() -> None:
    """Write the store, run the starts, and print a table of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument(
        "--subscriptions", type=int, default=100, help="subscriptions of each session"
    )
    parser.add_argument("--retained", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--store", type=Path, help="keep the store here, and use it if it exists")
    arguments = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as directory:
        data_dir = arguments.store or Path(directory) / "data"
        if not data_dir.exists():
            fill(data_dir, arguments.sessions, arguments.subscriptions, arguments.retained)
        figures: dict[str, list[StartTimes]] = {}
        run("families", data_dir)
        for _ in range(arguments.repeats):
            for kind in arguments.kinds:
                figures.setdefault(kind, []).append(run(kind, data_dir))
    console.print(
        f"{arguments.sessions:,} sessions with {arguments.subscriptions} subscriptions each,"
        f" {arguments.retained:,} retained messages; penstock runs {build_kind()}"
    )
    for kind, runs in figures.items():
        console.print(_table(kind, runs))


def _table(kind: str, runs: list[StartTimes]) -> Table:
    table = Table(title=f"{kind}: medians of {len(runs)}")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("CPU ms", justify="right")
    for name in runs[0].figures:
        table.add_row(name, *_medians([run.figures[name] for run in runs]))
    counted = [
        [figures for name, figures in run.figures.items() if not name.startswith("(")]
        for run in runs
    ]
    totals = [(sum(wall for wall, _ in parts), sum(cpu for _, cpu in parts)) for parts in counted]
    table.add_row("total", *_medians(totals))
    if runs[0].subscription_bytes:
        bytes_per_subscription = statistics.median(run.subscription_bytes for run in runs)
        table.caption = f"{bytes_per_subscription:,.0f} bytes a subscription, with its session"
    return table


def _medians(figures: list[tuple[float, float]]) -> tuple[str, str]:
    wall_s = statistics.median(wall for wall, _ in figures)
    cpu_s = statistics.median(cpu for _, cpu in figures)
    return f"{wall_s * 1000:,.0f}", f"{cpu_s * 1000:,.0f}"


if __name__ == "__main__":
    main()
