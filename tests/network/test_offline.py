"""A session whose client is away: what waits for it, what expires, and when it ends itself."""

from collections.abc import Iterator

import pytest

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Disconnect, Publish, Pubrel
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.raw_client import RawClient


def come(clients: Clients, broker: Broker, name: str, version: int, present: bool) -> RawClient:
    """Connect with a session that stays."""
    expiry_s = 3600 if version == V5 else None
    return clients.join(
        broker, name, version, clean_start=False, expiry_s=expiry_s, present=present
    )


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"limits.mqueue_store_qos0": "false"}
    with running_broker(tmp_path_factory.mktemp("forgetful"), settings) as broker:
        yield broker


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("leave", ["disconnect", "drop"])
def test_messages_wait_in_order(
    shared_broker: Broker, clients: Clients, name: str, version: int, leave: str
) -> None:
    """[MQTT-4.5.0-1]; with QoS 0 too, unless configured otherwise. In order of each QoS.

    [MQTT-3.1.2-23], [MQTT3-3.1.2-5], [MQTT3-4.5.0-1], [MQTT3-3.1.2-4], [V31-3.14-KEPT].
    """
    topic = f"{name}/t"
    client = come(clients, shared_broker, name, version, present=False)
    client.subscribe(topic)
    client.settle()
    if leave == "drop":
        client.drop()
    else:
        client.disconnect()
    publisher = clients.join(shared_broker, f"{name}p", version)
    for number in range(300):
        publisher.send(
            Publish(topic, b"%d" % number, number % 3, packet_id=number + 1 if number % 3 else 0)
        )
        if number % 3 == 2:  # of MQTT 3.1 nobody gets it before (v3.1 §3.6)
            publisher.send(Pubrel(number + 1))
    publisher.settle()
    again = come(clients, shared_broker, name, version, present=True)
    received = [again.take() for _ in range(300)]
    for qos in (0, 1, 2):
        of_one = [int(message.payload) for message in received if message.qos == qos]
        assert of_one == list(range(qos, 300, 3))
    assert not any(message.dup for message in received)


def test_qos0_is_not_kept_where_configured_so(
    forgetful: Broker, clients: Clients, name: str
) -> None:
    client = come(clients, forgetful, name, V5, present=False)
    client.subscribe(f"{name}/t")
    client.disconnect()
    publisher = clients.join(forgetful, f"{name}p")
    for qos in (0, 1, 0, 2):
        publisher.publish(f"{name}/t", b"%d" % qos, qos)
    publisher.settle()
    again = come(clients, forgetful, name, V5, present=True)
    assert again.take_payloads(2) == [b"1", b"2"]
    assert again.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_session_keeps_nothing(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT3-3.1.2-6]."""
    client = clients.join(shared_broker, name, version)
    client.subscribe(f"{name}/t")
    client.disconnect()
    clients.join(shared_broker, f"{name}p").publish(f"{name}/t", b"lost", 2)
    again = clients.join(shared_broker, name, version, clean_start=False)
    assert again.settle() == []


def test_message_expiry(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.3.2-5] gone when it has passed, [MQTT-3.3.2-6] else what is left of it."""
    topic = f"{name}/t"
    client = come(clients, shared_broker, name, V5, present=False)
    client.subscribe(topic)
    client.disconnect()
    publisher = clients.join(shared_broker, f"{name}p")
    for payload, interval_s in ((b"short", 1), (b"long", 100), (b"none", None)):
        for qos in (0, 1, 2):
            expiry = Properties(message_expiry_interval=interval_s)
            publisher.publish(topic, payload, qos, properties=expiry)
    publisher.settle()
    let_pass(1.2)
    again = come(clients, shared_broker, name, V5, present=True)
    received = [again.take() for _ in range(6)]
    assert [message.payload for message in received] == [b"long"] * 3 + [b"none"] * 3
    for message in received[:3]:
        assert message.properties is not None
        left_s = message.properties.message_expiry_interval
        assert left_s is not None
        assert 85 < left_s < 100
    assert [message.properties for message in received[3:]] == [None] * 3
    assert again.settle() == []


def test_session_expiry(shared_broker: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.1.2-23]; DISCONNECT may change it, but not from 0 (v5 §3.14.2.2.2).

    [MQTT-4.1.0-2].
    """

    def leave(suffix: str, connect_s: int, disconnect_s: int | None) -> None:
        client = clients.join(shared_broker, f"{name}{suffix}", expiry_s=connect_s)
        client.subscribe(f"{name}/{suffix}")
        properties = None
        if disconnect_s is not None:
            properties = Properties(session_expiry_interval=disconnect_s)
        client.disconnect(0, properties)

    def is_there(suffix: str) -> bool:
        answer = clients.open(shared_broker).connect(f"{name}{suffix}", clean_start=False)
        assert answer.reason_code == 0
        return answer.session_present

    leave("a", 1, None)
    leave("b", 3600, None)
    leave("c", 3600, 1)
    leave("d", 3600, 0)
    leave("e", 1, 3600)
    leave("f", 0xFFFFFFFF, None)
    leave("g", 0, None)
    assert not is_there("d")
    assert not is_there("g")
    let_pass(1.5)
    assert [suffix for suffix in "abcef" if is_there(suffix)] == ["b", "e", "f"]


def test_session_expiry_cannot_be_raised_from_zero_at_the_end(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    client = clients.join(shared_broker, name)
    client.send(Disconnect(0, Properties(session_expiry_interval=10)))
    client.expect_disconnect(0x82)


def test_a_session_taken_up_again_does_not_expire(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.1.0-1]."""
    client = clients.join(shared_broker, name, expiry_s=1)
    client.subscribe(f"{name}/t")
    client.drop()
    again = clients.join(shared_broker, name, clean_start=False, expiry_s=1, present=True)
    let_pass(1.5)
    clients.join(shared_broker, f"{name}p").publish(f"{name}/t", b"x")
    assert again.take().payload == b"x"
