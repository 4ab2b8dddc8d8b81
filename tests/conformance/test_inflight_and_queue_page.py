"""What a page about in-flight window and message queue says (seed 000), on the wire.

docs/flow_proofs.md has the sentences, in our words. The broker of these tests has a window of 2
and a queue of 3, so that both are soon full; defaults are looked at where the page names them.
"""

from collections.abc import Iterator

import pytest

from penstock.config.settings import Settings
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient

WINDOW = 2
QUEUE = 3
VERSIONS = [V31, V311, V5]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"limits.max_inflight": str(WINDOW), "limits.max_mqueue_len": str(QUEUE)}
    with running_broker(tmp_path_factory.mktemp("narrow"), settings, "memory") as broker:
        yield broker


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"limits.max_inflight": "0", "limits.max_mqueue_len": "0"}
    with running_broker(tmp_path_factory.mktemp("wide"), settings, "memory") as broker:
        yield broker


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"limits.mqueue_store_qos0": "false"}
    with running_broker(tmp_path_factory.mktemp("forgetful"), settings, "memory") as broker:
        yield broker


def subscribed(broker: Broker, clients: Clients, name: str, version: int = V311) -> RawClient:
    properties = Properties(session_expiry_interval=600) if version == V5 else None
    client = clients.open(broker, version)
    answer = client.connect(name, False, 0, None, None, properties)
    assert answer.reason_code == 0
    if not answer.session_present:
        client.subscribe(f"{name}/t")
    return client


def publish(broker: Broker, clients: Clients, name: str, *bodies: bytes, qos: int = 1) -> None:
    publisher = clients.join(broker, f"{name}p", V311)
    for body in bodies:
        publisher.publish(f"{name}/t", body, qos)
    publisher.settle()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_several_unacknowledged_messages_exist_on_the_link(
    narrow: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """As many as the window takes; what comes after them waits in the queue."""
    client = subscribed(narrow, clients, name, version)
    publish(narrow, clients, name, b"1", b"2", b"3", qos=qos)
    assert [client.expect(Publish).payload for _ in range(WINDOW)] == [b"1", b"2"]
    assert client.settle() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_each_acknowledgement_lets_one_more_out_first_in_first_out(
    narrow: Broker, clients: Clients, name: str, version: int
) -> None:
    """Whichever is acknowledged, the oldest that waits takes its place in the window."""
    client = subscribed(narrow, clients, name, version)
    publish(narrow, clients, name, b"1", b"2", b"3", b"4", b"5")
    first, second = client.expect(Publish), client.expect(Publish)
    client.send(Puback(second.packet_id))
    assert client.expect(Publish).payload == b"3"
    client.send(Puback(first.packet_id))
    assert client.expect(Publish).payload == b"4"
    assert client.settle() == [], "5 waits: 3 and 4 are in the window now"


def test_qos_2_leaves_the_window_when_its_acknowledgement_is_complete(
    narrow: Broker, clients: Clients, name: str
) -> None:
    """Complete is PUBCOMP, not PUBREC."""
    client = subscribed(narrow, clients, name)
    publish(narrow, clients, name, b"1", b"2", b"3", qos=2)
    first, _ = client.expect(Publish), client.expect(Publish)
    client.send(Pubrec(first.packet_id))
    assert client.expect(Pubrel) == Pubrel(first.packet_id)
    assert client.settle() == []
    client.send(Pubcomp(first.packet_id))
    assert client.expect(Publish).payload == b"3"


def test_qos_0_is_always_forwarded_immediately(narrow: Broker, clients: Clients, name: str) -> None:
    """A full window and what waits for it do not hold up QoS 0."""
    client = subscribed(narrow, clients, name)
    publish(narrow, clients, name, b"1", b"2", b"3")
    publish(narrow, clients, name, b"zero", qos=0)
    assert [client.expect(Publish).payload for _ in range(3)] == [b"1", b"2", b"zero"]


@pytest.mark.parametrize("online", [True, False])
def test_a_full_queue_still_takes_new_messages_and_discards_the_oldest(
    narrow: Broker, clients: Clients, name: str, online: bool
) -> None:
    """By default, and whether the client is there or away."""
    client = subscribed(narrow, clients, name)
    if not online:
        client.drop()
    publish(narrow, clients, name, *[b"%d" % number for number in range(7)])
    if online:
        assert client.take_payloads(5) == [b"0", b"1", b"4", b"5", b"6"]
    else:
        client = subscribed(narrow, clients, name)
        assert client.take_payloads(3) == [b"4", b"5", b"6"]
    assert client.settle() == []


def test_the_queue_keeps_what_arrives_while_the_subscriber_is_offline(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """QoS 0 too, for mqueue_store_qos0 is true unless configured; sent when it is back."""
    subscribed(shared_broker, clients, name).drop()
    publish(shared_broker, clients, name, b"zero", qos=0)
    publish(shared_broker, clients, name, b"one")
    client = subscribed(shared_broker, clients, name)
    assert client.take_payloads(2) == [b"zero", b"one"]


def test_storing_qos_0_can_be_disabled(forgetful: Broker, clients: Clients, name: str) -> None:
    """mqueue_store_qos0 = false."""
    subscribed(forgetful, clients, name).drop()
    publish(forgetful, clients, name, b"zero", qos=0)
    publish(forgetful, clients, name, b"one")
    client = subscribed(forgetful, clients, name)
    assert client.take_payloads(1) == [b"one"]
    assert client.settle() == []


def test_window_and_queue_are_each_clients_own(narrow: Broker, clients: Clients, name: str) -> None:
    """One that is full takes nothing from another."""
    full = subscribed(narrow, clients, name)
    publish(narrow, clients, name, *[b"%d" % number for number in range(6)])
    other = clients.join(narrow, f"{name}o", V311)
    other.subscribe(f"{name}/t")
    publish(narrow, clients, name, b"x", b"y")
    assert [other.expect(Publish).payload for _ in range(2)] == [b"x", b"y"]
    assert [full.expect(Publish).payload for _ in range(2)] == [b"0", b"1"]
    assert full.settle() == []


@pytest.mark.parametrize(("receive_maximum", "window"), [(1, 1), (2, 2), (10, WINDOW)])
def test_receive_maximum_sets_the_window_of_an_mqtt_5_client(
    narrow: Broker, clients: Clients, name: str, receive_maximum: int, window: int
) -> None:
    """Never above max_inflight. Earlier versions, which the first test has too, take that."""
    properties = Properties(receive_maximum=receive_maximum)
    client = clients.join(narrow, name, V5, properties=properties)
    client.subscribe(f"{name}/t")
    publish(narrow, clients, name, b"0", b"1", b"2", b"3")
    assert [client.expect(Publish).payload for _ in range(window)] == [
        b"%d" % number for number in range(window)
    ]
    assert client.settle() == []


def test_0_means_no_limit(wide: Broker, clients: Clients, name: str) -> None:
    """Of the window, and of the queue."""
    bodies = [b"%d" % number for number in range(1500)]
    client = subscribed(wide, clients, name)
    publish(wide, clients, name, *bodies)
    assert [client.expect(Publish).payload for _ in bodies] == bodies, "none is acknowledged"
    client.drop()
    absent = subscribed(wide, clients, f"{name}a")
    absent.drop()
    publish(wide, clients, f"{name}a", *bodies)
    absent = subscribed(wide, clients, f"{name}a")
    assert absent.take_payloads(len(bodies)) == bodies


def test_the_defaults_are_those_of_the_table() -> None:
    """max_inflight 32, max_mqueue_len 1000, mqueue_store_qos0 true (external)."""
    limits = Settings().limits
    assert (limits.max_inflight, limits.max_mqueue_len, limits.mqueue_store_qos0) == (
        32,
        1000,
        True,
    )
