"""Clients that come back after a power cut, and what they must find.

Each goes on from what it knew at the cut (``promises.Client``): it sends again what was not
acknowledged, finishes its QoS 2 flows, publishes two messages more, and takes what it is sent.
When all is quiet, every message that was acknowledged, before or after the cut, must have reached
every session that was subscribed all the time, at QoS 2 once; and it must be in the stream that is
kept for ever, whether the log still has it or not, at QoS 2 once.

A ``Survivor`` is a client without a socket: bytes in, bytes out. ``run_within`` lets all of them
talk to the broker's engine on the store in this process, ``run_over_sockets`` to a real broker.
"""

import selectors
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Final, final

import pyarrow as pa

from penstock.config.stream import StreamDefinition
from penstock.engine.server.server import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import AWAIT_PUBCOMP
from penstock.engine.values.topics import is_shared, topic_matches, without_share_prefix
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from penstock.store.rocks import RocksStore
from penstock.store.secondary import LogFollower
from penstock.store.selection import TopicSelector
from tests.model.shell import Pipe, Shell
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S
from tests.support.promises import Client, Key

MORE: Final = 2  # messages each publisher publishes after the cut
ROUNDS_MAX: Final = 20_000
SILENCE_S: Final = 0.3
_LATER: Final = 1 << 60  # after everything in a recording
_READ_BYTES: Final = 65_536


@final
class Survivor:
    """One client after the cut.

    Args:
        client: what it knows; changed from here on.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.present = False
        self.got: dict[Key, int] = {}  # since the cut, also what the client knows already
        self.retained: dict[str, bytes] = {}
        self.greeted = False
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, client.version, server=False)

    def hello(self) -> bytes:
        """CONNECT, for the session it had."""
        properties = None
        if self.client.version == V5:
            properties = Properties(session_expiry_interval=self.client.expiry_s)
        packet = Connect(
            self.client.client_id,
            self.client.version,
            not self.client.expiry_s,
            0,
            None,
            properties=properties,
        )
        return encode(packet, self.client.version)

    def receive(self, data: bytes) -> bytes:
        """Bytes from the broker; the answer."""
        answer: list[Packet] = []
        self._decoder.feed(data)
        while (packet := self._decoder.next_packet()) is not None:
            self._take(packet, answer)
        return b"".join(encode(packet, self.client.version) for packet in answer)

    def _take(self, packet: Packet, answer: list[Packet]) -> None:
        client = self.client
        if isinstance(packet, Connack):
            assert packet.reason_code == 0, packet
            self.present = packet.session_present
            self.greeted = True
            self._go_on(answer)
        elif isinstance(packet, (Puback, Pubrec)):
            assert packet.reason_code in (0, 0x10), packet
            client.acknowledged(packet)
            if isinstance(packet, Pubrec):
                answer.append(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            client.unreleased.pop(packet.packet_id, None)
        elif isinstance(packet, Publish):
            self._message(packet, answer)
        elif isinstance(packet, Pubrel):
            client.received_unreleased.discard(packet.packet_id)
            answer.append(Pubcomp(packet.packet_id))

    def _message(self, packet: Publish, answer: list[Packet]) -> None:
        if packet.retain:
            self.retained[packet.topic] = packet.payload
        key = (packet.topic, packet.payload)
        self.client.receive(packet)
        self.got[key] = self.got.get(key, 0) + 1
        if packet.qos == 1:
            answer.append(Puback(packet.packet_id))
        elif packet.qos == 2:
            answer.append(Pubrec(packet.packet_id))

    def _go_on(self, answer: list[Packet]) -> None:
        client = self.client
        if not self.present:
            client.received_unreleased.clear()  # as a client must: the session is another one
            client.unreleased.clear()
        for packet_id, message in list(client.unacknowledged.items()):
            answer.append(
                Publish(
                    message.topic,
                    message.payload,
                    message.qos,
                    message.retain,
                    True,
                    packet_id,
                    message.properties,
                )
            )
        answer += [Pubrel(packet_id) for packet_id in client.unreleased]
        if client.published:
            first = next(iter(client.published.values())).message
            for number in range(MORE):
                packet_id = self._free_identifier()
                payload = b"after %d" % number
                more = Publish(first.topic, payload, first.qos, False, False, packet_id)
                client.publish(_LATER, more)
                answer.append(more)
        if not client.client_id:
            answer.append(Subscribe(1, [Subscription("retained/#", 1)]))

    def _free_identifier(self) -> int:
        """The one used latest of those that are free: a broker that remembers it is found out."""
        taken = self.client.unacknowledged.keys() | self.client.unreleased.keys()
        known = [number for number in reversed(self.client.free) if number not in taken]
        return known[0] if known else next(n for n in range(1, 65_536) if n not in taken)

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return not self.greeted or bool(self.client.unacknowledged or self.client.unreleased)


def fresh() -> Survivor:
    """A client nobody knew, that asks what is retained."""
    client = Client("")
    return Survivor(client)


# -- in this process -------------------------------------------------------------------


def run_within(
    data_dir: Path, survivors: list[Survivor], now_us: int, stream: StreamDefinition
) -> None:
    """Open the store and let all survivors talk to the engine on it until nothing moves."""
    store = RocksStore(data_dir, [stream])
    try:
        judge_store(store)
        now = Now(1000.0, now_us)
        limits = EngineLimits(max_mqueue_len=0, connect_timeout_s=1e9)
        shell = Shell(Server(limits, store.recover(), ("#",), "fsync", now), store)
        pipes = [shell.accept(now) for _ in survivors]
        for survivor, pipe in zip(survivors, pipes, strict=True):
            pipe.to_broker += survivor.hello()
        for _ in range(ROUNDS_MAX):
            if not _round(shell, survivors, pipes, now):
                break
        else:
            raise AssertionError("it never comes to rest")
        judge_stream(read_stream(data_dir, stream), survivors)
    finally:
        store.close()


def read_stream(data_dir: Path, stream: StreamDefinition) -> Counter[Key]:
    """How often each message is in the stream, as its readers see it."""
    follower = LogFollower(data_dir)
    extent = follower.extent(stream)
    assert extent.earliest == 0, "it is kept for ever"
    selector = TopicSelector([stream.topic_filters])
    found: Counter[Key] = Counter()
    position = 0
    for rows in follower.rows(0, extent.end, stream):
        assert rows.begin == position
        position = rows.end
        table = pa.Table.from_batches([rows.batch])
        mask = selector.mask(table)
        chosen = table if mask is None else table.filter(mask)
        found.update(
            zip(
                chosen.column("topic").to_pylist(),
                chosen.column("payload").to_pylist(),
                strict=True,
            )
        )
    assert position == extent.end
    return found


def judge_stream(found: Counter[Key], survivors: list[Survivor]) -> None:
    """What was acknowledged is there, at QoS 2 once.

    Raises:
        AssertionError: something is not.
    """
    for survivor in survivors:
        client = survivor.client
        sent = [*client.published.values(), *client.kept]
        for message in [one.message for one in sent if one.acknowledged]:
            what = f"{message.topic} {message.payload!r} of {client.client_id}, acknowledged,"
            count = found[message.topic, message.payload]
            assert count, f"{what} is not in the stream"
            assert count == 1 or message.qos < 2, f"{what} is in the stream {count} times"


def _round(shell: Shell, survivors: list[Survivor], pipes: list[Pipe], now: Now) -> bool:
    moved = False
    for pipe in pipes:
        if pipe.to_broker and not pipe.connection.is_reading_paused:
            data = bytes(pipe.to_broker)
            pipe.to_broker.clear()
            pipe.connection.receive(data, now)
            moved = True
    for read in shell.reads[:]:
        shell.reads.remove(read)
        read.session.supply(read.offsets, shell.store.read(read.offsets), now)
        moved = True
    moved = bool(shell.server.resume(now)) or moved
    shell.end_turn()
    if shell.write() is not None:
        shell.release()
        moved = True
    for survivor, pipe in zip(survivors, pipes, strict=True):
        if pipe.to_device:
            data = bytes(pipe.to_device)
            pipe.to_device.clear()
            pipe.to_broker += survivor.receive(data)
            moved = True
        because = pipe.connection.close_reason
        assert not pipe.closed_by_broker, f"closed on {survivor.client.client_id}: {because}"
    return moved


def judge_store(store: RocksStore) -> None:
    """The log is one run of offsets, and no queue or window refers to a body that is gone."""
    recovered = store.recover()
    extent = store.log_extent()
    rows = store.read(range(extent.earliest, extent.end))
    assert len(rows) == extent.end - extent.earliest, "the log has a hole"
    needed: dict[int, int] = {}
    for number, runs in recovered.queues.items():
        progress = recovered.progress.get(number)
        for run in runs:
            for position, offset in enumerate(run.offsets):
                if progress is None or run.first + position >= progress.queue_head:
                    needed[offset] = number
    known = {session.number for session in recovered.sessions}
    for number in needed.values():
        assert number in known, f"a queue of session {number}, which is not there"
    for number, progress in recovered.progress.items():
        for _, state, _, offset, *_ in progress.in_flight():
            if state != AWAIT_PUBCOMP:  # of that one the receiver has the body
                needed[offset] = number
    lost = [(offset, number) for offset, number in needed.items() if offset not in rows]
    assert not lost, f"(offset, session) of bodies that are gone: {lost[:5]}"


# -- over sockets ----------------------------------------------------------------------


def run_over_sockets(address: Address, survivors: list[Survivor]) -> None:
    """Let all survivors talk to a broker until they wait for nothing and nothing comes."""
    with selectors.DefaultSelector() as selector:
        for survivor in survivors:
            link = socket.create_connection(address, DEADLINE_S)
            link.sendall(survivor.hello())
            selector.register(link, selectors.EVENT_READ, survivor)
        try:
            _until_quiet(selector, survivors)
        finally:
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()


def _until_quiet(selector: selectors.BaseSelector, survivors: list[Survivor]) -> None:
    ends_s = time.monotonic() + 2 * DEADLINE_S
    while time.monotonic() < ends_s:
        ready = selector.select(SILENCE_S)
        if not ready and not any(survivor.waits for survivor in survivors):
            return
        for key, _ in ready:
            link, survivor = key.fileobj, key.data
            assert isinstance(link, socket.socket)
            data = link.recv(_READ_BYTES)
            assert data, f"the broker closed on {survivor.client.client_id}"
            link.sendall(survivor.receive(data))
    waiting = [survivor.client.client_id for survivor in survivors if survivor.waits]
    raise AssertionError(f"still waiting: {waiting}")


# -- the verdict -----------------------------------------------------------------------


def judge(survivors: list[Survivor], newcomer: Survivor) -> int:
    """Whether all promises were kept; how many messages were acknowledged.

    Raises:
        AssertionError: which one was not.
    """
    lasting = [survivor for survivor in survivors if survivor.client.lasting]
    for survivor in lasting:
        assert survivor.present, f"the session of {survivor.client.client_id} is gone"
    acknowledged = 0
    for publisher in survivors:
        assert not publisher.waits, f"{publisher.client.client_id} still waits"
        for key, sent in publisher.client.published.items():
            if sent.acknowledged:
                acknowledged += 1
                _delivered(key, sent.message.qos, sent.at, lasting)
        acknowledged += _retained(publisher.client, newcomer.retained)
    for survivor in lasting:
        client = survivor.client
        for (topic, payload), count in client.received.items():
            if (topic, payload) in client.first_at_qos1:
                continue
            if topic.startswith("ledger/2/") and _only_at_qos2(client, topic):
                what = f"{topic} {payload!r} at QoS 2 came to {client.client_id}"
                assert count == 1, f"{what} {count} times"
    return acknowledged


def _only_at_qos2(client: Client, topic: str) -> bool:
    """Whether no subscription of now makes QoS 1 of it."""
    if any(is_shared(topic_filter) for topic_filter in (*client.subscriptions, *client.refused)):
        return False
    held = [held for name, held in client.subscriptions.items() if topic_matches(name, topic)]
    return bool(held) and all(one.qos == 2 and one.since is not None for one in held)


def _delivered(key: Key, qos: int, at: int, survivors: list[Survivor]) -> None:
    in_group = False
    what = f"{key[0]} {key[1]!r} at QoS {qos}, acknowledged,"
    for survivor in survivors:
        client = survivor.client
        for topic_filter, held in client.subscriptions.items():
            since_before = held.since is not None and held.since < at
            if not (since_before and topic_matches(without_share_prefix(topic_filter), key[0])):
                continue
            if is_shared(topic_filter):
                in_group = True
            else:
                assert _has(survivor, key), f"{what} never reaches {client.client_id}"
    if in_group:  # of which there is one; another member may have had it, and left
        members = [one for one in survivors if one.client.client_id.startswith("fickle")]
        assert any(_has(one, key) for one in members), f"{what} reaches nobody of its group"


def _has(survivor: Survivor, key: Key) -> bool:
    return key in survivor.client.confirmed or key in survivor.got


def _retained(client: Client, found: dict[str, bytes]) -> int:
    """Each topic retains what was acknowledged last, or something sent after that."""
    topics: dict[str, list[bytes]] = {}
    count = 0
    for sent in client.kept:
        count += sent.acknowledged
        allowed = topics.setdefault(sent.message.topic, [b""])
        if sent.acknowledged:
            allowed.clear()
        allowed.append(sent.message.payload)
    for topic, allowed in topics.items():
        payload = found.get(topic, b"")
        assert payload in allowed, f"{topic} retains {payload!r} and not one of {allowed}"
    return count
