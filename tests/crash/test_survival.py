"""What survives a restart, by persistence mode, session and QoS: the table itself.

A message waits for a client that is away; the broker is killed and started again. "kept" is a
session that outlives its connection, "clean" one that ends with it: MQTT's own persist flag.

QoS 0 promises nothing: it waits in memory, and only there. This is the table of seed 003, "Restart
Impact Summary", with its one combination that survives.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.support.fixtures import Clients, running_broker

SURVIVES, GONE = True, False


TABLE: Final = {
    ("memory", "kept", 0): GONE,
    ("memory", "kept", 1): GONE,
    ("memory", "kept", 2): GONE,
    ("memory", "clean", 0): GONE,
    ("memory", "clean", 1): GONE,
    ("memory", "clean", 2): GONE,
    ("file", "kept", 0): GONE,
    ("file", "kept", 1): SURVIVES,
    ("file", "kept", 2): SURVIVES,
    ("file", "clean", 0): GONE,
    ("file", "clean", 1): GONE,
    ("file", "clean", 2): GONE,
}


@pytest.mark.parametrize("persistence", ["memory", "file"])
def test_a_waiting_message(tmp_path: Path, clients: Clients, persistence: str) -> None:
    """One broker for all rows of a mode: each has a client and a topic of its own."""
    rows = [(session, qos) for mode, session, qos in TABLE if mode == persistence]
    expiry_s = {"kept": 3600, "clean": 0}
    with running_broker(tmp_path, persistence=persistence) as broker:
        for session, qos in rows:
            subscriber = clients.join(
                broker, f"{session}{qos}", clean_start=False, expiry_s=expiry_s[session]
            )
            subscriber.subscribe(f"{session}/{qos}")
            subscriber.disconnect()
        publisher = clients.join(broker, "p")
        for session, qos in rows:
            publisher.publish(f"{session}/{qos}", b"x", qos)
        publisher.publish("other", b"later", 1)  # its acknowledgement: all before it is synced
        broker.restart()
        for session, qos in rows:
            again = clients.join(
                broker,
                f"{session}{qos}",
                clean_start=False,
                expiry_s=expiry_s[session],
                present=(persistence, session) == ("file", "kept"),
            )
            if TABLE[persistence, session, qos] is SURVIVES:
                assert again.take().payload == b"x", (session, qos)
            assert again.settle() == [], (session, qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_waiting_message_acknowledged_in_memory(
    tmp_path: Path, clients: Clients, qos: int
) -> None:
    """A declared contract: only what came since the last commit may be gone."""
    contract = {"durability.acknowledge_in_memory": '["t"]'}
    with running_broker(tmp_path, contract) as broker:
        subscriber = clients.join(broker, "s", clean_start=False, expiry_s=3600)
        subscriber.subscribe("t")
        subscriber.disconnect()
        publisher = clients.join(broker, "p")
        publisher.publish("t", b"x", qos)
        publisher.publish("other", b"later", 1)  # promised, and so is all before it
        broker.restart()
        again = clients.join(broker, "s", clean_start=False, expiry_s=3600, present=True)
        assert again.take().payload == b"x"
        publisher = clients.join(broker, "p")
        publisher.publish("t", b"y", qos)
        assert again.take().payload == b"y"
        again.disconnect()
        publisher.publish("t", b"z", qos)
        assert broker.stop() == 0  # a stop in order loses nothing
        broker.start()
        again = clients.join(broker, "s", clean_start=False, expiry_s=3600, present=True)
        assert again.take().payload == b"z"
        assert again.settle() == []
