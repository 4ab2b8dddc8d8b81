"""The course of events: start everything, kill in the middle of traffic, let the devices finish.

::

    broker, Spark job, devices start
      └▶ traffic ──pause──▶ SIGKILL ──start again──▶ recovered ──┐   once for each planned kill
            ▲────────────────────────────────────────────────────┘
      └▶ "finish" to the devices ──▶ all drained ──▶ table has caught up ──▶ everything stops

The broker is killed within a few milliseconds of a tick, when all devices publish (`fleet.TICK_S`);
the devices report what was in flight when their connections broke, and a kill that met nothing is
done over. The Spark job is killed some time into a batch. Recovered means: after the broker's
death, every device had something acknowledged by the new process; after the Spark job's death, the
new one has committed. A kill of the broker may well fall into the time in which the Spark job is
starting.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from examples.temperatures import table
from examples.temperatures.fleet import TICK_S, Device, Order, fleet
from examples.temperatures.programs import (
    DemoFailed,
    DeviceProcess,
    Program,
    wait_until,
)
from examples.temperatures.readings import Reading, readings_of
from examples.temperatures.sites import BROKER, Cluster, OneBroker, Site
from penstock.errors import PenstockError
from penstock.stream.client import StreamClient

SPARK: Final = "Spark job"

TRIGGER_S: Final = 0.5
PAUSE_S: Final = (1.0, 4.0)
RECOVERY_S_MAX: Final = 60.0
COMMIT_S_MAX: Final = 300.0
DRAIN_S_MAX: Final = 45.0
LANDING_S_MAX: Final = 300.0
REFRESH_S: Final = 0.5
AFTER_TICK_S: Final = (0.002, 0.03)
INTO_BATCH_S: Final = (0.0, 0.4)
MISSES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        devices: how many.
        readings_each: readings a device replays at least.
        readings_per_s: pace of one device.
        broker_kills: times the broker is killed in traffic; in a cluster, times something happens
            to the machine of the primary.
        spark_kills: times the Spark job is.
        seed: decides when.
        is_cluster: whether three machines serve, and not one broker.
    """

    devices: int = 8
    readings_each: int = 2500
    readings_per_s: float = 80.0
    broker_kills: int = 2
    spark_kills: int = 1
    seed: int = 0
    is_cluster: bool = False

    def targets(self, of_site: Sequence[str] = (BROKER,)) -> list[str]:
        """What to strike, in order: both evenly spread over the time.

        Args:
            of_site: what can be done to the brokers; they take turns.
        """
        numbered = [
            ((number + 0.5) / count, targets[number % len(targets)])
            for targets, count in ((of_site, self.broker_kills), ((SPARK,), self.spark_kills))
            for number in range(count)
        ]
        return [target for _, target in sorted(numbered)]


@dataclass(slots=True)
class Kill:
    """One SIGKILL.

    Attributes:
        target: `SPARK`, or one of the site's (`sites`).
        at_s: seconds since the beginning.
        down_s: until it was ready again (the broker) or had committed again (the Spark job).
        in_flight: readings sent and not acknowledged when the connections broke, by QoS.
        in_batch: whether a batch was cut off that had written files.
        rows: rows of the table at that moment.
        wall_s: that moment, in seconds since the Unix epoch.
    """

    target: str
    at_s: float
    down_s: float = 0.0
    in_flight: Counter[int] = field(default_factory=Counter)
    in_batch: bool = False
    rows: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """What there is to show at a moment."""

    sent: Counter[int]
    acknowledged: Counter[int]
    rows: int


class Replay:
    """One run in an empty directory. Leaving the `with` block ends every process.

    Args:
        plan: what to do.
        directory: everything is written here.
        show: called with the state, twice a second.
        tell: called with each event, a sentence.
    """

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        show: Callable[[State], None],
        tell: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.table = directory / "temperatures"
        self.kills: list[Kill] = []
        self.devices = fleet(plan.devices, plan.readings_each)
        self.readings: dict[str, list[Reading]] = {}
        self._directory = directory
        self._show = show
        self._tell = tell
        self._shown_at_s = 0.0
        self._rows = 0
        self._returning: tuple[Kill, int] | None = None  # Spark's last kill, commits until then
        self._random = random.Random(plan.seed)
        self._running: list[DeviceProcess] = []
        self._site: Site = Cluster(directory) if plan.is_cluster else OneBroker(directory)
        penstock = [*self._site.client, sys.executable, "-m", "penstock"]
        land = [str(self.table), "--server", self._site.stream, "--trigger", str(TRIGGER_S)]
        self._spark = Program(SPARK, [*penstock, "table", "run", *land], directory / "job.log")
        self._start_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        before = signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # a second Ctrl-C leaves nothing either
        for device in self._running:
            device.stop()
        self._spark.end()
        self._site.end()
        signal.signal(signal.SIGINT, before)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start_s

    @property
    def sessions_forgotten(self) -> int:
        """Reconnects that found the broker without its session."""
        return sum(device.sessions_forgotten for device in self._running)

    def ledger(self, device: Device) -> Path:
        """Where a device's ledger is."""
        return self._directory / "ledgers" / f"{device.name}.csv"

    # -- acts --------------------------------------------------------------------------

    def run(self) -> None:
        """From the first reading to a table that has caught up, everything stopped.

        Raises:
            DemoFailed: a program ended by itself or something takes too long.
        """
        self._start()
        misses = 0
        targets = self.plan.targets(self._site.targets)
        while targets:
            if self._random.random() < 0.5 or targets[0] == SPARK:
                self._wait_for_commit()
            self._pause(self._random.uniform(*PAUSE_S))
            kill = self._kill(targets[0])
            if kill.target != SPARK and not kill.in_flight.total() and misses < MISSES_MAX:
                misses += 1
                self._tell("that kill met no reading in flight: once more")
            else:
                targets.pop(0)
        self._wait_for_commit()
        self._refresh()
        self._finish()

    def _start(self) -> None:
        self._site.start()
        self._spark.start()
        self._tell(f"{self._site.description}; the Spark job is starting")
        for name in ("ledgers", "readings"):
            (self._directory / name).mkdir()
        for city in {device.city for device in self.devices}:
            self.readings[city] = readings_of(city)
            with (self._directory / "readings" / f"{city}.json").open("w") as file:
                json.dump([asdict(reading) for reading in self.readings[city]], file)
        for device in self.devices:
            order = Order(
                device=device,
                addresses=self._site.addresses,
                keep_alive_s=self._site.keep_alive_s,
                readings=self._directory / "readings" / f"{device.city}.json",
                ledger=self.ledger(device),
                readings_min=self.plan.readings_each,
                readings_per_s=self.plan.readings_per_s,
                drain_s_max=DRAIN_S_MAX,
            )
            log = self._directory / "devices.log"
            self._running.append(DeviceProcess(order, log, self._site.client))
        self._wait_for_traffic([0] * len(self._running))
        self._tell(f"{len(self.devices)} devices are replaying")

    def _kill(self, target: str) -> Kill:
        kill = Kill(target, self.elapsed_s)
        self.kills.append(kill)
        if target != SPARK:
            broken = [len(device.in_flight_when_broken) for device in self._running]
            connections = [device.connections for device in self._running]
            time.sleep(TICK_S - time.time() % TICK_S + self._random.uniform(*AFTER_TICK_S))
            kill.at_s = self.elapsed_s
            repair = self._site.strike(target)
            kill.down_s = self.elapsed_s - kill.at_s
            self._wait_for_traffic(connections)
            repair()
            for device, before in zip(self._running, broken, strict=True):
                kill.in_flight[device.order.device.qos] += sum(
                    device.in_flight_when_broken[before : before + 1]
                )
            count = kill.in_flight.total()
            what = "broker killed" if target == BROKER else target
            self._tell(f"{what} with {count} readings in flight, back after {kill.down_s:.1f} s")
        else:
            self._wait_for_batch()
            kill.at_s, kill.wall_s = self.elapsed_s, time.time()
            self._spark.kill()
            kill.in_batch = table.batch_under_way(self.table)
            kill.rows = table.row_count(self.table)
            self._spark.start()
            cut = "in a batch" if kill.in_batch else "between two batches"
            self._tell(f"Spark job killed {cut}, and started again")
            self._returning = (kill, table.commit_count(self.table))
        return kill

    def _finish(self) -> None:
        for device in self._running:
            device.finish()
        self._wait(
            lambda: all(device.done for device in self._running),
            self.plan.readings_each / self.plan.readings_per_s + 2 * DRAIN_S_MAX,
            "the devices to have everything acknowledged",
        )
        killed = sum(kill.target != SPARK for kill in self.kills)
        broken = sum(len(device.in_flight_when_broken) - killed for device in self._running)
        if broken > 0:
            self._tell(f"{broken} connections broke without a kill; see {self._site.log}")
        cut_off = sum(device.reconnects_cut_off for device in self._running)
        if cut_off:
            self._tell(f"{cut_off} reconnects were cut off; paho may have sent PUBLISH for PUBREL")
        self._tell("all devices are done; the Spark job catches up")
        with self._site.inside(), StreamClient(self._site.stream) as client:
            try:
                latest = client.offsets("messages").latest
            except PenstockError as error:
                raise DemoFailed(f"the stream service does not answer: {error}") from error
        self._wait(
            lambda: table.next_offset(self.table) >= latest,
            LANDING_S_MAX,
            f"the table to reach offset {latest}",
        )
        self._refresh()
        code = self._spark.stop()
        if code != 0:
            raise DemoFailed(f"{SPARK} ended with code {code} on SIGTERM")
        self._site.stop()
        self._tell("the table has caught up; broker and Spark job are stopped")

    # -- waiting -----------------------------------------------------------------------

    def _wait_for_traffic(self, connections: list[int]) -> None:
        """Until every device has one connection more, and something acknowledged over it.

        Nothing may be killed before: a reconnect that is cut off makes paho 2 err (see `device`).
        """
        acknowledged: dict[DeviceProcess, int] = {}

        def flows() -> bool:
            for device, before in zip(self._running, connections, strict=True):
                if device.connections > before:
                    acknowledged.setdefault(device, device.acknowledged)
            return all(
                device.acknowledged > acknowledged.get(device, sys.maxsize)
                for device in self._running
            )

        self._wait(flows, RECOVERY_S_MAX, "every device to get an acknowledgement")

    def _wait_for_commit(self) -> None:
        """Until the table grows from now on."""
        before = table.commit_count(self.table)
        self._wait(
            lambda: table.commit_count(self.table) > before,
            COMMIT_S_MAX,
            "the Spark job to commit",
        )

    def _wait_for_batch(self) -> None:
        """Until a batch has ended, and then for some part of the next; the job does not wait."""
        self._wait_for_commit()
        time.sleep(self._random.uniform(*INTO_BATCH_S))

    def _pause(self, seconds: float) -> None:
        end_s = self.elapsed_s + seconds
        self._wait(lambda: self.elapsed_s > end_s, seconds + 1, "a pause to pass")

    def _wait(self, condition: Callable[[], bool], longest_s: float, what: str) -> None:
        def checked() -> bool:
            self._site.check()
            self._spark.check()
            for device in self._running:
                device.check()
            if time.monotonic() - self._shown_at_s > REFRESH_S:
                self._refresh()
            return condition()

        wait_until(checked, longest_s, what)

    def _refresh(self) -> None:
        self._rows = table.row_count(self.table)
        if self._returning is not None:
            kill, commits = self._returning
            if table.commit_count(self.table) > commits:
                kill.down_s = self.elapsed_s - kill.at_s
                self._returning = None
                self._tell(f"Spark job commits again, {kill.down_s:.1f} s after its death")
        self._show(self._state())
        self._shown_at_s = time.monotonic()

    def _state(self) -> State:
        sent: Counter[int] = Counter()
        acknowledged: Counter[int] = Counter()
        for device in self._running:
            sent[device.order.device.qos] += device.sent
            acknowledged[device.order.device.qos] += device.acknowledged
        return State(sent, acknowledged, self._rows)
