"""Takeover: a second connection with the client identifier of the first."""

import pytest

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect, Puback, Publish, Will
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients


@pytest.mark.parametrize("version", VERSIONS)
def test_the_new_connection_ends_the_old_one(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.4-3]; MQTT 5 clients are told with 0x8E.

    [MQTT3-3.1.4-2], [V31-3.1-CLIENT-ID-UNIQUE].
    """
    old = clients.join(shared_broker, name, version)
    new = clients.join(shared_broker, name, version)
    if version == V5:
        old.expect_disconnect(0x8E)
    else:
        old.expect_end()
    assert new.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_session_moves_with_what_is_unacknowledged(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    expiry_s = 60 if version == V5 else None
    old = clients.join(shared_broker, name, version, clean_start=False, expiry_s=expiry_s)
    old.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"one", qos=1)
    first = old.expect(Publish)
    new = clients.join(
        shared_broker, name, version, clean_start=False, expiry_s=expiry_s, present=True
    )
    again = new.expect(Publish)
    assert again == Publish(f"{name}/t", b"one", 1, dup=True, packet_id=first.packet_id)
    new.send(Puback(again.packet_id))
    publisher.publish(f"{name}/t", b"two", qos=1)
    assert new.take_payloads(1) == [b"two"]


@pytest.mark.parametrize("version", VERSIONS)
def test_of_many_at_once_the_last_one_stays(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """While each waits for its commit, the next takes over; no message is lost by it."""
    expiry_s = 60 if version == V5 else None
    first = clients.join(shared_broker, name, version, clean_start=False, expiry_s=expiry_s)
    first.subscribe(f"{name}/t")
    publisher = clients.join(shared_broker, f"{name}p")
    publisher.publish(f"{name}/t", b"kept", qos=2)
    expiry = None if expiry_s is None else Properties(session_expiry_interval=expiry_s)
    connect = Connect(name, version, clean_start=False, keep_alive_s=0, properties=expiry)
    storm = [clients.open(shared_broker, version) for _ in range(20)]
    for client in storm:
        client.send(connect)
    connected = [client for client in storm if not client.has_ended(0.2)]
    assert len(connected) == 1
    again = clients.join(
        shared_broker, name, version, clean_start=False, expiry_s=expiry_s, present=True
    )
    message = again.take()
    assert (message.payload, message.dup) == (b"kept", True)
    assert again.settle() == []


def test_a_takeover_counts_as_a_lost_connection_for_the_will(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.4-3]; with a will delay, a session taken up again keeps it back [MQTT-3.1.3-9]."""
    watcher = clients.join(shared_broker, f"{name}w")
    watcher.subscribe(f"{name}/#")
    clients.join(shared_broker, f"{name}a", will=Will(f"{name}/at-once", b""))
    clients.join(shared_broker, f"{name}a")
    assert watcher.take().topic == f"{name}/at-once"
    delayed = Properties(will_delay_interval=3600)
    kept = Will(f"{name}/kept", b"", properties=delayed)
    clients.join(shared_broker, f"{name}b", will=kept, expiry_s=3600)
    clients.join(shared_broker, f"{name}b", clean_start=False, present=True)
    assert watcher.settle() == []
    ended = Will(f"{name}/ended", b"", properties=delayed)
    clients.join(shared_broker, f"{name}c", will=ended, expiry_s=3600)
    clients.join(shared_broker, f"{name}c", clean_start=True)
    assert watcher.take().topic == f"{name}/ended"
