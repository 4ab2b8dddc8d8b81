"""Flow control: receive maximum both ways, the window, the queue behind it, and slow readers."""

from collections.abc import Iterator

import pytest

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.raw_client import RawClient

WINDOW = 4
QUEUE = 6
RECEIVE_MAXIMUM = 3


@pytest.fixture(
    scope="module",
    params=[("file", True), ("file", False), ("memory", False)],
    ids=["file with streams", "file", "memory"],
)
def tight(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Broker]:
    """A broker with a small window, queue, receive maximum and buffers."""
    settings = {
        "limits.max_inflight": WINDOW,
        "limits.max_mqueue_len": QUEUE,
        "limits.receive_maximum": RECEIVE_MAXIMUM,
        "listener.write_buffer_bytes_max": 4096,
        "durability.commit_bytes_max": 65_536,
    }
    persistence, stream = request.param
    directory = tmp_path_factory.mktemp("tight")
    with running_broker(directory, settings, persistence, stream) as broker:
        yield broker


def join_kept(
    clients: Clients,
    broker: Broker,
    client_id: str,
    version: int = V5,
    present: bool = False,
    properties: Properties | None = None,
) -> RawClient:
    expiry_s = 3600 if version == V5 else None
    return clients.join(
        broker,
        client_id,
        version,
        clean_start=False,
        expiry_s=expiry_s,
        present=present,
        properties=properties,
    )


def payloads(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


# -- the window ------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_the_window_bounds_what_is_in_flight(
    tight: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """What does not fit waits in the queue, and leaves it in order as places become free."""
    topic = f"{name}/t"
    client = clients.join(tight, name, version)
    client.subscribe(topic)
    publisher = clients.join(tight, f"{name}p", version)
    for number in range(WINDOW + QUEUE):
        publisher.publish(topic, b"%d" % number, qos)
    sent = client.settle()
    assert payloads(sent) == [b"%d" % number for number in range(WINDOW)]
    identifiers = [packet.packet_id for packet in sent if isinstance(packet, Publish)]
    assert len(set(identifiers)) == WINDOW
    for number in range(WINDOW, WINDOW + QUEUE):
        packet_id = identifiers.pop(0)
        if qos == 1:
            client.send(Puback(packet_id))
        else:
            client.send(Pubrec(packet_id))
            assert client.expect(Pubrel) == Pubrel(packet_id)
            assert client.settle() == []  # PUBREC frees no place
            client.send(Pubcomp(packet_id))
        message = client.expect(Publish)
        assert message.payload == b"%d" % number
        identifiers.append(message.packet_id)


def test_the_clients_receive_maximum_makes_the_window_smaller(
    tight: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.3.4-9]; QoS 0 is not counted (v5 §4.9)."""
    topic = f"{name}/t"
    client = clients.join(tight, name, properties=Properties(receive_maximum=2))
    client.subscribe(topic)
    publisher = clients.join(tight, f"{name}p")
    for number in range(5):
        publisher.publish(topic, b"%d" % number)
    publisher.publish(topic, b"QoS 0", 0)
    publisher.settle()
    first = client.settle()
    assert payloads(first) == [b"0", b"1", b"QoS 0"]
    assert isinstance(first[0], Publish)
    client.send(Puback(first[0].packet_id))
    assert client.take().payload == b"2"


def test_the_window_is_that_of_the_new_connection(
    tight: Broker, clients: Clients, name: str
) -> None:
    """v5 §4.9: the receive maximum is set anew; what is in flight is sent again within it."""
    topic = f"{name}/t"
    client = join_kept(clients, tight, name)
    client.subscribe(topic)
    publisher = clients.join(tight, f"{name}p")
    for number in range(WINDOW):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    client.settle()
    client.drop()
    smaller = Properties(receive_maximum=1)
    again = join_kept(clients, tight, name, present=True, properties=smaller)
    for number in range(WINDOW):
        message = again.expect(Publish)
        assert message.payload == b"%d" % number
        assert message.dup
        assert again.settle() == []
        if message.qos == 1:
            again.send(Puback(message.packet_id))
        else:
            again.send(Pubrec(message.packet_id))
            assert again.expect(Pubrel) == Pubrel(message.packet_id)
            again.send(Pubcomp(message.packet_id))
    assert again.settle() == []


# -- the queue -------------------------------------------------------------------------


@pytest.mark.parametrize("online", [True, False])
def test_a_full_queue_drops_qos0_first_then_the_oldest(
    tight: Broker, clients: Clients, name: str, online: bool
) -> None:
    topic = f"{name}/t"
    client = join_kept(clients, tight, name)
    client.subscribe(topic)
    publisher = clients.join(tight, f"{name}p")
    if online:
        for _ in range(WINDOW):
            publisher.publish(topic, b"fills the window", 1)
        held = [client.expect(Publish).packet_id for _ in range(WINDOW)]
    else:
        client.disconnect()
    for payload, qos in ((b"a", 1), (b"b", 0), (b"c", 2), (b"d", 0), (b"e", 1), (b"f", 1)):
        publisher.publish(topic, payload, 2 if online and qos == 0 else qos)
    publisher.settle()
    expected = [b"a", b"b", b"c", b"d", b"e", b"f"]
    for payload, gone in ((b"g", b"b"), (b"h", b"d"), (b"i", b"a"), (b"j", b"c")):
        publisher.publish(topic, payload, 1)
        expected = [*expected[1:], payload] if online else _without(expected, gone, payload)
    if online:
        client.send(*(Puback(packet_id) for packet_id in held))
    else:
        client = join_kept(clients, tight, name, present=True)
    assert client.take_payloads(QUEUE) == expected
    assert client.settle() == []


def _without(waiting: list[bytes], gone: bytes, added: bytes) -> list[bytes]:
    return [*(payload for payload in waiting if payload != gone), added]


def test_qos0_messages_of_one_topic_stay_in_order(
    tight: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-4.6.0-6]: a new QoS 0 message does not overtake those that wait.

    They wait for the commit that moves the queue, and for the log, but not for the window that is
    full of QoS 1 messages which came before them.
    """
    topic = f"{name}/t"
    client = join_kept(clients, tight, name)
    client.subscribe(topic)
    client.disconnect()
    publisher = clients.join(tight, f"{name}p")
    for number in range(WINDOW + 1):
        publisher.publish(topic, b"QoS 1 %d" % number, 1)
    publisher.publish(topic, b"first", 0)
    publisher.settle()
    again = join_kept(clients, tight, name, present=True)
    identifiers = [again.expect(Publish).packet_id for _ in range(WINDOW)]
    publisher.publish(topic, b"second", 0)
    publisher.settle()
    publisher.publish(topic, b"third", 0)
    assert again.take_payloads(3) == [b"first", b"second", b"third"]
    again.send(*(Puback(packet_id) for packet_id in identifiers))
    assert again.take().payload == b"QoS 1 %d" % WINDOW


# -- from the client -------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_receive_maximum_is_an_error(
    tight: Broker, clients: Clients, name: str, qos: int
) -> None:
    """[MQTT-3.3.4-7]: DISCONNECT 0x93. QoS 2 counts until PUBCOMP."""
    client = clients.join(tight, name)
    messages = [
        Publish(f"{name}/t", b"x", qos, packet_id=packet_id)
        for packet_id in range(1, RECEIVE_MAXIMUM + 2)
    ]
    client.send(*messages[:-1])
    for _ in messages[:-1]:
        client.expect(Pubrec if qos == 2 else Puback)
    client.send(messages[-1])
    if qos == 2:
        client.expect_disconnect(0x93)
    else:  # the others are acknowledged, so there is room again
        client.expect(Puback)


def test_sending_again_after_a_reconnect_does_not_exceed_the_receive_maximum(
    tight: Broker, clients: Clients, name: str
) -> None:
    """v5 §4.9: the quota of the client starts anew with each connection."""
    client = join_kept(clients, tight, name)
    identifiers = range(1, RECEIVE_MAXIMUM + 1)
    client.send(*(Publish(f"{name}/t", b"x", 2, packet_id=i) for i in identifiers))
    assert [client.expect(Pubrec).packet_id for _ in identifiers] == [*identifiers]
    client.drop()
    again = join_kept(clients, tight, name, present=True)
    again.publish(f"{name}/t", b"y", 1)
    again.send(*(Publish(f"{name}/t", b"x", 2, dup=True, packet_id=i) for i in identifiers))
    assert [again.expect(Pubrec) for _ in identifiers] == [Pubrec(i) for i in identifiers]
    again.send(*(Pubrel(i) for i in identifiers))
    assert [again.expect(Pubcomp) for _ in identifiers] == [Pubcomp(i) for i in identifiers]


def test_a_repeated_publish_is_not_counted_twice(
    tight: Broker, clients: Clients, name: str
) -> None:
    client = clients.join(tight, name)
    for _ in range(RECEIVE_MAXIMUM + 1):
        client.send(Publish(f"{name}/t", b"x", 2, packet_id=1))
        assert client.expect(Pubrec).packet_id == 1


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [1, 2])
def test_older_clients_are_slowed_down_instead(
    tight: Broker, clients: Clients, name: str, version: int, qos: int
) -> None:
    """They know no receive maximum: all they send is taken, as fast as it is committed."""
    client = clients.join(tight, name, version)
    count = 50 * RECEIVE_MAXIMUM
    client.send(
        *(Publish(f"{name}/t", b"x", qos, packet_id=i) for i in range(1, count + 1)),
    )
    answer = Puback if qos == 1 else Pubrec
    for packet_id in range(1, count + 1):
        assert client.expect(answer).packet_id == packet_id


def test_large_messages_wait_for_the_commits(tight: Broker, clients: Clients, name: str) -> None:
    """Reading pauses while more than ``commit_bytes_max`` waits; nothing is lost by it."""
    client = clients.join(tight, name, 4)
    count = 100
    body = bytes(50_000)
    client.send(*(Publish(f"{name}/t", body, 1, packet_id=i) for i in range(1, count + 1)))
    for packet_id in range(1, count + 1):
        assert client.expect(Puback).packet_id == packet_id


# -- slow readers ----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_a_slow_reader_disturbs_nobody(
    tight: Broker, clients: Clients, name: str, qos: int
) -> None:
    """QoS 0 for it is dropped, QoS 1 waits in its bounded queue; others get everything."""
    topic = f"{name}/t"
    slow = join_kept(clients, tight, f"{name}slow")
    slow.subscribe(topic, f"{name}/last")
    quick = clients.join(tight, f"{name}quick")
    quick.subscribe(topic)
    publisher = clients.join(tight, f"{name}p")
    body = bytes(500_000)
    count = 60  # 30 MB: more than the socket buffers of both sides take
    for number in range(count):
        publisher.publish(topic, b"%6d" % number + body, qos)
        assert quick.take().payload[:6] == b"%6d" % number
    publisher.publish(f"{name}/last", b"%6d" % count, 1)
    received = [slow.take().payload[:6]]
    while received[-1] != b"%6d" % count:
        received.append(slow.take().payload[:6])
    assert len(received) < count
    assert received == sorted(received)
