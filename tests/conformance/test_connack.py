"""CONNACK: what it says of the session, what it promises, and that it is first and alone."""

from collections.abc import Iterator

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.raw_client import RawClient

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with room for two sessions, that takes no topic aliases."""
    settings = {
        "limits.sessions_max": 2,
        "memory.share_max": 1,  # all of it for one address
        "limits.topic_alias_maximum": 0,
    }
    with running_broker(tmp_path_factory.mktemp("full"), settings, "memory") as broker:
        yield broker


def come(
    clients: Clients, broker: Broker, name: str, version: int, clean_start: bool = False
) -> tuple[RawClient, Connack]:
    client = clients.open(broker, version)
    expiry_s = 3600 if version == V5 and not clean_start else None
    return client, client.connect(name, clean_start, expiry_s=expiry_s)


@pytest.mark.parametrize("version", VERSIONS)
def test_connack_is_the_first_packet_and_comes_once(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.4-5], [MQTT-3.2.0-1], [MQTT-3.2.0-2]; [MQTT3-3.1.4-4], [MQTT3-3.2.0-1].

    [V31-3.1-CONNACK]. What waited in the session comes behind it.
    """
    client, _ = come(clients, shared_broker, name, version)
    client.subscribe(f"{name}/t")
    client.disconnect()
    publisher = clients.join(shared_broker, f"{name}p", version)
    publisher.publish(f"{name}/t", b"waits", 1)
    again, answer = come(clients, shared_broker, name, version)
    assert answer.reason_code == 0
    assert [packet for packet in again.settle() if not isinstance(packet, Publish)] == []


@pytest.mark.parametrize("version", [V311, V5])
def test_session_present_says_whether_there_was_a_session(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.2.2-2], [MQTT-3.2.2-3]; [MQTT3-3.2.2-1], [MQTT3-3.2.2-2], [MQTT3-3.2.2-3].

    And what it says is so: [MQTT-3.1.2-4] to [MQTT-3.1.2-6], [MQTT-3.1.4-4]; [MQTT3-3.1.2-4],
    [MQTT3-3.1.2-6], [MQTT3-3.1.4-3].
    """
    publisher = clients.join(shared_broker, f"{name}p", version)

    def visit(clean_start: bool) -> tuple[bool, bool]:
        """(session present, whether an earlier subscription still brings messages)."""
        client, answer = come(clients, shared_broker, name, version, clean_start)
        assert answer.reason_code == 0
        publisher.publish(f"{name}/t", b"x", 1)
        subscribed = any(isinstance(packet, Publish) for packet in client.settle())
        client.subscribe(f"{name}/t")
        client.disconnect()
        return answer.session_present, subscribed

    assert visit(clean_start=False) == (False, False)
    assert visit(clean_start=False) == (True, True)
    assert visit(clean_start=True) == (False, False)
    assert visit(clean_start=False) == (False, False)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_refusal_tells_of_no_session_and_closes(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.2.2-6], [MQTT-3.2.2-7], [MQTT-4.13.2-1]; [MQTT3-3.2.2-4], [MQTT3-3.2.2-5].

    [MQTT-3.1.4-2]. The client has a session, which the refusal leaves alone.
    """
    client, _ = come(clients, shared_broker, name, version)
    client.disconnect()
    refused = clients.open(shared_broker, version)
    forbidden = Will("$SYS/broker/uptime", b"")
    expiry_s = 3600 if version == V5 else None
    answer = refused.connect(name, False, will=forbidden, expiry_s=expiry_s)
    assert answer.reason_code == 0x87
    assert not answer.session_present
    refused.expect_end()
    assert come(clients, shared_broker, name, version)[1].session_present


@pytest.mark.parametrize("version", [V311, V5])
def test_a_packet_behind_a_refused_connect_is_not_heard(
    shared_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    """[MQTT-3.1.4-6], [MQTT3-3.1.4-5]."""
    client = clients.open(shared_broker, version)
    client.send(
        Connect(name, version, will=Will("$SYS/x", b"")),
        Publish(f"{name}/t", b"never", 0, retain=True),
    )
    assert client.expect(Connack).reason_code == 0x87
    client.expect_end()
    watcher = clients.join(shared_broker, f"{name}w", version)
    watcher.subscribe(f"{name}/t")
    assert watcher.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_client_identifiers_of_letters_and_digits(
    shared_broker: Broker, clients: Clients, version: int
) -> None:
    """[MQTT-3.1.3-5], [MQTT3-3.1.3-5], [V31-3.1-CLIENT-ID]."""
    for client_id in ("a", "9", "Z" * 23, LETTERS[:23], LETTERS[23:46], LETTERS[39:]):
        clients.join(shared_broker, client_id, version).disconnect()


def test_empty_client_identifiers_are_each_its_own(shared_broker: Broker, clients: Clients) -> None:
    """[MQTT3-3.1.3-6]: nobody takes over from another."""
    together = [clients.join(shared_broker, "", V311) for _ in range(3)]
    for client in together:
        client.send(Pingreq())
        client.expect(Pingresp)


def test_a_refused_client_identifier_is_told_and_the_connection_closed(
    shared_broker: Broker, clients: Clients
) -> None:
    """[MQTT3-3.1.3-8], [MQTT3-3.1.3-9], [V31-3.1-CLIENT-ID-REFUSED]: return code 2."""
    for version, client_id in ((V311, ""), (V31, ""), (V31, "x" * 24)):
        client = clients.open(shared_broker, version)
        assert client.connect(client_id, clean_start=False).reason_code == 0x85
        client.expect_end()


@pytest.mark.parametrize("asked", [None, 0, 1])
def test_no_response_information_unless_asked(
    shared_broker: Broker, clients: Clients, name: str, asked: int | None
) -> None:
    """[MQTT-3.1.2-28]."""
    wish = Properties(request_response_information=asked)
    properties = clients.open(shared_broker).connect(name, properties=wish).properties
    assert properties is not None
    assert asked == 1 or properties.response_information is None


def test_without_an_authentication_method_none_is_named(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.12.0-6]: neither AUTH nor a method comes from the server."""
    client = clients.open(shared_broker)
    properties = client.connect(name).properties
    assert properties is not None
    assert properties.authentication_method is None
    assert properties.authentication_data is None
    assert client.settle() == []


def test_an_authentication_method_the_server_has_not(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.12.0-1]."""
    client = clients.open(shared_broker)
    answer = client.connect(name, properties=Properties(authentication_method="unheard of"))
    assert answer.reason_code in (0x8C, 0x87)
    client.expect_end()


@pytest.mark.parametrize("size_bytes", [20, 40])
def test_connack_keeps_to_the_clients_maximum_packet_size(
    shared_broker: Broker, clients: Clients, name: str, size_bytes: int
) -> None:
    """[MQTT-3.2.2-20], [MQTT-3.1.2-24]: its user property is left out where it does not fit."""
    wish = Properties(maximum_packet_size=size_bytes)
    answer = clients.open(shared_broker).connect(name, properties=wish)
    assert answer.reason_code == 0
    assert len(encode(answer, V5)) <= size_bytes


def test_a_refusal_keeps_to_the_clients_maximum_packet_size(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.2.2-19]: there is no room for a reason string."""
    wish = Properties(maximum_packet_size=8, authentication_method="unheard of")
    answer = clients.open(shared_broker).connect(name, properties=wish)
    assert answer.reason_code == 0x8C
    assert len(encode(answer, V5)) <= 8


def test_a_refusal_without_a_fitting_return_code_is_silent(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """[MQTT3-3.2.2-6]: a will with a wildcard in its topic is none of the five."""
    client = clients.open(shared_broker, V311)
    client.send(Connect(name, V311, will=Will(f"{name}/+", b"")))
    client.expect_end()


def test_the_return_codes_of_older_versions(full: Broker, clients: Clients, name: str) -> None:
    """[V31-2.2-RETURN-CODES], [V31-3.2-FORM]: two bytes, and a code from 0 to 3.

    Having no room may pass; it ends the connection all the same [MQTT3-4.8.0-2].
    """
    clients.join(full, name, V311)
    clients.join(full, f"{name}2", V311)
    for version, client_id, code in ((V31, "other", 3), (V31, "x" * 24, 2), (V311, "other", 3)):
        client = clients.open(full, version)
        client.send(Connect(client_id, version))
        assert client.expect(Connack) == Connack({2: 0x85, 3: 0x88}[code])
        client.expect_end()


def test_a_server_that_announces_no_topic_aliases_takes_none(
    full: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.2.2-18]: no maximum, or 0, in CONNACK; an alias is answered with 0x94."""
    client = clients.open(full)
    properties = client.connect(name).properties
    assert properties is not None
    assert not properties.topic_alias_maximum
    client.send(Publish(f"{name}/t", b"", properties=Properties(topic_alias=1)))
    client.expect_disconnect(0x94)


def test_a_client_that_leaves_at_once_has_its_answer(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """v5 §3.1.4: CONNECT is acknowledged, also where DISCONNECT comes right behind it."""
    client = clients.open(shared_broker)
    client.send(Connect(name, V5), Disconnect())
    assert client.expect(Connack).reason_code == 0
    client.expect_end()
