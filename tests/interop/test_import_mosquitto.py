"""A real Mosquitto is run, stopped and imported, and its clients go on at Penstock.

::

      clients ─▶ Mosquitto ── stop ─▶ mosquitto.conf, users, acl, mosquitto.db
                                            │ penstock import mosquitto
      clients ─▶ Penstock ◀── serve ── penstock.toml, users, acl, data
                    ╰─ bridge ─▶ a second Mosquitto, which was down until now

Another Mosquitto than the one that is installed: PENSTOCK_MOSQUITTO, see ``mosquitto_broker``.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.support.broker import SERVE, Address, Broker
from tests.support.commands import run
from tests.support.deadline import DEADLINE_S
from tests.support.mosquitto_broker import Mosquitto, needed
from tests.support.raw_client import RawClient

pytestmark = [
    needed,
    pytest.mark.skipif(
        shutil.which("mosquitto_passwd") is None,
        reason="mosquitto_passwd is not installed: apt-get install mosquitto",
    ),
]

PASSWORDS: Final = {"alice": "wonder", "feeder": "grain"}
ACCESS_LIST: Final = """\
topic read nothing/#
user alice
topic readwrite plant/#
topic deny plant/secret/#
topic read cmd/#
topic readwrite settle/#
user feeder
topic write plant/#
pattern readwrite own/%c/#
"""
COUNT: Final = 40  # messages that wait for alice
IDENTIFIER: Final = 7


@final
class House:
    """A Mosquitto with users, an access list and a bridge, and where all that is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        remote = directory / "remote"
        here = directory / "here"
        remote.mkdir()
        here.mkdir()
        self.remote = Mosquitto(remote)
        passwords = here / "passwords"
        for name, password in PASSWORDS.items():
            create = [] if passwords.exists() else ["-c"]
            subprocess.run(
                ["mosquitto_passwd", "-b", *create, str(passwords), name, password],
                check=True,
                capture_output=True,
                timeout=DEADLINE_S,
            )
        (here / "acl").write_text(ACCESS_LIST)
        self.mosquitto = Mosquitto(
            here,
            f"allow_anonymous false\npassword_file {passwords}\nacl_file {here}/acl\n"
            "max_inflight_messages 5\nsys_interval 0\n",
            f"connection up\naddress 127.0.0.1:{self.remote.address[1]}\n"
            'topic plant/up/# out 1 "" site/7/\ntopic cmd/# in 1\nnotifications false\n'
            "restart_timeout 1\n",
        )
        self.configuration = here / "mosquitto.conf"
        self.to = directory / "penstock"

    def penstock(self) -> Broker:
        """The broker that takes over, not started yet."""
        broker = Broker(
            self.directory, command=(*SERVE, "--config", str(self.to / "penstock.toml"))
        )
        broker.data_dir = self.to / "data"
        return broker


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    try:
        found.mosquitto.start()
        yield found
    finally:
        found.mosquitto.close()
        found.remote.close()


def enter(
    address: Address, client_id: str, user: str, version: int = V5, password: str | None = None
) -> tuple[RawClient, Connack]:
    """A client with its session, and the answer to its CONNECT."""
    client = RawClient(address, version)
    client.client_id = client_id
    properties = Properties(session_expiry_interval=3600, request_problem_information=0)
    client.send(
        Connect(
            client_id,
            version,
            False,
            0,
            None,
            user,
            (PASSWORDS[user] if password is None else password).encode(),
            properties if version == V5 else None,
        )
    )
    return client, client.expect(Connack)


def feed(address: Address) -> None:
    """Publish what waits for alice, QoS 1 and 2 in turn, some of it for the bridge too."""
    feeder, _ = enter(address, "feeder-1", "feeder")
    with feeder:
        for number in range(COUNT):
            topic = "plant/up/n" if number % 10 == 0 else "plant/n"
            properties = Properties(user_properties=[("number", str(number))])
            feeder.publish(topic, b"%d" % number, 1 + number % 2, properties=properties)
        feeder.publish("plant/state", b"running", 1, retain=True)
        feeder.publish("plant/secret/state", b"hidden", 1, retain=True)


def half_publish(address: Address) -> None:
    """Publish a QoS 2 message, and be gone before PUBREL."""
    half, _ = enter(address, "half", "feeder")
    with half:
        half.send(Publish("plant/half", b"half", 2, packet_id=9))
        assert half.expect(Pubrec).packet_id == 9


def import_all(house: House) -> str:
    code, output, told = run("import", "mosquitto", str(house.configuration), "--to", str(house.to))
    assert code == 0, told.decode()
    return output.decode()


def test_clients_go_on_at_penstock_where_they_were_at_mosquitto(house: House) -> None:
    there = house.mosquitto.address
    alice, _ = enter(there, "alice-1", "alice")
    with alice:
        assert alice.subscribe("plant/#", qos=2, identifier=IDENTIFIER) == [2]
        old, _ = enter(there, "old", "alice", V311)
        with old:
            old.subscribe("plant/n", qos=1)
        feeder, _ = enter(there, "feeder-0", "feeder")
        with feeder:
            feeder.publish("plant/first", b"first", 2)
        first = alice.expect(Publish)  # in flight: she is gone before PUBREC
    feed(there)
    half_publish(there)
    assert house.mosquitto.stop() == 0
    report = import_all(house)
    assert "Has no counterpart" not in report, report

    house.remote.start()
    collector = RawClient(house.remote.address)
    broker = house.penstock()
    try:
        collector.connect("collector")
        collector.subscribe("site/7/#", qos=1)
        broker.start()
        check_alice(broker.address, first)
        check_the_others(broker.address)
        up = [collector.take() for _ in range(COUNT // 10)]
        assert [message.topic for message in up] == ["site/7/plant/up/n"] * len(up)
        assert [message.payload for message in up] == [b"%d" % n for n in range(0, COUNT, 10)]
        assert collector.settle() == []
    finally:
        collector.drop()
        broker.close()


def test_a_bridge_goes_on_with_its_session_at_the_remote_broker(house: House) -> None:
    house.remote.start()
    there = house.mosquitto.address
    with RawClient(house.remote.address) as collector:
        collector.connect("collector")
        collector.subscribe("site/7/#", qos=1)
        alice, _ = enter(there, "alice-1", "alice")
        with alice:
            alice.subscribe("cmd/#", qos=1)
            alice.publish("plant/up/n", b"connected")  # it waits for the bridge
            assert collector.take().payload == b"connected"
            collector.publish("cmd/back", b"")  # behind its PUBACK: nothing is left in flight
            assert alice.take().topic == "cmd/back"
            assert alice.settle() == []  # her PUBACK is there, too
        assert house.mosquitto.stop() == 0
        collector.publish("cmd/go", b"while nobody was there", 1)
        import_all(house)
        broker = house.penstock()
        try:
            broker.start()
            alice, connack = enter(broker.address, "alice-1", "alice")
            with alice:
                assert connack.session_present
                assert alice.take().payload == b"while nobody was there"
                alice.publish("plant/up/n", b"on")
                assert collector.take().payload == b"on"
                assert (alice.settle(), collector.settle()) == ([], [])
        finally:
            broker.close()


def check_alice(address: Address, first: Publish) -> None:
    """Her password, session and subscription, and what was in flight, queued and unfinished."""
    stranger, refused = enter(address, "alice-1", "alice", password="wrong")
    stranger.drop()
    assert refused.reason_code == 0x86
    alice, connack = enter(address, "alice-1", "alice")
    with alice:
        assert connack.session_present
        again = alice.take()
        assert (again.topic, again.payload, again.qos) == ("plant/first", b"first", 2)
        assert (again.packet_id, again.dup) == (first.packet_id, True)
        for number in range(COUNT):
            message = alice.take()
            assert (message.payload, message.qos) == (b"%d" % number, 1 + number % 2)
            properties = message.properties
            assert properties is not None
            assert properties.subscription_identifiers == [IDENTIFIER]
            assert properties.user_properties == [("number", str(number))]
        assert alice.take().payload == b"running"
        assert alice.take().payload == b"half"  # routed at the import; at PUBREL it is not again
        assert alice.settle() == []
        feeder, present = enter(address, "half", "feeder")
        with feeder:
            assert present.session_present
            feeder.send(Publish("plant/half", b"half", 2, dup=True, packet_id=9))
            assert feeder.expect(Pubrec) == Pubrec(9)
            feeder.send(Pubrel(9))
            assert feeder.expect(Pubcomp) == Pubcomp(9)
            feeder.publish("plant/later", b"later")
        assert alice.take().payload == b"later"
        assert alice.publish("plant/secret/state", b"guess") == 0x87
        assert alice.publish("elsewhere", b"no") == 0x87
        retained = Subscription("plant/state", 1)
        assert alice.subscribe(retained) == [1]
        found = alice.take()
        assert (found.topic, found.payload, found.retain) == ("plant/state", b"running", True)
        assert alice.subscribe("plant/secret/#") == [0x87]


def check_the_others(address: Address) -> None:
    old, connack = enter(address, "old", "alice", V311)
    with old:
        assert connack.session_present
        numbers = [n for n in range(COUNT) if n % 10]
        assert old.take_payloads(len(numbers)) == [b"%d" % n for n in numbers]
        assert old.settle() == []
    stranger, foreign = enter(address, "old", "feeder", V311)
    stranger.drop()
    assert foreign.reason_code == 0x87  # the session is alice's
    own, _ = enter(address, "pattern", "feeder")
    with own:
        assert own.publish("own/pattern/x", b"") < 0x80
        assert own.publish("own/other/x", b"") == 0x87


def test_nothing_is_written_when_the_database_is_cut_off(house: House) -> None:
    with contextlib.ExitStack() as clients:
        clients.enter_context(enter(house.mosquitto.address, "alice-1", "alice")[0])
        feed(house.mosquitto.address)
    assert house.mosquitto.stop() == 0
    database = house.mosquitto.data_dir / "mosquitto.db"
    whole = database.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 30, 17):
        database.write_bytes(whole[:size])
        code, _, told = run("import", "mosquitto", str(house.configuration), "--to", str(house.to))
        assert code == 2
        assert told.startswith(b"penstock: Mosquitto's database ")
        assert told.count(b"\n") == 1
        assert not house.to.exists()
        assert not [path.name for path in house.directory.iterdir() if "importing" in path.name]
