"""Names that clients choose, on an operator's terminal and in the log of a real broker."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import pytest

from penstock.client import Client
from penstock.errors import ConnectFailed
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Disconnect, Publish
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import NOT_AUTHORIZED, USE_ANOTHER_SERVER
from tests.support.bridged import bridge
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, until, wait_for
from tests.support.fake_server import FakeServer, connack
from tests.support.fixtures import Clients, running_broker
from tests.support.pseudo_terminal import HOSTILE, on_a_terminal, what_is_obeyed

PENSTOCK: Final = (sys.executable, "-m", "penstock")
LONG: Final = "\u202e" + "\x1b[2J" * 15_000
LINE_CHARACTERS_MAX: Final = 128 * 6 * 3 + 1024  # three names, all of it escapes, and the rest
SHOWN: Final = "[bold]\\u202eb"


@pytest.mark.torture("starts twenty commands; test_operating has one")
def test_a_name_that_a_client_chose_does_nothing_on_a_terminal(
    own_broker: Broker, clients: Clients
) -> None:
    reader = clients.join(own_broker, HOSTILE, expiry_s=1000)
    reader.subscribe(f"{HOSTILE}/#")
    said = Properties(user_properties=[(HOSTILE, HOSTILE)], content_type=HOSTILE)
    clients.join(own_broker, "p").publish(
        f"{HOSTILE}/t", HOSTILE.encode(), 1, retain=True, properties=said
    )
    here = ("--data-dir", str(own_broker.data_dir))
    there = ("-h", own_broker.host, "-p", str(own_broker.port))
    heard = ("sub", *there, "-t", f"{HOSTILE}/t", "-C", "1", "-i", f"{HOSTILE}2")
    commands: list[tuple[str, ...]] = [
        ("bans", "add", "client", f"{HOSTILE}3", "--why", HOSTILE, *here),
        ("bans", "list", *here),
        ("clients", "list", *here),
        ("clients", "show", HOSTILE, *here),
        ("clients", "show", f"{HOSTILE}?", *here),
        ("sessions", "list", *here),
        ("retained", "list", *here),
        ("retained", "show", f"{HOSTILE}/t", *here),
        ("retained", "show", f"{HOSTILE}/x", *here),
        ("flow", "--broker", f"{own_broker.host}:{own_broker.port}"),
        (*heard, "-v"),
        (*heard, "-F", "%t %p %P %C"),
        (*heard, "-T", f"{HOSTILE}/#/x"),
        (*heard, "-d"),
    ]
    for command in commands:
        shown = on_a_terminal([*PENSTOCK, *command])
        assert what_is_obeyed(shown) == "", command
        assert SHOWN in shown, (command, shown)
    shown = on_a_terminal([*PENSTOCK, *heard, "-F", "\\e[92m%p\\e[0m \\a"])
    assert "\x1b[92ma\\u001b[2J" in shown  # colours of the user's own, as with mosquitto_sub
    assert what_is_obeyed(shown) == "\a"
    commands = [
        ("clients", "list", "--json", *here),
        ("clients", "show", HOSTILE, "--json", *here),
        ("retained", "list", "--json", *here),
        ("flow", "--json", "--broker", f"{own_broker.host}:{own_broker.port}"),
        (*heard, "--json"),
        (*heard, "-F", "%j"),
    ]
    for command in commands:
        shown = on_a_terminal([*PENSTOCK, *command])
        assert what_is_obeyed(shown) == "", command
        told = [text for line in shown.splitlines() for text in _strings(json.loads(line))]
        assert any(HOSTILE in text for text in told), command


@pytest.mark.parametrize("command", ["pub", "sub"])
async def test_a_reason_string_of_a_server_does_nothing_on_a_terminal(command: str) -> None:
    why = Properties(reason_string=HOSTILE + 60_000 * "x")
    async with FakeServer(lambda _: connack(NOT_AUTHORIZED, properties=why)) as server:
        asked = [*PENSTOCK, command, "-p", str(server.address[1]), "-t", "t"]
        if command == "pub":
            asked += ["-m", "x"]
        shown = await asyncio.to_thread(on_a_terminal, asked)
    assert what_is_obeyed(shown) == ""
    assert SHOWN in shown
    assert len(shown) < 1000


async def test_a_text_of_a_server_is_cut_and_escaped_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To a bridge, and to a client in a program whose handlers are its own."""
    why = Properties(reason_string=LONG, server_reference=LONG)
    for code in (NOT_AUTHORIZED, USE_ANOTHER_SERVER):
        async with FakeServer(lambda _: connack(code, properties=why)) as server:  # noqa: B023
            remote = json.dumps([bridge(server.address)])
            with running_broker(tmp_path, {"bridge.remotes": remote}, "memory") as broker:
                said = reasons.name_of(code)
                await until("the refusal", lambda: said in broker.log())  # noqa: B023
                _check(broker.log())
            with caplog.at_level("DEBUG", "penstock"), pytest.raises(ConnectFailed):
                async with Client(f"mqtt://127.0.0.1:{server.address[1]}"):
                    pass
    _check("\n".join(caplog.messages))


@pytest.mark.parametrize(
    "form", ["text", pytest.param("json", marks=pytest.mark.torture("the same in another form"))]
)
def test_no_line_of_the_log_is_a_clients(tmp_path: Path, clients: Clients, form: str) -> None:
    """60,000 characters with what a terminal obeys, wherever a client may name something."""
    users = tmp_path / "users"
    users.write_text("")
    settings = {"log.format": form, "limits.max_mqueue_len": 1, "limits.messages_per_s_max": 1}
    with running_broker(tmp_path, settings) as broker:
        own_name = clients.join(broker, LONG, expiry_s=1000)
        own_name.subscribe(f"{LONG}/#")
        clients.join(broker, LONG, expiry_s=1000, present=True, clean_start=False).drop()
        other = clients.join(broker, "p")
        for _ in range(5):
            other.publish(f"{LONG}/t", b"", 1)  # dropped: the queue is full
        _misbehave(broker, clients)
        wait_for("what was dropped", lambda: "dropped" in broker.log())
    _check(broker.log())
    users.write_text("")
    with running_broker(tmp_path, {"log.format": form, "access.password_file": users}) as broker:
        for name in (LONG, f"{LONG}2"):
            client = clients.open(broker)
            client.send(Connect(LONG, V5, True, 0, None, name, b"wrong"))
            assert client.expect(Connack).reason_code != 0
        wait_for("the refusal", lambda: broker.log().count("CONNECT refused"))
    _check(broker.log())


def _misbehave(broker: Broker, clients: Clients) -> None:
    """Break the protocol in ways that name something: of this every line tells."""
    for packet in (
        Connect(LONG, V5),
        Publish(f"{LONG}/#", b""),
        Connack(0, False, Properties(reason_string=LONG)),
        Disconnect(0, Properties(reason_string=LONG, server_reference=LONG)),
    ):
        client = clients.join(broker, f"{LONG}{packet.__class__.__name__}")
        client.send(packet)
        assert client.has_ended(DEADLINE_S)


def _check(log: str) -> None:
    lines = log.splitlines()
    assert [line for line in lines if not line.isprintable()] == []
    assert max(map(len, lines)) < LINE_CHARACTERS_MAX, max(lines, key=len)
    assert any("\\u001b[2J" in line for line in lines)


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.items() for part in one for text in _strings(part)]
    if isinstance(value, list):
        return [text for one in value for text in _strings(one)]
    return [value] if isinstance(value, str) else []
