"""Stock clients of a cluster whose primary is killed: each comes back as its own library lets it.

::

      client ─▶ a standby that stays ─ relays ─▶ primary ✕      one address, the library reconnects
      client ─▶ one address after the other ───▶ primary ✕      a list, a loop of the program's own
      client ─▶ a standby ── 0x9C, its reference ─▶ primary ✕   the program follows it

Each publishes while there is no primary, too. What was acknowledged must arrive, and the session of
the subscriber must be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from tests.interop import mosquitto
from tests.interop.paho_client import PahoClient, properties_of
from tests.interop.test_gmqtt import Joined
from tests.support import nats_cluster
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S, until, wait_for
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient
from tests.support.windowed_publisher import WindowedPublisher

pytestmark = nats_cluster.needed

CLIENT: Final = "127.0.0.5"
"""The address of the clients: connections from that of the standbys need a PROXY header."""

BEFORE: Final = [b"%d" % number for number in range(20)]
AFTER: Final = [b"%d" % number for number in range(20, 40)]

slow_version = partial(pytest.param, marks=pytest.mark.torture("one more version"))


@final
class Plant:
    """A cluster whose primary can be lost again and again."""

    def __init__(self, members: Members) -> None:
        self.members = members
        members.start()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Start what does not run, and wait until there are a primary and two standbys."""
        for member in self.members.all.values():
            if not member.is_running:
                member.start()
        wait_for("every member's role", lambda: all(one.role() for one in self._all()))
        self.members.wait_until_level()

    def standby(self) -> MemberBroker:
        """The standby that comes last in the order of names: the other one claims before it."""
        return max(
            (one for one in self._all() if one.role() == "standby"), key=lambda one: one.name
        )

    def addresses(self) -> list[tuple[str, int]]:
        """Those of all members, the primary's last."""
        primary = self.members.primary()
        return [one.address for one in sorted(self._all(), key=lambda one: one is primary)]

    def kill_primary(self) -> MemberBroker:
        """Kill it; it is returned."""
        primary = self.members.wait_for_primary()
        primary.kill()
        return primary

    def _all(self) -> list[MemberBroker]:
        return list(self.members.all.values())


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the logs."""
    with nats_cluster.nats_cluster(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


def plant_of(
    nats: NatsCluster, directory: Path, name: str, settings: dict[str, str]
) -> Iterator[Plant]:
    members = Members(directory, nats.urls, {"cluster.name": name, **settings})
    try:
        yield Plant(members)
    finally:
        members.close()


@pytest.fixture(scope="module")
def relaying_plant(nats: NatsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    settings = {
        "cluster.standby_clients": "relay",
        "limits.max_mqueue_len": "0",
        "listener.proxy_protocol": "v2",
        "listener.proxy_networks": json.dumps(["127.0.0.1/32"]),
        "listener.proxy_networks_only": "false",
    }
    yield from plant_of(nats, tmp_path_factory.mktemp("relaying"), "relaying", settings)


@pytest.fixture(scope="module")
def referring_plant(nats: NatsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    yield from plant_of(nats, tmp_path_factory.mktemp("referring"), "referring", {})


@pytest.fixture
def relaying(relaying_plant: Plant) -> Plant:
    relaying_plant.wait_until_whole()
    return relaying_plant


@pytest.fixture
def referring(referring_plant: Plant) -> Plant:
    referring_plant.wait_until_whole()
    return referring_plant


def assert_nothing_lost(received: Sequence[bytes], sent: Sequence[bytes]) -> None:
    """Whether each message came, in order but for what was sent again (QoS 1)."""
    assert list(dict.fromkeys(received)) == list(sent)


# -- a standby that stops -------------------------------------------------------------------


async def stop_under_load(standby: MemberBroker, publisher: WindowedPublisher) -> None:
    """Stop the standby while it relays a publisher in full flow."""
    running = asyncio.create_task(publisher.run(standby.address, CLIENT))
    await until("full flow", lambda: len(publisher.completed) >= publisher.window)
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, standby.stop) == 0
    async with asyncio.timeout(DEADLINE_S):
        await running


def test_a_message_that_a_stopped_standby_relayed_is_acknowledged(
    relaying: Plant, name: str
) -> None:
    """As at a planned stop of the primary; the publisher would send its whole window again."""
    publisher = WindowedPublisher(f"{name}p", V5, 1, 100)
    address = relaying.members.wait_for_primary().address
    with RawClient(("", 0), V5, dial(address)) as reader:
        reader.connect(f"{name}r", clean_start=False, expiry_s=3600)
        reader.subscribe(publisher.topic, qos=1)
    asyncio.run(stop_under_load(relaying.standby(), publisher))
    taken: list[str] = []
    with RawClient(("", 0), V5, dial(address)) as reader:
        reader.connect(f"{name}r", clean_start=False, expiry_s=3600)
        reader.publish(publisher.topic, b"last", 1)
        while "last" not in taken:
            taken.append(reader.take().payload.decode())
    assert set(taken[:-1]) == publisher.acknowledged
    assert publisher.is_whole


def dial(address: Address) -> socket.socket:
    """A connection from the address of the clients."""
    return socket.create_connection(address, DEADLINE_S, (CLIENT, 0))


# -- one address ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version",
    [
        MQTTProtocolVersion.MQTTv5,
        slow_version(MQTTProtocolVersion.MQTTv311),
        slow_version(MQTTProtocolVersion.MQTTv31),
    ],
    ids=lambda version: version.name,
)
def test_paho_comes_back_by_itself(
    relaying: Plant, name: str, version: MQTTProtocolVersion
) -> None:
    address = relaying.standby().address
    subscriber = PahoClient(f"{name}s", version, True, "")
    publisher = PahoClient(f"{name}p", version, True, "")
    try:
        for client in (subscriber, publisher):
            assert not client.connect(address, 60, CLIENT)
        subscriber.subscribe(f"{name}/t", 1)
        for payload in BEFORE:
            publisher.publish(f"{name}/t", payload, 1)
        relaying.kill_primary()
        for payload in AFTER:  # paho keeps them, and says that it is not connected
            publisher.client.publish(f"{name}/t", payload, 1)
        subscriber.wait_until_back()
        publisher.wait_until_back()
        received: list[bytes] = []
        while AFTER[-1] not in received:
            received += [message.payload for message in subscriber.take(1)]
        assert_nothing_lost(received, BEFORE + AFTER)
    finally:
        subscriber.leave()
        publisher.leave()


@pytest.mark.parametrize("version", [5, slow_version(4)], ids=["v5", "v311"])
async def test_gmqtt_comes_back_by_itself(
    relaying: Plant, name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()  # gmqtt has no option for the address of its own side
    from_client = partial(loop.create_connection, local_addr=(CLIENT, 0))
    monkeypatch.setattr(loop, "create_connection", from_client)
    host, port = relaying.standby().address
    options: dict[str, Any] = {"session_expiry_interval": 3600} if version == 5 else {}
    subscriber, publisher = (
        Joined(f"{name}{role}", clean_session=False, **options) for role in "sp"
    )
    for joined in (subscriber, publisher):
        joined.client.set_config({"reconnect_retries": gmqtt.constants.UNLIMITED_RECONNECTS})
        joined.client.set_config({"reconnect_delay": 1})
        await joined.client.connect(host, port, version=version)
    await subscriber.subscribe(f"{name}/t", 1)
    for payload in BEFORE:
        publisher.client.publish(f"{name}/t", payload, qos=1)
    received = [payload for _, payload, _, _ in await subscriber.take(len(BEFORE))]
    relaying.kill_primary()
    for payload in AFTER:
        publisher.client.publish(f"{name}/t", payload, qos=1)
    while AFTER[-1] not in received:
        received += [payload for _, payload, _, _ in await subscriber.take(1)]
    assert sorted(set(received), key=int) == BEFORE + AFTER
    for joined in (subscriber, publisher):
        await joined.client.disconnect()


@mosquitto.needed
@pytest.mark.parametrize("version", ["mqttv5", slow_version("mqttv311"), slow_version("mqttv31")])
def test_mosquittos_programs_come_back_by_themselves(
    relaying: Plant, name: str, version: str
) -> None:
    host, port = relaying.standby().address
    at = ["-h", host, "-p", str(port), "-A", CLIENT]
    lasting = ["-c", *(["-x", "3600"] if version == "mqttv5" else [])]
    topic = ["-t", f"{name}/t", "-q", "1"]
    options = ["-i", f"{name}s", *lasting, *topic, "-F", "message %p"]
    with mosquitto.Subscriber(None, version, *options, at=at) as subscriber:
        publisher = subprocess.Popen(
            ["mosquitto_pub", *at, "-V", version, *topic, "-i", f"{name}p", *lasting, "-l"],
            stdin=subprocess.PIPE,
        )
        try:
            assert publisher.stdin is not None
            publisher.stdin.write(b"".join(payload + b"\n" for payload in BEFORE))
            publisher.stdin.flush()
            received = subscriber.lines(len(BEFORE), "message ")
            relaying.kill_primary()
            publisher.stdin.write(b"".join(payload + b"\n" for payload in AFTER))
            publisher.stdin.close()  # it ends after the last acknowledgement
            assert publisher.wait(DEADLINE_S) == 0
            while f"message {AFTER[-1].decode()}" not in received:
                received += subscriber.lines(1, "message ")
        finally:
            publisher.kill()
            publisher.wait(DEADLINE_S)
    payloads = [line.partition(" ")[2].encode() for line in received]
    assert_nothing_lost(payloads, BEFORE + AFTER)


# -- a list of addresses -------------------------------------------------------------------


@pytest.mark.parametrize(
    "version",
    [ProtocolVersion.V5, slow_version(ProtocolVersion.V311)],
    ids=lambda version: version.name,
)
async def test_aiomqtt_tries_one_address_after_the_other(
    referring: Plant, name: str, version: ProtocolVersion
) -> None:
    """aiomqtt raises where the connection ends, and the program's loop goes on."""
    addresses = itertools.cycle(referring.addresses())
    received: list[bytes] = []

    def client(client_id: str) -> aiomqtt.Client:
        host, port = next(addresses)
        options: dict[str, Any] = {"clean_session": False}
        if version == ProtocolVersion.V5:
            properties = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=3600)
            options = {"clean_start": False, "properties": properties}
        return aiomqtt.Client(
            host, port, identifier=client_id, protocol=version, timeout=5.0, **options
        )

    async def subscribe() -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(f"{name}s") as subscriber:
                    await subscriber.subscribe(f"{name}/t", 2)
                    subscribed.set()
                    async for message in subscriber.messages:
                        assert isinstance(message.payload, bytes)
                        received.append(message.payload)

    async def publish(payloads: list[bytes]) -> None:
        rest = list(payloads)
        while rest:
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(f"{name}p") as publisher:
                    while rest:
                        await publisher.publish(f"{name}/t", rest[0], 1)
                        rest.pop(0)

    subscribed = asyncio.Event()
    subscribing = asyncio.create_task(subscribe())
    try:
        await asyncio.wait_for(subscribed.wait(), DEADLINE_S)
        await publish(BEFORE)
        referring.kill_primary()
        await publish(AFTER)
        await until("the last message", lambda: AFTER[-1] in received)
    finally:
        subscribing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await subscribing
    assert_nothing_lost(received, BEFORE + AFTER)


def test_a_program_with_paho_follows_the_reference_of_a_standby(
    referring: Plant, name: str
) -> None:
    """paho tells it, and does not go there by itself."""
    assert _referred_to(referring.standby().address, name) == "{}:{}".format(
        *referring.members.wait_for_primary().address
    )
    former = referring.kill_primary()
    successor = referring.members.wait_for_primary(other_than=former)
    (third,) = {*referring.addresses()} - {former.address, successor.address}
    wait_for(
        "the reference to the next primary",
        lambda: _referred_to(third, name) == "{}:{}".format(*successor.address),
    )


def _referred_to(address: tuple[str, int], client_id: str) -> str:
    """The Server Reference of a standby's CONNACK; empty where it has none."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
    )
    found: list[str] = []

    def answered(
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        del userdata, flags
        is_referred = code.value == reasons.USE_ANOTHER_SERVER
        found.append(str(getattr(properties, "ServerReference", "")) if is_referred else "")
        client.disconnect()

    client.on_connect = answered
    client.connect(*address)
    client.loop_start()
    try:
        return wait_for("CONNACK", lambda: list(found))[0]
    finally:
        client.loop_stop()
