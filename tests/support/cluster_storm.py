"""Faults of the machines of a cluster under load, drawn by a seed, and the ledgers at the end.

::

      devices ─▶ three machines ─▶ devices     healthy ─▶ strike ─▶ repair ─▶ acknowledged again
                    ✗ each kind of fault in turn  ▲                                │
                                                  ╰────────────────────────────────╯

The load is all that makes a store write (``mixed_load``), by devices that go on to the next
address, and besides:

============ ==================================================================
``one``      a stored subscriber at QoS 1
``share0``,  two of one shared subscription, at QoS 2
``share1``
``Doomed``   has a will, and loses its connection again and again
``sleeper``  a stored session that is away all the time
``probe``    a publisher that leaves a broker after half a second of silence
============ ==================================================================

At the end nothing acknowledged may be missing, QoS 2 may not have come twice, all orders are kept,
sessions are there or have expired, retained messages are the last ones, every will came, the log is
the same on each machine, and so is every key and value of the views.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Publish, Suback, Subscribe, Subscription, Will
from tests.support.cluster_faults import FAULTS, Fault, clock_file, set_clock
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.kills import compare_log, judge
from tests.support.ledger import Device, Entrance, Publisher, Subscriber
from tests.support.machines import Machines
from tests.support.mixed_load import Absent, Brief, Fickle, Keeper, Receiver
from tests.support.networks import Network

PAUSE_S: Final = 0.02
PROBE_ANSWER_S: Final = 0.5
SILENCE_S: Final = 0.25
"""Acknowledgements that stay away for less, seconds, are not called an interruption."""

MOMENT_S_MAX: Final = 1.0
RECOVERED_S: Final = 90.0
DELIVERED_S: Final = 120.0
BRIEF_EXPIRED_S: Final = 3.0
_SAMPLE_S: Final = 0.005
_SLEEP: Final = """
import select, time
def sleep(seconds):
    select.select([], [], [], seconds)
time.sleep = sleep
"""
_STAY_S: Final = 0.5


class Interruption(NamedTuple):
    """What one fault cost: seconds until acknowledgements came again; 0 where they went on."""

    fault: str
    seconds: float


@final
class Verdict(NamedTuple):
    """What was done, once all promises were found kept."""

    acknowledged: dict[int, int]  # by QoS
    refused: int
    wills: int
    interruptions: list[Interruption]
    seconds: float

    def __str__(self) -> str:
        return (
            f"{len(self.interruptions)} faults in {self.seconds:.0f} s; acknowledged"
            f" {self.acknowledged[2]:,} at QoS 2 and {self.acknowledged[1]:,} at QoS 1, refused"
            f" {self.refused:,}; {self.wills:,} wills\n"
            "QoS 2: lost 0, duplicated 0, out of order 0; QoS 1: lost 0; sessions, retained"
            " messages, wills: all there; views: equal in every key and value\n"
            f"{table(self.interruptions)}"
        )


def table(interruptions: Sequence[Interruption]) -> str:
    """Return the table by kind of fault: seconds until the first acknowledgement."""
    lines = [f"{'fault':<16}{'count':>6}{'went on':>9}{'p50 s':>8}{'p99 s':>8}{'max s':>8}"]
    for name in dict.fromkeys(one.fault for one in interruptions):
        all_s = sorted(one.seconds for one in interruptions if one.fault == name)
        some_s = [seconds for seconds in all_s if seconds]
        figures = (statistics.median(some_s), quantile(some_s, 0.99), some_s[-1]) if some_s else ()
        lines.append(
            f"{name:<16}{len(all_s):>6}{len(all_s) - len(some_s):>9}"
            + "".join(f"{figure:>8.2f}" for figure in figures)
        )
    return "\n".join(lines)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ordered values are, the highest of them."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@final
class Doomed(Receiver):
    """A device with a will, whose connection is lost again and again."""

    def __init__(self, broker: Entrance, client_id: str, version: int, seed: int) -> None:
        super().__init__(broker, client_id, version, seed)
        self.willed: set[int] = set()
        self._number = 0

    def _connect(self) -> None:
        try:
            client = self.entrance.dial(V5)
        except OSError:
            time.sleep(PAUSE_S)
            return
        with client:
            self._number += 1
            will = Will(f"wills/{self.client_id}", b"%d" % self._number, 1, False)
            answer = client.connect(self.client_id, clean_start=True, will=will)
            if not self.entrance.serves(answer):
                time.sleep(PAUSE_S)
                return
            self.willed.add(self._number)
            self.connections += 1
            self.ready.set()
            self.listen(client, self._random.uniform(0, 2 * _STAY_S))


class Traffic(Protocol):
    """Publishers under way."""

    def acknowledged(self) -> list[int]:
        """Return how many messages of each publisher are acknowledged."""

    def check(self) -> None:
        """Raise what went wrong in a device."""


@final
class Load:
    """The devices.

    Args:
        machines: the cluster.
        draw: the seeds of the devices.
    """

    def __init__(self, machines: Machines, draw: random.Random) -> None:
        def device_of(name: str, version: int = V5) -> tuple[Entrance, str, int, int]:
            return machines.entrance(), name, version, draw.randrange(2**32)

        self._machines = machines
        self.alone = [
            Subscriber(*device_of("s5")),
            Subscriber(*device_of("s4", V311)),
            Subscriber(*device_of("one"), qos=1),
        ]
        self.sharing = [
            Subscriber(*device_of(f"share{number}"), "$share/two/ledger/#") for number in (0, 1)
        ]
        self.wills = Subscriber(*device_of("wills"), "wills/#")
        self.doomed = Doomed(*device_of("doomed"))
        self.keeper = Keeper(*device_of("keeper"))
        self.brief = Brief(*device_of("brief"))
        self.publishers = [
            Publisher(machines.entrance(), f"p{version}{qos}", version, qos, draw.randrange(2**32))
            for version in (V311, V5)
            for qos in (1, 2)
        ]
        probe = Publisher(
            machines.entrance(PROBE_ANSWER_S), "probe", V5, 2, draw.randrange(2**32), window=1
        )
        self.publishers.append(probe)
        for publisher in self.publishers:
            publisher.pause_s = PAUSE_S
        self._sleeper = Subscriber(*device_of("sleeper"), probe.topic)
        self._probe = probe
        self.devices: list[Device] = [
            *(*self.alone, *self.sharing, self.wills),
            *(Absent(*device_of("absent")), Fickle(*device_of("fickle"))),
            *(self.doomed, self.keeper, self.brief),
            *self.publishers,
        ]

    def acknowledged(self) -> list[int]:
        """Return how many messages of each publisher are acknowledged."""
        return [len(publisher.acknowledged) for publisher in self.publishers]

    def check(self) -> None:
        """Raise what went wrong in a device."""
        for device in self.devices:
            if device.failure is not None:
                raise device.failure

    def start(self) -> None:
        """Start all; the sleeper subscribes and leaves."""
        entrance = self._sleeper.entrance
        while True:
            with contextlib.suppress(OSError), entrance.dial(V5) as client:
                answer = client.connect("sleeper", clean_start=False, expiry_s=3600)
                if entrance.serves(answer):
                    client.send(Subscribe(1, [Subscription(self._probe.topic, 2)]))
                    client.expect(Suback)
                    break
        self._sleeper.connections = 1
        self._sleeper.ready.set()
        for device in self.devices:
            device.start()
            assert device.ready.wait(DEADLINE_S), device.failure or device.client_id

    def finish(self) -> None:
        """Let publishers get their last acknowledgements, and all be delivered; end all."""
        for device in (*self.publishers, self.doomed, self.keeper):
            device.ending.set()
        for device in (*self.publishers, self.doomed, self.keeper):
            device.join()
        self._sleeper.start()
        self.devices.append(self._sleeper)
        for publisher in self.publishers:
            for subscriber in self.alone:
                self._wait_for(publisher, [subscriber])
            self._wait_for(publisher, self.sharing)
        self._wait_for(self._probe, [self._sleeper])
        wait_for("all wills", lambda: not self._wills_missing(), DELIVERED_S)

    def end(self) -> None:
        """End all devices."""
        for device in self.devices:
            device.ending.set()
        for device in self.devices:
            device.join()

    def judge(self) -> None:
        """Compare the ledgers.

        Raises:
            AssertionError: a promise was broken.
        """
        for publisher in self.publishers:
            assert len(publisher.acknowledged) + publisher.refused == publisher.sent > 0
            for subscriber in self.alone:
                numbers = subscriber.received[publisher.topic]
                judge(publisher, numbers, f"at {subscriber.client_id}", subscriber.qos)
            shared = [one.received.get(publisher.topic, []) for one in self.sharing]
            judge(publisher, sorted(number for one in shared for number in one), "at the group")
        judge(self._probe, self._sleeper.received[self._probe.topic], "at the sleeper")

    def judge_retained(self) -> None:
        """Compare the retained messages with what their publisher was acknowledged."""
        found: dict[str, bytes] = {}
        entrance = self._machines.entrance()
        client = None
        while client is None:
            client = entrance.dial(V5)
            if not entrance.serves(client.connect("looks at what is retained")):
                client = None
        with client:
            client.send(Subscribe(1, [Subscription("retained/#", 1)]))
            for packet in client.settle():
                if isinstance(packet, Publish):
                    found[packet.topic] = packet.payload
        kept = {topic: payload for topic, payload in self.keeper.kept.items() if payload}
        assert found == kept, f"retained: {found}, acknowledged: {kept}"

    def judge_expired(self) -> None:
        """Look for sessions that should have expired."""
        last = self.brief.connections
        let_pass(BRIEF_EXPIRED_S)
        for number in range(max(1, last - 5), last + 1):
            entrance = self._machines.entrance()
            for _ in self._machines.all:
                with entrance.dial(V5) as client:
                    answer = client.connect(f"brief-{number}", clean_start=False)
                    if entrance.serves(answer):
                        assert not answer.session_present, f"brief-{number} has not expired"
                        break

    def _wait_for(self, publisher: Publisher, subscribers: Sequence[Subscriber]) -> None:
        """Wait until these have received all of a publisher between them."""

        def missing() -> set[int]:
            lists = [list(one.received.get(publisher.topic, ())) for one in subscribers]
            return publisher.acknowledged - {number for one in lists for number in one}

        names = ", ".join(one.client_id for one in subscribers)
        try:
            wait_for("all", lambda: not missing(), DELIVERED_S)
        except AssertionError:
            left = sorted(missing())
            raise AssertionError(
                f"{len(left)} of {len(publisher.acknowledged)} of {publisher.topic} did not reach"
                f" {names}: {left[:5]}"
            ) from None

    def _wills_missing(self) -> set[int]:
        topic = f"wills/{self.doomed.client_id}"
        return self.doomed.willed - set(self.wills.received.get(topic, ()))


@final
class Silences:
    """The times in which no publisher was acknowledged anything; a context manager."""

    def __init__(self, acknowledged: Callable[[], list[int]]) -> None:
        self._acknowledged = acknowledged
        self._found: list[tuple[float, float]] = []
        self._last_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="silences", daemon=True)

    def __enter__(self) -> Silences:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def longest_since(self, began_s: float) -> float:
        """Return the time from ``began_s`` to the end of the longest silence since; 0 without."""
        last_s = self._last_s
        found = [*self._found, (last_s, time.monotonic())]
        since = [(end - begin, end) for begin, end in found if end > began_s]
        length_s, end_s = max(since, default=(0.0, 0.0))
        return end_s - began_s if length_s >= SILENCE_S else 0.0

    def _sample(self) -> None:
        before = sum(self._acknowledged())
        while not self._ending.wait(_SAMPLE_S):
            now, now_s = sum(self._acknowledged()), time.monotonic()
            if now != before:
                if now_s - self._last_s >= SILENCE_S:
                    self._found.append((self._last_s, now_s))
                before, self._last_s = now, now_s


def kinds_of(has_network: bool, has_clock: bool) -> list[Fault]:
    """Return the faults that are possible here."""
    return [
        fault
        for fault in FAULTS
        if (has_network or not fault.needs_network) and (has_clock or fault.name != "clock")
    ]


def play(
    directory: Path,
    network: Network | None,
    seed: int,
    faults: int,
    kinds: Sequence[Fault],
    tell: Callable[[str], None] = lambda _progress: None,
    clock_library: Path | None = None,
    seconds: float = float("inf"),
) -> Verdict:
    """Run a load, do faults of all kinds in turn, and compare the ledgers.

    Args:
        directory: an empty directory.
        network: where the machines are; None for loopback.
        seed: of the order and the moments of the faults.
        faults: how many at most.
        kinds: those that happen.
        tell: told how far it is.
        clock_library: libfaketime, by which clocks jump.
        seconds: time after which no fault is begun.

    Raises:
        AssertionError: a promise was broken.
    """
    draw = random.Random(seed)
    began_s = time.monotonic()
    done: list[Interruption] = []
    machines = Machines(directory, network, {"limits.max_mqueue_len": 0})
    if clock_library is not None:
        _give_clocks(machines, clock_library)
    with machines:
        load = Load(machines, draw)
        try:
            load.start()
            with Silences(load.acknowledged) as silences:
                order: list[Fault] = []
                while len(done) < faults and time.monotonic() - began_s < seconds:
                    order = order or draw.sample(list(kinds), len(kinds))
                    done.append(suffer(machines, load, silences, order.pop(), draw))
                    tell(f"{len(done)} faults; {done[-1].fault}: {done[-1].seconds:.2f} s")
            machines.wait_until_healthy()
            load.finish()
            load.judge_retained()
            load.judge_expired()
        finally:
            _end(load)
        load.judge()
        machines.members.wait_until_level()
        with machines.client.inside():
            for machine in machines.all.values():
                compare_log(machine.member.stream_address, load.publishers)
        views = machines.views()
        _compare(views)
    by_qos = {
        qos: sum(
            len(one.acknowledged)
            for one in load.publishers
            if one.topic.startswith(f"ledger/{qos}")
        )
        for qos in (1, 2)
    }
    refused = sum(one.refused for one in load.publishers)
    return Verdict(by_qos, refused, len(load.doomed.willed), done, time.monotonic() - began_s)


def suffer(
    machines: Machines, load: Traffic, silences: Silences, fault: Fault, draw: random.Random
) -> Interruption:
    """Let one fault happen in the middle of traffic; return what it cost."""
    machines.wait_until_healthy()
    _wait_for_traffic(load)
    let_pass(draw.uniform(0, MOMENT_S_MAX))
    counts_s = time.monotonic()
    repair = fault.strike(machines, draw)
    ends_s = time.monotonic() + draw.uniform(*fault.lasts_s)
    try:
        while time.monotonic() < ends_s:
            load.check()
            let_pass(0.02)
    finally:
        if fault.from_repair:
            counts_s = time.monotonic()
        repair()
    _wait_for_traffic(load)
    return Interruption(fault.name, silences.longest_since(counts_s))


def _wait_for_traffic(load: Traffic) -> None:
    """Wait until every publisher is acknowledged something more."""
    before = load.acknowledged()

    def moved_on() -> bool:
        load.check()
        return all(now > then for now, then in zip(load.acknowledged(), before, strict=True))

    wait_for("acknowledgements to every publisher", moved_on, RECOVERED_S)


def _end(load: Load) -> None:
    """End all devices; raise the first failure of one unless another is under way."""
    for device in load.devices:
        device.ending.set()
    load.end()


def _compare(views: dict[str, dict[tuple[str, bytes], bytes]]) -> None:
    """Compare the views of all machines in every key and value."""
    (first, view), *others = views.items()
    for name, other in others:
        wrong = sorted(key for key in view.keys() | other.keys() if view.get(key) != other.get(key))
        assert not wrong, (
            f"the views of {first} and {name} differ in {len(wrong)} of {len(view)} keys:"
            f" {[(key, view.get(key), other.get(key)) for key in wrong[:3]]}"
        )


def _give_clocks(machines: Machines, library: Path) -> None:
    """Give each broker a wall clock of its own (libfaketime).

    libfaketime fails each call by which ``time.sleep`` waits, so another one takes its place in all
    processes of a broker.
    """
    for machine in machines.all.values():
        site = machine.member.data_dir.parent / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SLEEP)
        paths = [str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        absolute = [str(Path(path).resolve()) for path in paths if path]
        machine.member.set_environment("PYTHONPATH", os.pathsep.join(absolute))
        set_clock(machine, 0)
        for name, value in (
            ("LD_PRELOAD", str(library)),
            ("FAKETIME_TIMESTAMP_FILE", str(clock_file(machine))),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ):
            machine.member.set_environment(name, value)
