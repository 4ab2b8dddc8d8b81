"""A pipeline on a cluster, while a worker, the driver and the broker are killed in turn.

::

    ledger ─▶ broker ─▶ driver ─▶ master, worker 0, worker 1 ─▶ what came out
               ✗          ✗                    ✗

Each round has more messages to give, and a fault once the seed's share of them has come out: all
kinds in turn, some with another one at the same time. What was killed is started again at once.
The last to be killed is the driver; the one after it ends when all has come out, and then rows
must equal acknowledgements.

============ ================================================================
``worker``   SIGKILL to one worker, its executors and their Python
``driver``   SIGKILL to its Python, or to that and its Java and all they have started
``broker``   SIGKILL to the broker, whose stream service ends with it
``store``    SIGKILL to the object store, where the table is in one
============ ================================================================

Requests to a store are spoiled all the time, another way in each round: ``object_store.Fault``.
"""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, final

from tests.support.broker import Broker
from tests.support.deadline import let_pass, wait_for
from tests.support.object_store import Fault
from tests.support.pipeline_loads import count
from tests.support.pipeline_restores import DATA, RESTORES, SECOND, Restores
from tests.support.pipelines import PIPELINES, TO_TABLE, LogToTable, Outcome, Pipeline, compare
from tests.support.process_tree import Process, alive, descendants, kill
from tests.support.s3_server import DiskStore
from tests.support.spark_cluster import WORKERS, SparkCluster

WORKER: Final = "worker"
DRIVER: Final = "driver"
BROKER: Final = "broker"
STORE: Final = "store"
KINDS: Final = (WORKER, BROKER, DRIVER)
SPOILS: Final[tuple[Fault, ...]] = (
    "lost answer",
    "slow down",
    "late answer",
    "lost request",
    "stale credentials",
    "clock skew",
)
_SPOILED_EVERY: Final = (2, 12)
_SPOILED_TIMES: Final = 30

_ONE_MORE: Final = 0.2  # how often another fault happens in the same moment
_LEAST_SHARE, _MOST_SHARE = 0.2, 0.9  # of a round's messages, come out before its fault
_MOMENT_S: Final = 1.0  # the fault comes so much later at the most: in any part of a batch
_LOOK_S: Final = 0.2
_STALLED_S: Final = 900.0  # long: a slow machine must not fail it, only a pipeline that stands
_JAVA_ENDS_S: Final = 60.0
_LAST_WORDS: Final = 6000


class Verdict(NamedTuple):
    """What was done to a pipeline, and what became of its messages."""

    name: str
    killed: dict[str, int]
    ended: int  # drivers that ended by themselves: started again, as a supervisor does
    seconds: float
    outcome: Outcome
    spoiled: dict[str, int]  # requests to the store, by what happened to them

    @property
    def is_kept(self) -> bool:
        """Whether the promise is."""
        return self.outcome.is_kept

    def __str__(self) -> str:
        outcome = self.outcome
        rows: list[tuple[str, object]] = [
            ("acknowledged", f"{outcome.acknowledged:,}"),
            *(
                (f"{kind} {'put back' if kind in RESTORES else 'killed'}", f"{times} times")
                for kind, times in self.killed.items()
            ),
            *((f"request: {what}", f"{times} times") for what, times in self.spoiled.items()),
            ("driver ended by itself", f"{self.ended} times"),
            ("seconds", f"{self.seconds:.0f}"),
            ("rows", f"{outcome.rows:,}"),
            ("lost", outcome.lost),
            ("duplicated", outcome.duplicated),
            ("never acknowledged", outcome.unknown),
        ]
        return "\n".join([self.name, *(f"  {name:<24} {value}" for name, value in rows)])


@final
class Driver:
    """The driver, in all its lives; what it says goes to a file."""

    def __init__(self, pipeline: Pipeline, cluster: SparkCluster, log: Path) -> None:
        self.ended = 0
        self._pipeline = pipeline
        self._cluster = cluster
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._left: set[Process] = set()  # of former lives: they end by themselves

    def start(self, is_last: bool = False) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._pipeline.command(self._cluster.url, is_last),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._cluster.environment,
                start_new_session=True,
            )

    def kill(self, *, whole: bool) -> None:
        """End its Python, or all that it has started too; does nothing where none runs."""
        if self._process is None:
            return
        self._left |= descendants(self._process.pid)
        self._process.send_signal(signal.SIGKILL)
        if whole:
            kill(self._left)
        self._process.wait()
        self._process = None

    def revive(self) -> None:
        """Start it again where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.ended += 1
            self.start()

    def run_to_the_end(self, tell: Callable[[], None]) -> None:
        """Start it for the last time, and again as often as it fails while more comes out."""
        self.start(is_last=True)
        stall = Stall(self._pipeline)
        while True:
            assert self._process is not None
            code = self._process.poll()
            if code == 0:
                self._process = None
                return
            if code is not None:
                self.ended += 1
                self.start(is_last=True)
            stall.check(self.last_words)
            tell()
            let_pass(_LOOK_S)

    def last_words(self) -> str:
        """The end of what it said."""
        said = self._log.read_text(errors="replace") if self._log.exists() else ""
        return said[-_LAST_WORDS:]

    def close(self) -> None:
        """End it, and what its former lives have left."""
        self.kill(whole=True)
        try:
            wait_for("Java to end", lambda: not alive(self._left), _JAVA_ENDS_S)
        finally:
            kill(self._left)


@final
class Stall:
    """Fails where nothing comes out any more."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._most = -1
        self._since_s = time.monotonic()

    def check(self, last_words: Callable[[], str]) -> int:
        """How much has come out."""
        arrived = self._pipeline.arrived()
        if arrived > self._most:
            self._most, self._since_s = arrived, time.monotonic()
        silent_s = time.monotonic() - self._since_s
        assert silent_s < _STALLED_S, f"{arrived:,} rows and no more:\n{last_words()}"
        return arrived


@contextmanager
def prepared(
    name: str,
    directory: Path,
    broker: Broker,
    seed: int,
    a_round: int,
    kind: str = "delta",
    store: DiskStore | None = None,
) -> Iterator[Pipeline]:
    """A pipeline whose load ends with the block; with a store, that from the log to a table."""
    directory.mkdir(parents=True)
    if name == TO_TABLE:
        pipeline: Pipeline = LogToTable(directory, broker, seed, a_round, kind, store)
    else:
        pipeline = PIPELINES[name](directory, broker, seed, a_round)
    try:
        yield pipeline
    finally:
        pipeline.load.close()


def play(
    pipeline: Pipeline,
    name: str,
    cluster: SparkCluster,
    broker: Broker,
    log: Path,
    seed: int,
    messages: int,
    rounds: int,
    tell: Callable[[str], None] = lambda _progress: None,
    restores: Restores | None = None,
    store: DiskStore | None = None,
) -> Verdict:
    """One storm.

    Args:
        pipeline: from ``prepared``.
        name: of it.
        cluster: whose workers are killed.
        broker: of the pipeline.
        log: file for what the driver says.
        seed: of the faults.
        messages: how many in all.
        rounds: of faults; three are one of each kind.
        tell: told how far it is, often.
        restores: older states that are put back; None for none.
        store: the object store that has the table; None for none.

    Raises:
        AssertionError: nothing comes out any more.
    """
    draw = random.Random(seed)
    things = KINDS if store is None else (STORE, *KINDS)
    killed = dict.fromkeys(things, 0)
    spoiled: dict[str, int] = {}
    began_s = time.monotonic()
    driver = Driver(pipeline, cluster, log)
    second = Driver(pipeline, cluster, log)
    arrived = 0

    def show() -> None:
        faults = ", ".join(f"{times} {kind}" for kind, times in killed.items())
        tell(f"{name}: {arrived:,} of {count(pipeline.load):,} rows; killed {faults}")

    try:
        driver.start()
        for number, kinds in enumerate(faults(draw, rounds, things)):
            if store is not None:
                every = draw.randint(*_SPOILED_EVERY)
                store.proxy.spoil(SPOILS[number % len(SPOILS)], every=every, times=_SPOILED_TIMES)
            pipeline.load.give((number + 1) * messages // rounds)
            aim = (number + draw.uniform(_LEAST_SHARE, _MOST_SHARE)) * messages / rounds
            stall = Stall(pipeline)
            while arrived < aim - (0 if restores is None else restores.lost):
                driver.revive()
                arrived = stall.check(driver.last_words)
                show()
                let_pass(_LOOK_S)
            let_pass(draw.uniform(0, _MOMENT_S))
            for kind in kinds:
                killed[kind] += 1
                do(kind, cluster, broker, driver, draw, store)
            second.kill(whole=True)
            if number < rounds - 1 and DRIVER in kinds:
                driver.start()
            if restores is not None:
                for kind in restores.of_round(rounds - 1 - number):
                    put_back(kind, restores, pipeline, driver, second, draw)
                    restores.check_receipts()
                pipeline.load.finish()
                restores.copy()
        pipeline.load.finish()
        driver.run_to_the_end(show)
        seconds = time.monotonic() - began_s
        if store is not None:
            counts = store.proxy.counts()
            spoiled = {what: counts.get(what, 0) for what in SPOILS}
        if restores is None:
            outcome = pipeline.outcome()
        else:
            restores.check_receipts()
            outcome = compare(restores.living(), living_rows(restores, pipeline))
            killed |= restores.done
        return Verdict(name, killed, driver.ended, seconds, outcome, spoiled)
    finally:
        second.close()
        driver.close()


def put_back(
    kind: str,
    restores: Restores,
    pipeline: Pipeline,
    driver: Driver,
    second: Driver,
    draw: random.Random,
) -> None:
    """Put one older state back, or let a second job begin."""
    if kind == DATA:
        pipeline.load.finish()  # what is on its way would be of no history
        restores.put_back(kind, draw)
        return
    if kind != SECOND:
        driver.kill(whole=True)
    restores.put_back(kind, draw)
    (second if kind == SECOND else driver).start()


def living_rows(restores: Restores, pipeline: Pipeline) -> Iterator[tuple[str, int]]:
    """The rows of messages that the log has; of others, which were acknowledged before an older
    copy was put back, each is there at most once."""
    living, acknowledged = restores.living(), pipeline.load.acknowledged
    for (source, number), times in restores.rows().items():
        if number not in living.get(source, set()):
            assert number in acknowledged[source], f"{source} {number} was never acknowledged"
            assert times == 1, f"{source} {number} is there {times} times"
            continue
        yield from [(source, number)] * times


def faults(
    draw: random.Random, rounds: int, things: tuple[str, ...] = KINDS
) -> Iterator[list[str]]:
    """The kinds of each round; as many rounds as kinds have one each, and the driver comes last."""
    for number in range(rounds):
        kind = things[(number - rounds) % len(things)]
        others = [other for other in things if other != kind]
        is_one_more = rounds > len(things) and draw.random() < _ONE_MORE
        yield [kind, draw.choice(others)] if is_one_more else [kind]


def do(
    kind: str,
    cluster: SparkCluster,
    broker: Broker,
    driver: Driver,
    draw: random.Random,
    store: DiskStore | None,
) -> None:
    """One fault; the driver is started again by the caller."""
    if kind == WORKER:
        number = draw.randrange(WORKERS)
        cluster.kill_worker(number)
        cluster.start_worker(number)
    elif kind == BROKER:
        broker.restart()
    elif kind == STORE:
        assert store is not None
        store.server.restart()
    else:
        driver.kill(whole=draw.random() < 0.5)
