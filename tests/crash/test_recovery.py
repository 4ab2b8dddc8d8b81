"""SIGKILL and a new start: what the broker had promised is still true.

SIGKILL leaves the page cache alone, so these tests show that everything is written, not that it
was synced; that is ``test_sync_before_acknowledgement``.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient

LONG_S = 3600

OLDER = pytest.param(V311, marks=pytest.mark.torture("the same in an older version"))


def come(
    clients: Clients, broker: Broker, client_id: str, version: int = V5, present: bool = False
) -> RawClient:
    """Connect with a session that stays."""
    expiry_s = LONG_S if version == V5 else None
    return clients.join(
        broker, client_id, version, clean_start=False, expiry_s=expiry_s, present=present
    )


def let_commit(clients: Clients, broker: Broker) -> None:
    """What the broker has read by now is in this message's commit, or in an earlier one.

    A client's own acknowledgements are answered by nothing, so a kill could come before theirs.
    """
    clients.join(broker, "barrier").publish("elsewhere", b"", 1)


def test_a_broker_that_delivers_what_it_stored_has_not_loaded_pandas(
    own_broker: Broker, clients: Clients
) -> None:
    """Arrow loads it, where it is installed, to make an array of a list: a third of a start."""
    assert find_spec("pandas")
    subscriber = come(clients, own_broker, "s")
    subscriber.subscribe("a")
    subscriber.disconnect()
    clients.join(own_broker, "p").publish("a", b"1", 1)
    own_broker.restart()
    assert come(clients, own_broker, "s", present=True).take().payload == b"1"
    assert "/pandas/" not in Path(f"/proc/{own_broker.process.pid}/maps").read_text()


@pytest.mark.parametrize("version", [V5, OLDER])
def test_sessions_subscriptions_and_queues(
    own_broker: Broker, clients: Clients, version: int
) -> None:
    """[MQTT-3.1.2-23], [MQTT-4.5.0-1], [MQTT3-3.1.2-5]."""
    subscriber = come(clients, own_broker, "s", version)
    subscriber.subscribe("a/#", "b/+", "c")
    subscriber.send(Unsubscribe(9, ["c"]))
    subscriber.receive()
    subscriber.disconnect()
    publisher = clients.join(own_broker, "p", version)
    expected = []
    for number in range(600):
        topic = ("a/x", "b/y", "c")[number % 3]
        qos = 1 + number % 2
        publisher.publish(topic, b"%d" % number, qos)
        if topic != "c":
            expected.append((topic, b"%d" % number, qos))
    own_broker.restart()
    again = come(clients, own_broker, "s", version, present=True)
    received = [again.take() for _ in expected]
    assert [(message.topic, message.payload, message.qos) for message in received] == expected
    clients.join(own_broker, "p2", version).publish("b/z", b"after", 2)
    assert again.take().payload == b"after"
    assert again.settle() == []
    let_commit(clients, own_broker)
    own_broker.restart()  # and what was delivered is not delivered again
    assert come(clients, own_broker, "s", version, present=True).settle() == []


def test_subscription_options(own_broker: Broker, clients: Clients) -> None:
    subscriber = come(clients, own_broker, "s")
    subscriber.subscribe(Subscription("a", 1, no_local=True), identifier=7)
    subscriber.subscribe(Subscription("b", 2, retain_as_published=True), identifier=300)
    own_broker.restart()
    again = come(clients, own_broker, "s", present=True)
    again.publish("a", b"own")
    publisher = clients.join(own_broker, "p")
    publisher.publish("a", b"a", 2)
    publisher.publish("b", b"b", 2, retain=True)
    first, second = again.take(), again.take()
    assert (first.payload, first.qos, first.properties) == (
        b"a",
        1,
        Properties(subscription_identifiers=[7]),
    )
    assert (second.payload, second.qos, second.retain, second.properties) == (
        b"b",
        2,
        True,
        Properties(subscription_identifiers=[300]),
    )


@pytest.mark.parametrize("version", [V5, OLDER])
def test_the_in_flight_window(own_broker: Broker, clients: Clients, version: int) -> None:
    """[MQTT-4.4.0-1]: PUBLISH with DUP and PUBREL, with their identifiers and in their order.

    [MQTT3-4.4.0-1].
    """
    subscriber = come(clients, own_broker, "s", version)
    subscriber.subscribe("t")
    publisher = clients.join(own_broker, "p", version)
    for number in range(6):
        publisher.publish("t", b"%d" % number, 1 + number % 2)
    sent = [subscriber.expect(Publish) for _ in range(6)]
    identifiers = [message.packet_id for message in sent]
    subscriber.send(Puback(identifiers[2]), Pubrec(identifiers[3]))
    assert subscriber.expect(Pubrel) == Pubrel(identifiers[3])
    subscriber.settle()
    for _ in range(2):
        own_broker.restart()
        again = come(clients, own_broker, "s", version, present=True)
        assert [again.receive() for _ in range(5)] == [
            Publish("t", b"0", 1, dup=True, packet_id=identifiers[0]),
            Publish("t", b"1", 2, dup=True, packet_id=identifiers[1]),
            Pubrel(identifiers[3]),
            Publish("t", b"4", 1, dup=True, packet_id=identifiers[4]),
            Publish("t", b"5", 2, dup=True, packet_id=identifiers[5]),
        ]
    clients.join(own_broker, "p2", version).publish("t", b"new", 1)
    new = again.expect(Publish)
    assert new.payload == b"new"
    assert not new.dup
    assert new.packet_id not in (identifiers[i] for i in (0, 1, 3, 4, 5))
    again.send(Puback(identifiers[0]), Pubrec(identifiers[1]), Pubcomp(identifiers[3]))
    assert again.expect(Pubrel) == Pubrel(identifiers[1])
    again.send(Pubcomp(identifiers[1]), Puback(identifiers[4]), Pubrec(identifiers[5]))
    assert again.expect(Pubrel) == Pubrel(identifiers[5])
    again.send(Pubcomp(identifiers[5]), Puback(new.packet_id))
    again.settle()
    let_commit(clients, own_broker)
    own_broker.restart()
    assert come(clients, own_broker, "s", version, present=True).settle() == []


@pytest.mark.parametrize("version", [V5, OLDER])
def test_received_qos2_identifiers(own_broker: Broker, clients: Clients, version: int) -> None:
    """A PUBLISH sent again after the crash is not delivered twice [MQTT-4.3.3-10].

    [MQTT3-4.3.3-2].
    """
    come(clients, own_broker, "s", version).subscribe("t")
    publisher = come(clients, own_broker, "p", version)
    for packet_id in (1, 2, 3):
        publisher.send(Publish("t", b"%d" % packet_id, 2, packet_id=packet_id))
        assert publisher.expect(Pubrec).packet_id == packet_id
    publisher.send(Pubrel(1))
    publisher.expect(Pubcomp)
    own_broker.restart()
    again = come(clients, own_broker, "p", version, present=True)
    again.send(Publish("t", b"2", 2, dup=True, packet_id=2))
    assert again.expect(Pubrec) == Pubrec(2)
    again.send(Pubrel(2), Pubrel(3))
    assert [again.receive(), again.receive()] == [Pubcomp(2), Pubcomp(3)]
    again.send(Publish("t", b"new 1", 2, packet_id=1))  # released before the crash: free
    assert again.expect(Pubrec) == Pubrec(1)
    subscriber = come(clients, own_broker, "s", version, present=True)
    assert subscriber.take_payloads(4) == [b"1", b"2", b"3", b"new 1"]
    assert subscriber.settle() == []


def test_a_message_that_an_mqtt_31_client_has_not_released_waits_for_its_pubrel(
    own_broker: Broker, clients: Clients
) -> None:
    """It comes out of the log when its PUBREL does, once, in order [V31-3.3-QOS2-HELD]."""
    come(clients, own_broker, "s", V5).subscribe("t")
    publisher = come(clients, own_broker, "p", V31)
    for packet_id in (1, 2, 3):
        publisher.send(Publish("t", b"%d" % packet_id, 2, packet_id=packet_id))
        assert publisher.expect(Pubrec).packet_id == packet_id
    publisher.send(Pubrel(1))
    publisher.expect(Pubcomp)
    own_broker.restart()
    subscriber = come(clients, own_broker, "s", V5, present=True)
    assert subscriber.take_payloads(1) == [b"1"]
    again = come(clients, own_broker, "p", V31)
    again.send(Publish("t", b"2", 2, dup=True, packet_id=2))
    assert again.expect(Pubrec) == Pubrec(2)
    assert subscriber.settle() == []
    again.send(Pubrel(2), Pubrel(3), Publish("t", b"4", 1, packet_id=4))
    assert subscriber.take_payloads(3) == [b"2", b"3", b"4"]
    assert subscriber.settle() == []
    let_commit(clients, own_broker)
    own_broker.restart()
    again = come(clients, own_broker, "p", V31)
    again.send(Pubrel(2), Pubrel(3))
    assert [again.receive(), again.receive()] == [Pubcomp(2), Pubcomp(3)]
    assert come(clients, own_broker, "s", V5, present=True).settle() == []


def test_a_publish_that_was_not_acknowledged_is_taken_when_sent_again(
    own_broker: Broker, clients: Clients
) -> None:
    come(clients, own_broker, "s").subscribe("t")
    publisher = come(clients, own_broker, "p")
    own_broker.kill()
    publisher.drop()
    own_broker.start()
    again = come(clients, own_broker, "p", present=True)
    again.send(Publish("t", b"x", 2, dup=True, packet_id=5), Pubrel(5))
    assert again.expect(Pubrec) == Pubrec(5)
    assert again.expect(Pubcomp) == Pubcomp(5)
    assert come(clients, own_broker, "s", present=True).take_payloads(1) == [b"x"]


def test_retained_messages(own_broker: Broker, clients: Clients) -> None:
    publisher = clients.join(own_broker, "p")
    properties = Properties(content_type="text/plain", user_properties=[("a", "b")])
    publisher.publish("r/kept", b"kept", 2, retain=True, properties=properties)
    publisher.publish("r/changed", b"old", retain=True)
    publisher.publish("r/changed", b"new", retain=True)
    publisher.publish("r/removed", b"removed", retain=True)
    publisher.publish("r/removed", b"", retain=True)
    publisher.publish("r/qos0", b"qos0", 0, retain=True)
    expiring = Properties(message_expiry_interval=1)
    publisher.publish("r/expired", b"expired", retain=True, properties=expiring)
    own_broker.kill()
    let_pass(1.1)
    own_broker.start()
    subscriber = clients.join(own_broker, "s")
    subscriber.subscribe("r/#")
    received = {message.topic: message for message in (subscriber.take() for _ in range(3))}
    assert {topic: message.payload for topic, message in received.items()} == {
        "r/kept": b"kept",
        "r/changed": b"new",
        "r/qos0": b"qos0",
    }
    assert received["r/kept"].qos == 2
    assert received["r/kept"].properties == properties
    assert subscriber.settle() == []


def test_wills_of_clients_lost_with_the_broker(own_broker: Broker, clients: Clients) -> None:
    """v5 §3.1.2.5: the server may publish them after its restart; it does, once."""
    come(clients, own_broker, "s").subscribe("w/#")
    clients.join(own_broker, "lost", will=Will("w/lost", b"gone", 1, retain=True))
    clients.join(own_broker, "left", will=Will("w/left", b"gone", 1)).disconnect()
    delay = Properties(will_delay_interval=1)
    delayed = Will("w/delayed", b"gone", 1, properties=delay)
    clients.join(own_broker, "delayed", will=delayed, expiry_s=LONG_S).drop()
    back = Will("w/back", b"gone", 1, properties=Properties(will_delay_interval=LONG_S))
    clients.join(own_broker, "back", will=back, expiry_s=LONG_S)
    own_broker.restart()
    clients.join(own_broker, "back", clean_start=False, expiry_s=LONG_S, present=True)
    subscriber = come(clients, own_broker, "s", present=True)
    assert [subscriber.take().topic for _ in range(2)] == ["w/lost", "w/delayed"]
    subscriber.settle()
    let_commit(clients, own_broker)
    own_broker.restart()
    assert come(clients, own_broker, "s", present=True).settle() == []
    late = clients.join(own_broker, "l")
    late.subscribe("w/#")
    assert late.take().topic == "w/lost"


def test_session_expiry_goes_on(own_broker: Broker, clients: Clients) -> None:
    clients.join(own_broker, "short", expiry_s=1).disconnect()
    clients.join(own_broker, "long", expiry_s=LONG_S).disconnect()
    clients.join(own_broker, "clean", expiry_s=0)
    clients.join(own_broker, "connected", expiry_s=LONG_S)
    own_broker.kill()
    let_pass(1.1)
    own_broker.start()
    present = {
        client_id: clients.open(own_broker).connect(client_id, False).session_present
        for client_id in ("short", "long", "clean", "connected")
    }
    assert present == {"short": False, "long": True, "clean": False, "connected": True}


def test_message_expiry_goes_on(own_broker: Broker, clients: Clients) -> None:
    come(clients, own_broker, "s").subscribe("t")
    publisher = clients.join(own_broker, "p")
    clients.join(own_broker, "s", clean_start=False, expiry_s=LONG_S, present=True).disconnect()
    for payload, interval_s in ((b"short", 1), (b"long", 100)):
        expiry = Properties(message_expiry_interval=interval_s)
        publisher.publish("t", payload, properties=expiry)
    own_broker.kill()
    let_pass(1.1)
    own_broker.start()
    message = come(clients, own_broker, "s", present=True).take()
    assert message.payload == b"long"
    assert message.properties is not None
    left_s = message.properties.message_expiry_interval
    assert left_s is not None
    assert 80 < left_s < 100


def test_a_clean_stop_keeps_the_same(own_broker: Broker, clients: Clients) -> None:
    subscriber = come(clients, own_broker, "s")
    subscriber.subscribe("t")
    clients.join(own_broker, "p").publish("t", b"x", 2)
    packet_id = subscriber.expect(Publish).packet_id
    assert own_broker.stop() == 0
    own_broker.start()
    again = come(clients, own_broker, "s", present=True)
    assert again.expect(Publish) == Publish("t", b"x", 2, dup=True, packet_id=packet_id)


def test_memory_persistence_forgets_and_writes_nothing(tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, persistence="memory") as broker:
        subscriber = come(clients, broker, "s")
        subscriber.subscribe("t")
        subscriber.disconnect()
        publisher = clients.join(broker, "p")
        publisher.publish("t", b"x", 2, retain=True)
        again = come(clients, broker, "s", present=True)
        assert again.take_payloads(1) == [b"x"]
        broker.restart()
        fresh = come(clients, broker, "s", present=False)
        fresh.subscribe("t")
        assert fresh.settle() == []
        assert not broker.data_dir.exists()
