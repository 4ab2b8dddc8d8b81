"""What an operator sees and does through the control socket of a real broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.cli.operator_commands import operator_name
from penstock.control.admin_requests import ListSessions, Page
from penstock.control.client import BrokerUnreachable, ask
from penstock.errors import ConfigError
from penstock.protocol import reasons
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients


def operate(broker: Broker, *words: str) -> Result:
    result = CliRunner().invoke(app, [*words, "--data-dir", str(broker.data_dir)])
    assert result.exception is None or result.exit_code, result.output
    return result


def objects(broker: Broker, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in operate(broker, *words, "--json").stdout.splitlines()]


def names(found: list[dict[str, object]]) -> list[object]:
    return [one["client_id"] for one in found]


def test_clients_are_listed_by_filters_and_in_pages(own_broker: Broker, clients: Clients) -> None:
    for number in range(5):
        clients.join(own_broker, f"m-{number}")
    clients.join(own_broker, "other", 4)
    assert names(objects(own_broker, "clients", "list", "--client", "m-*")) == [
        f"m-{number}" for number in range(5)
    ]
    assert len(objects(own_broker, "clients", "list", "--address", "127.0.0.0/8")) == 6
    assert objects(own_broker, "clients", "list", "--address", "10.0.0.0/8") == []
    assert objects(own_broker, "clients", "list", "--older-than", "1d") == []
    assert len(objects(own_broker, "clients", "list", "--user", "")) == 6
    page = operate(own_broker, "clients", "list", "--limit", "4")
    assert "there are more: --cursor " in page.stderr
    cursor = page.stderr.split()[-1]
    assert names(objects(own_broker, "clients", "list", "--cursor", cursor)) == ["m-4", "other"]


def test_one_client_is_shown_whole(own_broker: Broker, clients: Clients) -> None:
    client = clients.join(own_broker, "one")
    client.subscribe("a/+")
    (told,) = objects(own_broker, "clients", "show", "one")
    assert told["version"] == 5
    assert str(told["address"]).startswith("127.0.0.1:")
    assert told["subscriptions"] == 1
    shown = operate(own_broker, "clients", "show", "one").stdout
    assert "a/+" in shown
    assert operate(own_broker, "clients", "show", "nobody").exit_code != 0


def test_a_kicked_client_is_told_and_its_session_stays(
    own_broker: Broker, clients: Clients
) -> None:
    """MQTT 5 §3.14.2.1: 0x98 administrative action."""
    client = clients.join(own_broker, "k", expiry_s=100)
    operate(own_broker, "clients", "kick", "k", "--why", "maintenance")
    farewell = client.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
    assert farewell.properties is not None
    assert farewell.properties.reason_string == "maintenance"
    assert names(objects(own_broker, "sessions", "list", "--away")) == ["k"]


def test_removed_sessions_are_gone_after_a_restart_too(
    own_broker: Broker, clients: Clients
) -> None:
    for number in range(3):
        clients.join(own_broker, f"away-{number}", expiry_s=1000).drop()
    clients.join(own_broker, "here", expiry_s=1000)
    wait_for(
        "three to be away", lambda: len(objects(own_broker, "sessions", "list", "--away")) == 3
    )
    chosen = ("sessions", "remove", "--client", "*-[01]")
    assert "2 sessions would be removed" in operate(own_broker, *chosen, "--dry-run").stdout
    refused = operate(own_broker, *chosen)  # nobody is there to be asked
    assert refused.exit_code != 0
    assert "removed 2 sessions" in operate(own_broker, *chosen, "--yes").stdout
    own_broker.restart()
    assert set(names(objects(own_broker, "sessions", "list"))) == {"away-2", "here"}


@pytest.mark.torture("sessions are removed by a pattern above")
def test_one_session_is_removed_by_its_name(own_broker: Broker, clients: Clients) -> None:
    clients.join(own_broker, "a*", expiry_s=1000).drop()
    clients.join(own_broker, "ab", expiry_s=1000)
    wait_for("one to be away", lambda: len(objects(own_broker, "sessions", "list", "--away")) == 1)
    remove = ("sessions", "remove")
    assert "removed 1 sessions" in operate(own_broker, *remove, "a*", "--yes").stdout
    assert names(objects(own_broker, "sessions", "list")) == ["ab"]
    assert operate(own_broker, *remove, "ab", "--yes").exit_code != 0
    assert operate(own_broker, *remove, "ab", "--client", "x").exit_code != 0
    assert "removed 1" in operate(own_broker, *remove, "ab", "--connected", "--yes").stdout
    said = f"{operator_name(os.environ)} removed 1 sessions (client 'ab', connected)"
    wait_for("the log line", lambda: said in own_broker.log())


def test_a_command_that_no_broker_answers_says_why(own_broker: Broker, tmp_path: Path) -> None:
    def said(directory: Path) -> str:
        with pytest.raises(BrokerUnreachable) as caught:
            ask(directory, ListSessions(), Page)
        return str(caught.value)

    assert "there is no such directory" in said(tmp_path / "elsewhere")
    assert "it has no socket 'control'" in said(tmp_path)
    own_broker.kill()
    assert said(own_broker.data_dir).endswith("Connection refused; is it running?")


@pytest.mark.torture("one more broker")
def test_a_request_that_is_no_text_is_a_mistake(own_broker: Broker) -> None:
    """Arguments are bytes, and a shell passes on any."""
    result = operate(own_broker, "clients", "list", "--client", "\udcff*")
    assert isinstance(result.exception, ConfigError)


def test_retained_messages_are_listed_shown_and_cleared(
    own_broker: Broker, clients: Clients
) -> None:
    client = clients.join(own_broker, "p")
    for number in range(3):
        client.publish(f"r/{number}", b"v%d" % number, 1, retain=True)
    assert [one["topic"] for one in objects(own_broker, "retained", "list", "r/+")] == [
        "r/0",
        "r/1",
        "r/2",
    ]
    page = operate(own_broker, "retained", "list", "--limit", "2")
    rest = objects(own_broker, "retained", "list", "--cursor", page.stderr.split()[-1])
    assert [one["topic"] for one in rest] == ["r/2"]
    assert operate(own_broker, "retained", "show", "r/1").stdout == "v1"
    operate(own_broker, "retained", "clear", "r/1", "--yes")
    own_broker.restart()
    assert [one["topic"] for one in objects(own_broker, "retained", "list")] == ["r/0", "r/2"]


def test_a_payload_on_a_terminal_does_nothing(own_broker: Broker, clients: Clients) -> None:
    clients.join(own_broker, "p").publish("t", b"a\x1b[2Jb", 1, retain=True)
    show = ["retained", "show", "t", "--data-dir", str(own_broker.data_dir)]
    controlling, terminal = os.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "penstock", *show],
            env=environment(),
            stdout=terminal,
            timeout=DEADLINE_S,
            check=True,
        )
        assert os.read(controlling, 100) == b"a\\u001b[2Jb"
    finally:
        os.close(controlling)
        os.close(terminal)


def test_a_broker_that_is_emptied_sends_clients_elsewhere(
    own_broker: Broker, clients: Clients
) -> None:
    """MQTT 5 §4.11; older versions are closed."""
    new, old = clients.join(own_broker, "new"), clients.join(own_broker, "old", 4)
    operate(own_broker, "clients", "drain", "--to", "other.example", "--moved")
    farewell = new.expect_disconnect(reasons.SERVER_MOVED)
    assert farewell.properties is not None
    assert farewell.properties.server_reference == "other.example"
    old.expect_end()
    answer = clients.open(own_broker).connect("late")
    assert answer.reason_code == reasons.SERVER_MOVED
    (state,) = objects(own_broker, "clients", "drain", "--status")
    assert (state["sent_away"], state["refused"], state["left"]) == (2, 1, 0)
    operate(own_broker, "clients", "drain", "--end")
    clients.join(own_broker, "again")


@pytest.mark.torture("one more broker; test_admin_actions checks the name")
def test_the_other_server_has_a_name_that_can_be_told(own_broker: Broker, clients: Clients) -> None:
    """One that is no string of MQTT would end every tick of the broker with an error."""
    here = clients.join(own_broker, "here")
    for name in ("x" * 1001, "other.example\n"):
        assert operate(own_broker, "clients", "drain", "--to", name).exit_code != 0
    assert here.publish("t", b"x", 1) == reasons.NO_MATCHING_SUBSCRIBERS


def test_the_socket_is_its_owners_alone(own_broker: Broker) -> None:
    assert Path(own_broker.data_dir / "control").stat().st_mode & 0o777 == 0o600


def test_bans_are_made_listed_and_lifted(own_broker: Broker, clients: Clients) -> None:
    """MQTT 5 §3.2.2.2: 0x8A banned."""
    victim = clients.join(own_broker, "victim")
    operate(own_broker, "clients", "kick", "victim", "--ban", "1h")
    victim.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
    assert clients.open(own_broker).connect("victim").reason_code == reasons.BANNED
    other = clients.join(own_broker, "o*r")
    added = operate(own_broker, "bans", "add", "client", "o*r", "--kick", "--why", "noise")
    assert "disconnected 1" in added.stdout
    other.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
    found = objects(own_broker, "bans", "list")
    assert [(one["value"], one["left_s"] is None) for one in found] == [
        ("victim", False),
        ("o*r", True),
    ]
    assert "noise" in operate(own_broker, "bans", "show", "client", "o*r").stdout
    assert operate(own_broker, "bans", "lift", "client", "victim").exit_code == 0
    clients.join(own_broker, "victim")
    assert operate(own_broker, "bans", "add", "address", "nowhere").exit_code != 0
    assert operate(own_broker, "bans", "lift", "user", "nobody").exit_code != 0
