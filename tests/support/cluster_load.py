"""The load of a storm over a cluster: devices that go on to the next address, and their ledgers.

It is all that makes a store write (``mixed_load``), and besides:

============ ==================================================================
``one``      a stored subscriber at QoS 1
``share0``,  two of one shared subscription, at QoS 2
``share1``
``Doomed``   has a will, and loses its connection again and again
``sleeper``  a stored session that is away all the time
``probe``    a publisher that leaves a broker after half a second of silence
============ ==================================================================
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, final

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Publish, Suback, Subscribe, Subscription, Will
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.kills import judge
from tests.support.ledger import Device, Entrance, Publisher, Subscriber
from tests.support.machines import Machines
from tests.support.mixed_load import Absent, Brief, Fickle, Keeper, Receiver

PAUSE_S: Final = 0.02
DELIVERED_S: Final = 120.0
BRIEF_EXPIRED_S: Final = 3.0
_STAY_S: Final = 0.5


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


class Pace(NamedTuple):
    """How fast and patient devices are, in seconds.

    Attributes:
        pause_s: pause of each publisher between two messages.
        answer_s: time that a broker has to answer, before a device tries another.
        probe_s: the same for ``probe``.
    """

    pause_s: float
    answer_s: float
    probe_s: float


BRISK: Final = Pace(PAUSE_S, 3.0, 0.5)
"""For interruptions that are measured."""

CALM: Final = Pace(0.1, 20.0, 10.0)
"""For servers that are filled anew, which needs the processor, on a busy machine."""


@final
class Load:
    """The devices.

    Args:
        machines: the cluster.
        draw: the seeds of the devices.
        pace: how fast and patient they are.
    """

    def __init__(self, machines: Machines, draw: random.Random, pace: Pace) -> None:
        def device_of(name: str, version: int = V5) -> tuple[Entrance, str, int, int]:
            return machines.entrance(pace.answer_s), name, version, draw.randrange(2**32)

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
            Publisher(
                machines.entrance(pace.answer_s),
                f"p{version}{qos}",
                version,
                qos,
                draw.randrange(2**32),
            )
            for version in (V311, V5)
            for qos in (1, 2)
        ]
        probe = Publisher(
            machines.entrance(pace.probe_s), "probe", V5, 2, draw.randrange(2**32), window=1
        )
        self.publishers.append(probe)
        for publisher in self.publishers:
            publisher.pause_s = pace.pause_s
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
        """End all devices; raise what went wrong in one."""
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
                client.drop()
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
