"""Seed 002, "Understanding MQTT QOS Levels": its experiment with QoS 1 in seven steps, and what its
readers asked.

The seed hacked its client so that it does not see PUBACK; here the fault proxy swallows it. Its
client sends again every 20 s, as MQTT 3.1 has it (v3.1 §4.1). MQTT 3.1.1 and 5 forbid that within
a connection [MQTT-4.4.0-1]: the seed quotes the paragraph itself. So with them step 3 sends
nothing, and the connection of step 6 is a new one.

====== ======= ==================================================================
 m1    QoS 1   acknowledged
 m2    QoS 1   PUBACK is lost
 m3    QoS 0   has none
 m4    QoS 1   PUBACK is lost
====== ======= ==================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import final

import pytest

from penstock import Client, Message, Properties, Publication
from penstock.client.options import Version
from penstock.protocol.kinds import PUBACK, PUBLISH
from tests.support.broker import Broker
from tests.support.deadline import until
from tests.support.fault_proxy import FOREVER, FaultProxy
from tests.support.faulty_client import (
    Watcher,
    connected,
    dropped,
    first_of_each,
    hit,
    opened,
    proxied,
    watching,
)
from tests.support.seen_packets import DOWN, UP, Seen

RETRY_S = 0.3
each_version = pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])


@final
class Experiment:
    """The publisher behind the proxy, the monitor beside it, and the steps in their order."""

    def __init__(
        self, topic: str, version: Version, proxy: FaultProxy, client: Client, monitor: Watcher
    ) -> None:
        self.topic = topic
        self.by_time = version == "3.1"
        self.proxy = proxy
        self.client = client
        self.monitor = monitor
        self.sent: dict[str, Publication] = {}

    async def run(self, last: int) -> None:
        """All steps up to this one."""
        steps: list[Callable[[], Awaitable[None]]] = [
            self.publish_with_and_without_puback,
            self.publish_two_more,
            self.send_again_by_time,
            self.lose_the_connection,
            self.let_puback_through,
            self.send_again,
        ]
        for step in steps[:last]:
            await step()

    async def publish_with_and_without_puback(self) -> None:
        """Step 1."""
        assert await self.client.publish(self.topic, "m1", 1) == 0
        suppressed = self.proxy.swallow(DOWN, PUBACK, times=FOREVER)
        self.sent["m2"] = await self.client.send(self.topic, "m2", 1)
        await hit(suppressed)

    async def publish_two_more(self) -> None:
        """Step 2."""
        await self.client.publish(self.topic, "m3", 0)
        self.sent["m4"] = await self.client.send(self.topic, "m4", 1)
        await self.monitor.has("m1", "m2", "m3", "m4")

    async def send_again_by_time(self) -> None:
        """Step 3. With MQTT 3.1.1 and 5 nothing may happen, for as long as a client of MQTT 3.1
        with the same interval needs to send twice again."""
        if self.by_time:
            await until("m2 and m4 again", lambda: {"m2", "m4"} <= self.again(1))
            return
        async with opened(
            self.proxy.address, version="3.1", retry_interval_s=RETRY_S, client_id=f"{self.topic}o"
        ) as other:
            number = self.last
            await other.send(f"{self.topic}/other", "o", 1)
            await until(
                f"two repeats on connection {number}",
                lambda: len(self.publishes(number, "o")) >= 3,
            )
            self.proxy.swallow(UP, lambda packet: packet.connection == number, times=FOREVER)
            await other.close(drain=False)

    async def lose_the_connection(self) -> None:
        """Step 4. Swallowing goes on."""
        before = self.proxy.connections
        await dropped(self.client, self.proxy.reset)
        await connected(self.client, self.proxy, before)
        await until("m2 and m4 again", lambda: {"m2", "m4"} <= self.again(self.last))
        await until("the broker to have them", lambda: self.suppressed(self.last) >= 2)

    async def let_puback_through(self) -> None:
        """Step 5."""
        self.proxy.forget_rules()

    async def send_again(self) -> None:
        """Step 6: MQTT 3.1 does so "after a short time", the others on the next connection."""
        if not self.by_time:
            await dropped(self.client, self.proxy.reset)
        async with asyncio.timeout(30):
            for publication in self.sent.values():
                assert await publication == 0

    @property
    def last(self) -> int:
        """The connection that stands."""
        return self.proxy.connections

    def publishes(self, connection: int, text: str = "") -> list[Seen]:
        """What went to the broker; of one message if it is named."""
        return [
            packet
            for packet in self.proxy.passed(UP, PUBLISH)
            if packet.connection == connection and text in ("", packet.payload.decode())
        ]

    def suppressed(self, connection: int) -> int:
        """How many PUBACKs were."""
        return sum(
            1
            for packet in list(self.proxy.seen)
            if (packet.connection, packet.kind, packet.passed) == (connection, PUBACK, False)
        )

    def again(self, connection: int) -> set[str]:
        """What went there with DUP."""
        return {packet.payload.decode() for packet in self.publishes(connection) if packet.dup}


@asynccontextmanager
async def experiment(broker: Broker, name: str, version: Version) -> AsyncIterator[Experiment]:
    with proxied(broker.address) as proxy:
        async with (
            watching(broker.address, name) as monitor,
            opened(
                proxy.address,
                version=version,
                client_id=name,
                session_expiry_s=60,
                retry_interval_s=RETRY_S,
            ) as client,
        ):
            yield Experiment(name, version, proxy, client, monitor)
            proxy.forget_rules()  # so that ``close`` has nothing to wait for


@each_version
async def test_step_1_with_puback_it_is_delivered_and_without_it_stays(
    shared_broker: Broker, name: str, version: Version
) -> None:
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(1)
        assert ran.client.pending == 1
        assert not ran.sent["m2"].is_done
        ran.proxy.reset()


@each_version
async def test_step_2_qos_0_leaves_the_queue_when_sent_and_qos_1_does_not(
    shared_broker: Broker, name: str, version: Version
) -> None:
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(2)
        assert ran.client.pending == 2
        assert [packet.packet_id for packet in ran.publishes(1, "m3")] == [0]
        assert not any(one.is_done for one in ran.sent.values())
        ran.proxy.reset()


@each_version
async def test_step_3_what_is_in_the_queue_is_sent_again_with_dup_by_mqtt_31_alone(
    shared_broker: Broker, name: str, version: Version
) -> None:
    """MQTT 3.1: with DUP and the same message identifier. Later versions: not within a connection
    [MQTT-4.4.0-1]."""
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(3)
        for text in ("m2", "m4"):
            first, *others = ran.publishes(1, text)
            assert not first.dup
            assert bool(others) == (version == "3.1")
            assert all(one.dup and one.packet_id == first.packet_id for one in others)
        assert ran.client.pending == 2
        ran.proxy.reset()


@each_version
async def test_step_4_after_a_dropped_connection_both_are_sent_again_with_dup(
    shared_broker: Broker, name: str, version: Version
) -> None:
    """In their order, and with their packet identifiers [MQTT-4.4.0-1]; still in the queue."""
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(4)
        identifiers = {one.payload: one.packet_id for one in ran.publishes(1)}
        again = ran.publishes(ran.last)[:2]
        assert [(one.payload, one.dup) for one in again] == [(b"m2", True), (b"m4", True)]
        assert all(one.packet_id == identifiers[one.payload] for one in again)
        assert ran.client.pending == 2
        ran.proxy.reset()


@each_version
async def test_steps_5_and_6_with_puback_they_leave_the_queue(
    shared_broker: Broker, name: str, version: Version
) -> None:
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(6)
        assert ran.client.pending == 0
        assert all(one.reason_code == 0 for one in ran.sent.values())


@each_version
async def test_step_7_the_monitor_sees_duplicates_of_what_was_not_acknowledged(
    shared_broker: Broker, name: str, version: Version
) -> None:
    """And of nothing else. The broker publishes them as new messages: DUP is of one hop
    [MQTT-3.3.1-3]."""
    async with experiment(shared_broker, name, version) as ran:
        await ran.run(6)
        await ran.client.publish(name, "end", 1)
        await ran.monitor.has("end")
        texts = ran.monitor.texts
        assert first_of_each(texts) == ["m1", "m2", "m3", "m4", "end"]
        assert (texts.count("m1"), texts.count("m3")) == (1, 1)
        assert texts.count("m2") >= 3
        assert texts.count("m4") >= 3
        assert not any(one.duplicate for one in ran.monitor.seen)


# -- what its readers asked ---------------------------------------------------------------------


@each_version
async def test_does_the_client_itself_see_to_it_that_a_message_is_sent_after_a_glitch(
    shared_broker: Broker, name: str, version: Version
) -> None:
    """ "I would expect that a smart client handles this without the user having to act." The
    connection is reset with every fifth message; the program only publishes."""
    wanted = [str(number) for number in range(30)]
    with proxied(shared_broker.address) as proxy:
        proxy.cut_before(UP, PUBLISH, nth=5, times=5)
        async with (
            watching(shared_broker.address, name) as monitor,
            opened(proxy.address, version=version) as client,
        ):
            for text in wanted:
                await client.publish(name, text, 1)
            await monitor.has(*wanted)
            assert first_of_each(monitor.texts) == wanted
        assert proxy.connections == 6


async def test_the_client_reconnects_by_itself(shared_broker: Broker, name: str) -> None:
    """By doing nothing: the subscription stands, too."""
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(proxy.address, name) as receiving,
            opened(shared_broker.address) as sending,
        ):
            for number in range(3):
                before = proxy.connections
                await dropped(receiving.client, proxy.reset)
                await connected(receiving.client, proxy, before)
                await sending.publish(name, str(number), 1)
                await receiving.has(str(number))


async def test_the_broker_publishes_the_puback(shared_broker: Broker, name: str) -> None:
    """The broker, when it has the message; whether and when a subscriber has it is another hop's
    business: MQTT 5 says 0x10 where there is none."""
    async with opened(shared_broker.address) as client:
        assert await client.publish(name, "nobody subscribes", 1) == 0x10
        await client.subscribe(name)
        assert await client.publish(name, "one does, and has not acknowledged", 1) == 0


async def test_duplicates_can_be_recognised(shared_broker: Broker, name: str) -> None:
    """Of the receiver's own hop by ``duplicate``; of the publisher's by ``id``, where it gives one:
    "is there a way to identify duplicates in a qos 1 situation?\""""
    with proxied(shared_broker.address) as proxy:
        async with (
            opened(shared_broker.address) as receiving,
            opened(proxy.address, client_id=name, session_expiry_s=60) as sending,
        ):
            await receiving.subscribe(name)
            proxy.cut_before(DOWN, PUBACK)
            said = Properties(user_properties=[("message-id", "m-1")])
            await sending.publish(name, "twice", 1, properties=said)
            messages = receiving.messages()
            taken = [await anext(messages), await anext(messages)]
            assert [one.id for one in taken] == ["m-1", "m-1"]
            assert not any(one.duplicate for one in taken)


async def test_a_lost_puback_of_ours_makes_a_duplicate_that_says_so(
    shared_broker: Broker, name: str
) -> None:
    """ "in the on_message callback I think you can access it using message.dup"."""
    with proxied(shared_broker.address) as proxy:
        async with watching(proxy.address, name, client_id=name) as receiving:
            proxy.cut_before(UP, PUBACK)
            async with opened(shared_broker.address) as sending:
                await sending.publish(name, "twice", 1)
            await until("both", lambda: len(receiving.seen) == 2)
            assert [(one.text, one.duplicate) for one in receiving.seen] == [
                ("twice", False),
                ("twice", True),
            ]


async def lose_power_in_processing(message: Message, proxy: FaultProxy) -> None:
    async with message.processing():
        assert proxy.passed(UP, PUBACK) == []
        proxy.refuse()
        proxy.reset()
        raise ConnectionError("the power goes")


async def test_the_power_goes_between_the_ack_and_the_commit_to_the_database(
    shared_broker: Broker, name: str
) -> None:
    """ "presumably the message is lost if the power goes out between when paho acks the message and
    when the app commits it": our acknowledgement leaves after the block that commits."""
    database: list[str] = []
    with proxied(shared_broker.address) as proxy:
        async with (
            opened(proxy.address, client_id=name, session_expiry_s=60, drain_s=0) as first,
            opened(shared_broker.address) as sending,
        ):
            await first.subscribe(name)
            await sending.publish(name, "reading", 1)
            message = await anext(first.messages())
            with pytest.raises(ConnectionError, match="power"):
                await lose_power_in_processing(message, proxy)
        assert proxy.passed(UP, PUBACK) == []
        proxy.accept()
        async with opened(proxy.address, client_id=name, session_expiry_s=60) as second:
            again = await anext(second.messages())
            async with again.processing():
                database.append(again.text)
            assert again.duplicate
            await until("PUBACK", lambda: len(proxy.passed(UP, PUBACK)) == 1)
    assert database == ["reading"]


async def test_a_message_that_is_processed_when_the_connection_breaks_is_handed_over_once(
    shared_broker: Broker, name: str
) -> None:
    """It comes again while its block still runs; the end of the block acknowledges that."""
    with proxied(shared_broker.address) as proxy:
        async with (
            opened(proxy.address, client_id=name) as receiving,
            opened(shared_broker.address) as sending,
        ):
            await receiving.subscribe(name)
            await sending.publish(name, "slow", 1)
            messages = receiving.messages()
            async with (await anext(messages)).processing():
                await dropped(receiving, proxy.reset)
                await until("it again", lambda: len(proxy.passed(DOWN, PUBLISH)) == 2)
            await sending.publish(name, "next", 1)
            assert (await anext(messages)).text == "next"
            acknowledged = [one.connection for one in proxy.passed(UP, PUBACK)]
            assert acknowledged == [2]


async def test_a_client_that_cannot_acknowledge_stays_connected(
    shared_broker: Broker, name: str
) -> None:
    """ "My clients gets disconnected from Mqtt broker if it not able to send acknowledge": not from
    this one, which sends Receive Maximum messages and keeps the rest until there is room."""
    held: list[Message] = []
    async with (
        opened(shared_broker.address, receive_maximum=5) as slow,
        opened(shared_broker.address) as sending,
    ):
        await slow.subscribe(name)
        for number in range(20):
            await sending.publish(name, str(number), 1)
        messages = slow.messages()
        while len(held) < 5:
            message = await anext(messages)
            message.defer()
            held.append(message)
        await slow.publish(f"{name}/alive", "", 1)
        assert slow.is_connected
        for message in held:
            message.acknowledge()
        rest = [(await anext(messages)).text for _ in range(15)]
        assert [one.text for one in held] + rest == [str(number) for number in range(20)]


async def test_qos_is_needed_though_tcp_guarantees_delivery(
    shared_broker: Broker, name: str
) -> None:
    """Because a connection ends: what TCP had taken and not delivered is gone with it. With QoS 0
    for good, with QoS 1 it is sent again."""
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(shared_broker.address, name) as monitor,
            opened(proxy.address) as client,
        ):
            for qos, text in ((0, "lost"), (1, "kept")):
                before = proxy.connections
                cut = proxy.cut_before(UP, PUBLISH)
                await client.publish(name, text, qos)
                await hit(cut)
                await connected(client, proxy, before)
            await monitor.has("kept")
            assert monitor.texts == ["kept"]
