"""A store at one end of a session comes back from an older copy: nothing is lost in silence, and
what would come twice comes only when an operator has said so."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Client
from penstock.client.options import Status
from penstock.protocol.packets import Publish, Pubrec
from penstock.protocol.properties import Properties
from tests.support.bridged import bridge, client, connected, with_bridges
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

REFUSED = "an older copy of the data at one end was put back"
PARTED = "or a new outbox has taken its place: messages may come twice"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    with running_broker(tmp_path / "broker") as started:
        yield started


def put_back(copied: Path, to: Path) -> None:
    shutil.rmtree(to)
    shutil.copytree(copied, to)


def fork(data_dir: Path) -> None:
    """The operator's word: the copy is meant to be used."""
    code, _, errors = run("store", "fork", "--data-dir", str(data_dir))
    assert code == 0, errors


def meter(
    broker: Broker, outbox: Path, status_changed: Callable[[Status], None] | None = None
) -> Client:
    """A client with an outbox, which dials again at once."""
    return Client(
        "mqtt://{}:{}".format(*broker.address),
        client_id="meter",
        outbox=outbox,
        reconnect_s_min=0.1,
        reconnect_s_max=0.1,
        status_changed=status_changed,
    )


async def deliver(broker: Broker, outbox: Path, *payloads: bytes) -> None:
    async with meter(broker, outbox) as opened:
        for payload in payloads:
            await opened.send("heat", payload, qos=2)
        await opened.drain()


async def refusal(broker: Broker, outbox: Path, payload: bytes) -> None:
    """A program sends a message with its outbox, where it waits, and is told why."""
    told: asyncio.Queue[str] = asyncio.Queue()
    async with meter(broker, outbox, lambda status: told.put_nowait(status.error)) as opened:
        await opened.send("heat", payload, qos=2)
        async with asyncio.timeout(DEADLINE_S):
            while REFUSED not in (error := await told.get()):
                pass
        assert "'penstock store fork' on the older end goes on" in error
        assert opened.pending >= 1
    wait_until_logged(broker, REFUSED)


async def test_an_outbox_that_was_put_back_sends_nothing_until_an_operator_says_so(
    broker: Broker, tmp_path: Path
) -> None:
    outbox, copied = tmp_path / "outbox", tmp_path / "copy"
    with client(broker, "table", "heat", kept=True) as table:
        await deliver(broker, outbox, b"1", b"2")
        shutil.copytree(outbox, copied)
        await deliver(broker, outbox, b"3", b"4")
        assert table.take_payloads(4) == [b"1", b"2", b"3", b"4"]
        put_back(copied, outbox)
        await refusal(broker, outbox, b"5")
        assert [one for one in table.settle() if isinstance(one, Publish)] == []
        fork(outbox)
        await deliver(broker, outbox, b"6")
        assert table.take_payloads(2) == [b"5", b"6"]
        await deliver(broker, outbox, b"7")
        assert table.take_payloads(1) == [b"7"]
    assert broker.log().count(PARTED) == 1


async def test_an_outbox_whose_place_a_new_one_took_comes_back_when_it_is_accepted(
    broker: Broker, tmp_path: Path
) -> None:
    """Its volume was not mounted for a while, and the program made a new outbox."""
    outbox = tmp_path / "outbox"
    with client(broker, "table", "heat") as table:
        for number in range(3):
            await deliver(broker, outbox, b"%d" % number)
        await deliver(broker, tmp_path / "meanwhile", b"3")
        await refusal(broker, outbox, b"4")
        fork(outbox)
        await deliver(broker, outbox, b"5")
        assert table.take_payloads(6) == [b"%d" % number for number in range(6)]


async def test_a_restored_broker_takes_no_new_message_for_a_repeat_though_no_connection_was_between(
    broker: Broker, tmp_path: Path
) -> None:
    """The backup was made in the connection that is still the last one: both ends know its name."""
    names = Properties(user_properties=[("penstock-connection", f"1-{'a' * 12} 0-{'0' * 12}")])
    later = Properties(user_properties=[("penstock-connection", f"2-{'b' * 12} 1-{'a' * 12}")])
    with RawClient(broker.address) as first:
        first.connect("box", clean_start=False, expiry_s=600, properties=names)
        first.send(Publish("t", b"before", 2, packet_id=7))
        first.expect(Pubrec)
        backup = ("store", "backup", str(tmp_path / "backup"), "--data-dir", str(broker.data_dir))
        code, _, errors = run(*backup)
        assert code == 0, errors
    broker.stop()
    shutil.rmtree(broker.data_dir)
    restore = ("store", "restore", str(tmp_path / "backup"), "--data-dir", str(broker.data_dir))
    code, _, errors = run(*restore)
    assert code == 0, errors
    broker.start()
    with client(broker, "table", "t") as table, RawClient(broker.address) as again:
        told = again.connect("box", clean_start=False, expiry_s=600, properties=later)
        assert told.session_present
        again.send(Publish("t", b"after", 2, packet_id=7))
        again.expect(Pubrec)
        assert table.take_payloads(1) == [b"after"]
    wait_until_logged(broker, PARTED)


async def test_a_new_outbox_goes_on_with_the_session_of_the_one_that_was_deleted(
    broker: Broker, tmp_path: Path
) -> None:
    outbox = tmp_path / "outbox"
    with client(broker, "table", "heat") as table:
        await deliver(broker, outbox, b"1")
        shutil.rmtree(outbox)
        await deliver(broker, outbox, b"2")
        await deliver(broker, outbox, b"3")
        assert table.take_payloads(3) == [b"1", b"2", b"3"]
    assert broker.log().count(PARTED) == 1


async def test_an_outbox_of_another_installation_is_refused(broker: Broker, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    (tmp_path / "elsewhere").mkdir()
    with running_broker(tmp_path / "elsewhere") as elsewhere:
        await deliver(elsewhere, other, b"elsewhere")
    with client(broker, "table", "heat") as table:
        await deliver(broker, one, b"1")
        await deliver(broker, one, b"2")
        await refusal(broker, other, b"3")
        assert [packet.payload for packet in table.settle() if isinstance(packet, Publish)] == [
            b"1",
            b"2",
        ]


async def test_an_outbox_waits_until_an_operator_accepts_the_older_copy_of_its_broker(
    broker: Broker, tmp_path: Path
) -> None:
    outbox, copied = tmp_path / "outbox", tmp_path / "copy"
    await deliver(broker, outbox, b"1")
    broker.stop()
    shutil.copytree(broker.data_dir, copied)
    broker.start()
    await deliver(broker, outbox, b"2")
    await deliver(broker, outbox, b"3")
    broker.stop()
    put_back(copied, broker.data_dir)
    broker.start()
    with client(broker, "table", "heat") as table:
        await refusal(broker, outbox, b"4")
        fork(broker.data_dir)  # while it runs
        await deliver(broker, outbox, b"5")
        assert table.take_payloads(2) == [b"4", b"5"]
    assert broker.log().count(PARTED) == 1


def test_a_new_message_is_not_taken_for_one_that_an_accepted_copy_does_not_know(
    broker: Broker,
) -> None:
    """The session still holds its packet identifier: it was taken for a repeat, and lost."""
    names = Properties(user_properties=[("penstock-connection", f"1-{'a' * 12} 0-{'0' * 12}")])
    parted = f"1-{'b' * 12} 0-{'0' * 12} parted"
    with client(broker, "table", "t") as table:
        with RawClient(broker.address) as first:
            first.connect("box", clean_start=False, expiry_s=600, properties=names)
            first.send(Publish("t", b"before", 2, packet_id=7))
            assert isinstance(first.expect(Pubrec), Pubrec)  # and no PUBREL
        with RawClient(broker.address) as again:
            accepted = Properties(user_properties=[("penstock-connection", parted)])
            told = again.connect("box", clean_start=False, expiry_s=600, properties=accepted)
            assert told.session_present
            assert told.properties is not None
            user_properties = told.properties.user_properties or []
            assert ("penstock-connection", f"1-{'b' * 12} parted") in user_properties
            again.send(Publish("t", b"after", 2, packet_id=7))
            again.expect(Pubrec)
            assert table.take_payloads(2) == [b"before", b"after"]


@pytest.fixture
def bridged(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """A broker with a bridge, and the one to which it hands on what it gets."""
    for name in ("far", "near"):
        (tmp_path / name).mkdir()
    with running_broker(tmp_path / "far") as far:
        settings = with_bridges(bridge(far.address))
        with running_broker(tmp_path / "near", settings) as near:
            connected(near)
            yield near, far


@pytest.mark.parametrize("older", ["near", "far"])
def test_a_bridge_waits_until_an_operator_accepts_the_older_copy_of_either_end(
    bridged: tuple[Broker, Broker], tmp_path: Path, older: str
) -> None:
    near, far = bridged
    restored = near if older == "near" else far
    connect_twice(near)
    near.start()
    wait_for("the bridge", lambda: status_is_connected(near))
    restored.stop()
    shutil.copytree(restored.data_dir, tmp_path / "copy")
    for _ in range(2):
        restored.start()
        wait_for("the bridge", lambda: status_is_connected(near))
        restored.stop()
    put_back(tmp_path / "copy", restored.data_dir)
    restored.start()
    wait_for("the refusal", lambda: REFUSED in near.log())
    wait_for("the refusal at the other end", lambda: REFUSED in far.log())
    with client(far, "far", "out/#") as table, client(near, "near") as publisher:
        publisher.publish("out/1", b"waits", qos=2)
        assert [one for one in table.settle() if isinstance(one, Publish)] == []
        fork(restored.data_dir)
        assert table.take_payloads(1) == [b"waits"]
    wait_until_logged(near, PARTED)
    wait_until_logged(far, PARTED)


def connect_twice(near: Broker) -> None:
    """Let a bridge connect again with its session, under a name, and stop its broker."""
    connected(near)
    near.stop()
    near.start()
    wait_for("its session", lambda: "which has our session" in near.log())
    near.stop()


def status_is_connected(near: Broker) -> bool:
    """Whether the broker's bridge is connected."""
    with client(near, "asks", "$SYS/broker/bridge/up/state") as asking:
        return asking.take().payload == b"connected"


@pytest.mark.parametrize("copy", ["empty", "of another installation"])
def test_a_bridge_begins_anew_with_an_empty_store_and_is_refused_with_another_ones(
    bridged: tuple[Broker, Broker], tmp_path: Path, copy: str
) -> None:
    near, far = bridged
    connect_twice(near)
    shutil.rmtree(near.data_dir)
    if copy != "empty":
        for name in ("elsewhere", "other"):
            (tmp_path / name).mkdir()
        with running_broker(tmp_path / "elsewhere") as elsewhere:
            settings = with_bridges(bridge(elsewhere.address))
            with running_broker(tmp_path / "other", settings) as other:
                connect_twice(other)
        shutil.copytree(other.data_dir, near.data_dir)
    near.start()
    if copy == "empty":
        replaced = "keeps a session of penstock-up that is unknown here; it is replaced, and the"
        wait_for("its sentence", lambda: replaced in near.log())
        connected(near, times=3)
    else:
        wait_for("the refusal", lambda: REFUSED in near.log())
        fork(near.data_dir)
        connected(near, times=3)
    with client(far, "far", "out/#") as table, client(near, "near") as publisher:
        publisher.publish("out/1", b"new", qos=2)
        assert table.take_payloads(1) == [b"new"]


@pytest.mark.parametrize("copy", ["empty", "of another installation"])
def test_a_bridge_sends_what_it_has_to_a_remote_broker_that_knows_nothing_of_it(
    bridged: tuple[Broker, Broker], tmp_path: Path, copy: str
) -> None:
    near, far = bridged
    far.stop()
    shutil.rmtree(far.data_dir)
    if copy != "empty":
        (tmp_path / "other").mkdir()
        with running_broker(tmp_path / "other") as other:
            other.stop()
        shutil.copytree(other.data_dir, far.data_dir)
    with client(near, "near") as publisher:
        publisher.publish("out/1", b"waits", qos=2)
    far.start()
    with client(far, "far", "out/#", kept=True) as table:
        assert table.take_payloads(1) == [b"waits"]
    assert near.log().count("which begins a new session") == 2
