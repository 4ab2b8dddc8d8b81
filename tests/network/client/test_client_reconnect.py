"""The client dials again: its status, its pauses, its session, and what came while it was away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from penstock.client.options import Version
from penstock.errors import ConnectFailed
from penstock.protocol import reasons
from penstock.protocol.kinds import CONNECT, SUBACK, SUBSCRIBE
from tests.support.broker import Broker
from tests.support.deadline import until
from tests.support.fake_server import FakeServer, connack, only_to
from tests.support.faulty_client import Stati, dropped, hit, opened, proxied, watching
from tests.support.fixtures import Clients
from tests.support.mosquitto_broker import Mosquitto, needed
from tests.support.seen_packets import DOWN, UP

each_version = pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])


# -- status and pauses -----------------------------------------------------------------------


async def test_each_change_is_told(shared_broker: Broker, name: str) -> None:
    stati = Stati()
    with proxied(shared_broker.address) as proxy:
        async with opened(proxy.address, client_id=name, status_changed=stati) as client:
            proxy.refuse()
            await dropped(client, proxy.reset)
            await until("three failures", lambda: client.status.attempt >= 3)
            proxy.accept()
            await until("the connection", lambda: client.is_connected)
            assert client.status.attempt == 0
            assert client.status.error == ""
    assert stati.states[:4] == ["dialling", "connected", "waiting", "dialling"]
    assert stati.states[-2:] == ["connected", "closed"]
    assert set(stati.states[2:-2]) == {"waiting", "dialling"}
    attempts = [status.attempt for status in stati.of("dialling")]
    assert attempts == [1, *range(1, len(attempts))]
    waiting = stati.of("waiting")
    assert all(status.pause_s > 0 and status.error for status in waiting)
    assert "Connection refused" in waiting[-1].error
    assert all(status.url.endswith(f":{proxy.address[1]}") for status in stati.all)


async def test_the_pause_doubles_up_to_the_longest() -> None:
    """Give or take a quarter; a failure to connect at first is no different."""
    stati = Stati()
    async with opened(
        ("127.0.0.1", 1),
        waits_for_connection=False,
        status_changed=stati,
        reconnect_s_min=0.01,
        reconnect_s_max=0.08,
    ) as client:
        await until("six failures", lambda: len(stati.of("waiting")) >= 6)
        assert not client.is_connected
    pauses = [status.pause_s for status in stati.of("waiting")][:6]
    for pause_s, wanted_s in zip(pauses, [0.01, 0.02, 0.04, 0.08, 0.08, 0.08], strict=True):
        assert 0.75 * wanted_s <= pause_s <= 1.25 * wanted_s
    assert [status.attempt for status in stati.of("waiting")][:6] == [1, 2, 3, 4, 5, 6]


REFUSALS: Final = [
    pytest.param("5", reasons.BAD_USER_NAME_OR_PASSWORD, True, id="5-bad password"),
    pytest.param("5", reasons.NOT_AUTHORIZED, True, id="5-not authorized"),
    pytest.param("5", reasons.BANNED, True, id="5-banned"),
    pytest.param("5", reasons.SERVER_BUSY, False, id="5-busy"),
    pytest.param("5", reasons.SERVER_UNAVAILABLE, False, id="5-unavailable"),
    pytest.param("3.1.1", 4, True, id="3.1.1-bad password"),
    pytest.param("3.1.1", 5, True, id="3.1.1-not authorized"),
    pytest.param("3.1.1", 3, False, id="3.1.1-unavailable"),
    pytest.param("3.1", 4, True, id="3.1-bad password"),
]


@pytest.mark.parametrize(("version", "code", "is_longest"), REFUSALS)
async def test_a_refused_login_waits_the_longest(
    version: Version, code: int, is_longest: bool
) -> None:
    """Only a person can mend it; a server that is busy is asked again soon."""
    async with (
        FakeServer(only_to(CONNECT, connack(code, version))) as server,
        opened(
            server.address, version=version, waits_for_connection=False, reconnect_s_max=500.0
        ) as client,
    ):
        await until("the refusal", lambda: client.status.state == "waiting")
        status = client.status
        assert (status.pause_s > 300) == is_longest
        assert "the server refused" in status.error
        assert status.reason_code >= 0x80
        client.connect_now()
        await until("another attempt", lambda: server.connections > 1)


async def test_a_refused_login_is_an_error_at_first() -> None:
    refusal = connack(reasons.BAD_USER_NAME_OR_PASSWORD)
    async with FakeServer(only_to(CONNECT, refusal)) as server:
        with pytest.raises(ConnectFailed, match="bad user name or password") as failed:
            async with opened(server.address, username="a", password="wrong"):
                pass
        assert failed.value.reason == reasons.BAD_USER_NAME_OR_PASSWORD
        assert b"wrong" in server.seen[0].raw


@needed
async def test_a_password_that_mosquitto_refuses(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    refusing = Mosquitto(tmp_path, f"password_file {passwords}\n")
    try:
        refusing.start()
        async with opened(
            refusing.address,
            username="a",
            password="b",
            reconnect_s_max=500.0,
            waits_for_connection=False,
        ) as client:
            await until("the refusal", lambda: client.status.reason_code >= 0x80)
            await until("the pause", lambda: client.status.state == "waiting")
            assert client.status.pause_s > 300
    finally:
        refusing.close()


async def test_connect_now_ends_a_pause(shared_broker: Broker, name: str) -> None:
    with proxied(shared_broker.address) as proxy:
        async with opened(
            proxy.address, client_id=name, reconnect_s_min=500.0, reconnect_s_max=500.0
        ) as client:
            await dropped(client, proxy.reset)
            await until("the pause", lambda: client.status.state == "waiting")
            client.connect_now()
            await until("the connection", lambda: client.is_connected)


# -- the session -----------------------------------------------------------------------------


@each_version
async def test_messages_that_came_while_away_arrive(
    shared_broker: Broker, name: str, version: Version
) -> None:
    """QoS 1 and 2 once each, in order; it subscribed once."""
    wanted = [str(number) for number in range(20)]
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(
                proxy.address, name, client_id=name, version=version, session_expiry_s=60
            ) as watcher,
            opened(shared_broker.address) as sending,
        ):
            proxy.refuse()
            await dropped(watcher.client, proxy.reset)
            for text in wanted:
                await sending.publish(name, text, 1 + int(text) % 2)
            proxy.accept()
            await watcher.has(*wanted)
            assert watcher.texts == wanted
            if version != "3.1":  # CONNACK does not say that there is a session: it asks again
                assert len(proxy.passed(UP, SUBSCRIBE)) == 1


async def test_a_message_that_came_between_two_programs_arrives(
    shared_broker: Broker, name: str
) -> None:
    async with opened(shared_broker.address) as sending:
        async with opened(shared_broker.address, client_id=name, session_expiry_s=60) as first:
            await first.subscribe(name, qos=2)
        await sending.publish(name, "between", 2)
        async with opened(shared_broker.address, client_id=name, session_expiry_s=60) as second:
            assert second.connack is not None
            assert second.connack.session_present
            message = await anext(second.messages())
            assert (message.text, message.duplicate) == ("between", False)


@each_version
async def test_a_server_that_lost_the_session_is_subscribed_to_again(
    shared_broker: Broker, clients: Clients, name: str, version: Version
) -> None:
    """Another client took the identifier and began clean while this one was away."""
    with proxied(shared_broker.address) as proxy:
        async with (
            opened(proxy.address, client_id=name, version=version, session_expiry_s=60) as client,
            opened(shared_broker.address) as sending,
        ):
            await client.subscribe(f"{name}/a", f"{name}/b")
            await client.subscribe(f"{name}/c", qos=2)
            await client.unsubscribe(f"{name}/b")
            proxy.refuse()
            await dropped(client, proxy.reset)
            clients.join(shared_broker, name).drop()
            proxy.accept()
            await until("SUBSCRIBE answered", lambda: len(proxy.passed(DOWN, SUBACK)) == 3)
            for topic, qos in (("a", 1), ("b", 1), ("c", 2)):
                await sending.publish(f"{name}/{topic}", topic, qos)
            messages = client.messages()
            came = [(one.text, one.qos) for one in [await anext(messages), await anext(messages)]]
            assert came == [("a", 1), ("c", 2)]


@each_version
async def test_a_connection_that_breaks_before_it_has_subscribed_again(
    shared_broker: Broker, clients: Clients, name: str, version: Version
) -> None:
    """The next one finds a session, a new one without subscriptions: it is not to be trusted."""
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(
                proxy.address, name, client_id=name, version=version, session_expiry_s=60
            ) as watcher,
            opened(shared_broker.address) as sending,
        ):
            proxy.refuse()
            await dropped(watcher.client, proxy.reset)
            clients.join(shared_broker, name).drop()
            cut = proxy.cut_before(UP, SUBSCRIBE)
            proxy.accept()
            await hit(cut)
            await until("SUBACK", lambda: len(proxy.passed(DOWN, SUBACK)) == 2)
            await sending.publish(name, "arrives", 1)
            await watcher.has("arrives")


async def test_a_subscription_asked_for_while_away_is_asked_for_later(
    shared_broker: Broker, name: str
) -> None:
    with proxied(shared_broker.address) as proxy:
        async with opened(proxy.address, client_id=name) as client:
            proxy.refuse()
            await dropped(client, proxy.reset)
            asking = asyncio.create_task(client.subscribe(f"{name}/+", qos=2))
            ending = asyncio.create_task(client.unsubscribe(f"{name}/other"))
            await asyncio.sleep(0)
            proxy.accept()
            assert await asking == [2]
            assert await ending == [0x11]


@pytest.mark.parametrize("kind", [SUBSCRIBE, SUBACK], ids=["SUBSCRIBE", "SUBACK"])
async def test_a_subscription_whose_connection_breaks_is_asked_for_again(
    shared_broker: Broker, name: str, kind: int
) -> None:
    with proxied(shared_broker.address) as proxy:
        async with opened(proxy.address, client_id=name) as client:
            proxy.cut_before(UP if kind == SUBSCRIBE else DOWN, kind, times=2)
            assert await client.subscribe(name, qos=2) == [2]
            await client.publish(name, "x", 2)
            assert (await anext(client.messages())).text == "x"
            assert proxy.connections == 3
