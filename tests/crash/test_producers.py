"""A publisher without a memory, and a broker that is killed: each message once, in its order.

The publisher connects with a new client identifier each time, asks CONNACK for the latest number
of its producer, and goes on with the next, some ahead of their acknowledgements. Meanwhile the
broker is killed at random moments, and the publisher drops its connection now and then.

The seed is printed; ``CRASH_SEED=... pytest tests/crash/test_producers.py`` draws the same again.
"""

import contextlib
import itertools
import os
import random
import threading
from functools import partial
from pathlib import Path
from typing import Final

from penstock.engine.values.producer_properties import PRODUCER, SEQUENCE
from penstock.protocol.packets import Puback, Publish
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import running_broker
from tests.support.raw_client import ConnectionEndedError, RawClient

KILLS: Final = 2
MESSAGES_A_KILL: Final = 80  # acknowledged between one and the next
AHEAD: Final = 20
DROPPED_ONE_IN: Final = 60


class Forgetful:
    """One producer, in a thread."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.acknowledged = 0
        self.connections = 0
        self.failure: BaseException | None = None
        self._target = MESSAGES_A_KILL * (KILLS + 1)
        self._address = broker.address
        self._random = random.Random(seed)
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def has_come_to(self, acknowledged: int) -> bool:
        """Whether so many are acknowledged, or there is nothing to wait for."""
        return self.acknowledged >= acknowledged or self.failure is not None

    def join(self) -> None:
        """Wait until all is acknowledged."""
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.acknowledged} of {self._target}"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while self.acknowledged < self._target:
                with contextlib.suppress(ConnectionEndedError, OSError):
                    self._publish()
        except BaseException as failure:  # told by ``join``
            self.failure = failure

    def _publish(self) -> None:
        """As far as this connection lasts."""
        with RawClient(self._address) as client:
            self.connections += 1
            asking = Properties(user_properties=[(PRODUCER, "p")])
            connack = client.connect(f"producer-{self.connections}", properties=asking)
            assert connack.properties is not None
            latest = int(dict(connack.properties.user_properties or [])[SEQUENCE])
            assert latest >= self.acknowledged, "acknowledged, and forgotten"
            self.acknowledged = latest
            following = latest + 1
            waiting: dict[int, int] = {}
            while self.acknowledged < self._target:
                while len(waiting) < AHEAD and following <= self._target:
                    pairs = [(PRODUCER, "p"), (SEQUENCE, str(following))]
                    packet_id = client.next_id()
                    waiting[packet_id] = following
                    properties = Properties(user_properties=pairs)
                    payload = str(following).encode()
                    client.send(
                        Publish("t", payload, 1, packet_id=packet_id, properties=properties)
                    )
                    following += 1
                answer = client.expect(Puback)
                assert answer.reason_code == 0
                self.acknowledged = waiting.pop(answer.packet_id)
                if self._random.randrange(DROPPED_ONE_IN) == 0:
                    return


def test_each_message_is_published_once_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    with running_broker(tmp_path, {"limits.max_mqueue_len": 0}) as broker:
        with RawClient(broker.address) as reader:
            reader.connect("reader", expiry_s=3600)
            reader.subscribe("t", qos=2)
        producer = Forgetful(broker, seed)
        for kill in range(1, KILLS + 1):
            wait_for("messages", partial(producer.has_come_to, kill * MESSAGES_A_KILL))
            broker.kill()
            broker.start()
        producer.join()
        assert producer.connections > KILLS
        with RawClient(broker.address) as reader:
            reader.connect("reader", clean_start=False, expiry_s=3600)
            got = [int(reader.take().payload) for _ in range(producer.acknowledged)]
            assert got == list(itertools.islice(itertools.count(1), producer.acknowledged))
            assert reader.settle() == []
