"""A mixed load for a broker that is recorded or killed: all that makes a store write.

Publishers at QoS 1 and 2 and their subscribers (``ledger``), and besides:

============ ==================================================================
``Absent``   a subscriber that is away half of the time: its queue is stored
``Fickle``   subscribes and unsubscribes, alone and in a shared subscription
``Keeper``   sets, changes and removes retained messages
``Brief``    sessions that expire
============ ==================================================================
"""

import contextlib
import random
import time
from typing import Final, final

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Puback, Publish, Suback, Subscribe, Subscription, Unsubscribe
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.ledger import QUOTA_EXCEEDED, Device, Entrance, Publisher, Subscriber
from tests.support.raw_client import ConnectionEndedError, NothingReceivedError, RawClient

RETAINED_TOPICS: Final = 4
_PAUSE_S: Final = 0.01
_BRIEF_S: Final = 0.1
_AWAY_S: Final = 0.25
_LISTEN_S: Final = 0.05
_ERRORS: Final = (ConnectionEndedError, OSError)


class Receiver(Device):
    """Acknowledges what it gets, and writes nothing down: the recording knows."""

    def __init__(self, broker: Broker | Entrance, client_id: str, version: int, seed: int) -> None:
        super().__init__(broker, client_id, version, seed)
        self._last_id = 0

    def listen(self, client: RawClient, seconds: float) -> None:
        """Receive for a while."""
        ends_s = time.monotonic() + seconds
        while not self.ending.is_set() and time.monotonic() < ends_s:
            with contextlib.suppress(NothingReceivedError):
                client.acknowledge(client.receive(_LISTEN_S))

    def next_id(self) -> int:
        """A packet identifier; few, so that they come again."""
        self._last_id = self._last_id % 50 + 1
        return self._last_id


@final
class Absent(Receiver):
    """Comes, takes some, and is away again."""

    def session(self, client: RawClient) -> None:
        """A short visit."""
        if not self.ready.is_set():
            client.send(Subscribe(1, [Subscription("ledger/#", 2)]))
            client.expect(Suback)
            self.ready.set()
        else:
            self.listen(client, self._random.uniform(0, 2 * _AWAY_S))
        client.drop()
        time.sleep(self._random.uniform(0, 2 * _AWAY_S))  # being away is what it is for


@final
class Fickle(Receiver):
    """Changes its mind about what to receive."""

    FILTERS: Final = ("ledger/1/+", "ledger/2/+", "$share/some/ledger/#")

    def session(self, client: RawClient) -> None:
        """Subscribe here, unsubscribe there."""
        self.ready.set()
        while not self.ending.is_set():
            topic_filter = self._random.choice(self.FILTERS)
            if self._random.random() < 0.6:
                qos = self._random.choice((1, 2))
                client.send(Subscribe(self.next_id(), [Subscription(topic_filter, qos)]))
            else:
                client.send(Unsubscribe(self.next_id(), [topic_filter]))
            self.listen(client, self._random.uniform(0, 0.2))
            if self._fails():
                return


@final
class Keeper(Receiver):
    """Keeps a few topics' retained messages changing, one message at a time."""

    def __init__(self, broker: Broker | Entrance, client_id: str, version: int, seed: int) -> None:
        super().__init__(broker, client_id, version, seed)
        self.kept: dict[str, bytes] = {}  # what was acknowledged last, by topic
        self._number = 0
        self._open: Publish | None = None

    def finished(self) -> bool:
        """Its last message is acknowledged."""
        return self._open is None

    def session(self, client: RawClient) -> None:
        """Send again what is open, then go on."""
        self.ready.set()
        if self._open is not None:
            self._open.dup = True
            self._send(client, self._open)
        while not self.ending.is_set():
            self._number += 1
            payload = b"" if self._random.random() < 0.2 else b"%d" % self._number
            topic = f"retained/{self._random.randrange(RETAINED_TOPICS)}"
            packet_id = self._number % 60_000 + 1
            self._send(client, Publish(topic, payload, 1, True, False, packet_id))
            time.sleep(_PAUSE_S)  # it is not in a hurry

    def _send(self, client: RawClient, message: Publish) -> None:
        self._open = message
        client.send(message)
        while True:
            answer = client.receive()  # a DISCONNECT: the end comes next
            if isinstance(answer, Puback) and answer.reason_code == QUOTA_EXCEEDED:
                time.sleep(_PAUSE_S)
                client.send(message)
            elif isinstance(answer, Puback):
                break
        self.kept[message.topic] = message.payload
        self._open = None


@final
class Brief(Device):
    """One session after the other that ends soon after its client has left."""

    def _connect(self) -> None:
        time.sleep(_BRIEF_S)  # a client every so often
        with self.entrance.dial(V5) as client:
            self.connections += 1
            answer = client.connect(f"{self.client_id}-{self.connections}", True, expiry_s=1)
            if not self.entrance.serves(answer):
                return
            client.send(Subscribe(1, [Subscription("ledger/1/#", 1)]))
            self.ready.set()
            time.sleep(_BRIEF_S)


def devices(broker: Broker, draw: random.Random, pause_s: float = 0.0) -> list[Device]:
    """The whole load, receivers first; each is to be started and waited for in this order."""

    def seed() -> int:
        return draw.randrange(2**32)

    load: list[Device] = [
        Subscriber(broker, "s5", V5, seed()),
        Subscriber(broker, "s4", V311, seed()),
        Absent(broker, "absent", V5, seed()),
        Fickle(broker, "fickle", V5, seed()),
        Fickle(broker, "fickle4", V311, seed()),
        Keeper(broker, "keeper", V5, seed()),
        Brief(broker, "brief", V5, seed()),
    ]
    for version in (V311, V5):
        for qos in (1, 2):
            publisher = Publisher(broker, f"p{version}{qos}", version, qos, seed())
            publisher.pause_s = pause_s
            load.append(publisher)
    return load


def start(load: list[Device]) -> None:
    """Start all, one after the other."""
    for device in load:
        device.start()
        assert device.ready.wait(DEADLINE_S), device.failure or device.client_id


def end(load: list[Device]) -> None:
    """End all; what one of them found wrong is raised."""
    for device in load:
        device.ending.set()
    for device in load:
        device.join()
