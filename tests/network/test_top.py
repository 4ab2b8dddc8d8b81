"""`penstock top` against a real broker: its screen, its plain lines, and both ways to ask."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("textual", reason="the extra top is not installed")

from textual.pilot import Pilot
from textual.widgets import Static

from penstock.cli.main import app
from penstock.cli.top.broker_api import AdminApi, BrokerApi, ControlSocket
from penstock.cli.top.poller import PollRequest
from penstock.cli.top.screens.app import TopApp
from penstock.cli.top.screens.client import ClientScreen
from penstock.control.metric_requests import Metrics, ReadMetrics
from penstock.control.ranking_requests import FlowDetails, Ranking, RankSessions, ShowFlow
from penstock.errors import ConfigError, PenstockError
from penstock.protocol import reasons
from penstock.protocol.packets import Puback
from penstock.protocol.properties import Properties
from tests.support.admin_http import get
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import Clients, running_broker

TOKEN = "operator-0123456789abcdef"
EVIL = "[red]\x1b[2J\u202eevil"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("top")
    file = directory / "tokens"
    file.write_text(f"ops:{TOKEN} operator\n")
    file.chmod(0o600)
    settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
    with running_broker(directory, settings) as started:
        yield started


@pytest.fixture(params=["control socket", "API"])
def api(broker: Broker, request: pytest.FixtureRequest) -> BrokerApi:
    if request.param == "API":
        get(broker, "/healthz")  # once it serves
        return AdminApi(broker.admin_url, TOKEN)
    return ControlSocket(broker.data_dir, "ops")


def hold_up(broker: Broker, clients: Clients, client_id: str, topic: str) -> None:
    """A client that acknowledges nothing, with one message in flight and two in its queue."""
    slow = clients.join(broker, client_id, properties=Properties(receive_maximum=1))
    slow.subscribe(topic, qos=1)
    publisher = clients.join(broker, f"{topic}-publisher")
    for number in range(3):
        publisher.publish(topic, str(number).encode())


def test_a_held_up_client_is_ranked_first_and_shown_place_by_place(
    broker: Broker, clients: Clients, name: str, api: BrokerApi
) -> None:
    hold_up(broker, clients, f"{name}-slow", name)
    ranking = api.ask(RankSessions("limited"), Ranking, DEADLINE_S)
    assert ranking.selected == 2
    first = ranking.entries[0]
    assert (first.client_id, first.limited_by[0].limit) == (f"{name}-slow", "window")
    assert (first.window, first.window_size, first.queue) == (1, 1, 2)
    flow = api.ask(ShowFlow(f"{name}-slow"), FlowDetails, DEADLINE_S)
    assert (flow.places, flow.places_by_state["a"]) == ("a", 1)
    assert flow.queue_by_priority == {"0": 2}
    assert flow.filters == [name]
    missing: object = api.ask(ShowFlow("nobody"), FlowDetails | None, DEADLINE_S)  # type: ignore[arg-type]
    assert missing is None
    assert api.ask(ReadMetrics(), Metrics, DEADLINE_S).samples["disk_free_bytes"]


def test_bytes_of_a_client_have_a_rate_from_the_second_look_on(
    broker: Broker, clients: Clients, name: str
) -> None:
    api = ControlSocket(broker.data_dir, "ops")
    busy = clients.join(broker, name)
    clients.join(broker, f"{name}-idle")

    def rates() -> dict[str, float]:
        found = api.ask(RankSessions("rate"), Ranking, DEADLINE_S).entries
        return {one.client_id: one.received_bytes_per_s for one in found}

    assert rates()[name] == 0.0
    busy.publish(name, bytes(10_000))
    wait_for("a rate", lambda: rates()[name] > 0)
    (first, *_) = api.ask(RankSessions("rate"), Ranking, DEADLINE_S).entries
    assert first.client_id == name
    assert first.received_bytes > 10_000


def test_refusals_are_sentences(broker: Broker, api: BrokerApi) -> None:
    with pytest.raises(PenstockError, match="a ranking has 1 to 1000 entries, not 0"):
        api.ask(RankSessions(limit=0), Ranking, DEADLINE_S)
    get(broker, "/healthz")
    with pytest.raises(PenstockError, match="the token or the user name and password are wrong"):
        AdminApi(broker.admin_url, "wrong").ask(RankSessions(), Ranking, DEADLINE_S)
    with pytest.raises(ConfigError, match="--url must be an address such as"):
        AdminApi("broker", TOKEN)


def test_plain_lines_and_objects_are_for_pipes(broker: Broker, clients: Clients, name: str) -> None:
    hold_up(broker, clients, f"{name}{EVIL}", name)
    where = ("--data-dir", str(broker.data_dir), "--every", "0.5")
    told = CliRunner().invoke(app, ["top", "--batch", "-n", "1", *where])
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert "store works" in lines[1]
    assert "connected of" in lines[2]
    assert lines[3].startswith("in ")
    assert "msg/s" in lines[3]
    assert lines[8].split()[:3] == ["client", "limited", "by▼"]
    assert f"{name}[red]\\u001b[2J\\u202eevil" in lines[9]
    assert "window full" in lines[9]
    told = CliRunner().invoke(app, ["top", "--json", "-n", "2", "--by", "queue", *where])
    first, second = (json.loads(line) for line in told.stdout.splitlines())
    assert first["clients"][0]["client_id"] == f"{name}{EVIL}"
    assert second["rates"]["commits_per_s"] >= 0
    assert second["metrics"]["store_works"] == 1


def test_without_a_broker_or_a_terminal_it_says_what_to_do(tmp_path: Path) -> None:
    for words, sentence in (
        (["--batch", "--data-dir", str(tmp_path / "none")], "there is no such directory"),
        (["--by", "size"], "--by must be one of limited, rate"),
        (["--url", "http://127.0.0.1:1"], "the API needs a token"),
        (["--data-dir", str(tmp_path)], "the screen needs a terminal"),
    ):
        told = CliRunner().invoke(app, ["top", *words])
        assert sentence in str(told.exception)


# -- the screen ------------------------------------------------------------------------------


async def until(pilot: Pilot[None], what: str, condition: Callable[[], bool]) -> None:
    """Wait for what the screen shows, while it runs."""
    ends_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_s, f"{what} never came"
        await pilot.pause(0.02)


def shown(screen: TopApp) -> str:
    """All that the screen shows, as text."""
    return "\n".join(strip.text for strip in screen.screen._compositor.render_strips())


async def test_the_screen_shows_clients_and_one_of_them_and_kicks_it(
    broker: Broker, clients: Clients, name: str
) -> None:
    hold_up(broker, clients, f"{name}{EVIL}", name)
    other = clients.join(broker, f"{name}-other")
    screen = TopApp(ControlSocket(broker.data_dir, "ops"), PollRequest(), 0.2)
    async with screen.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, "the table", lambda: "window full" in shown(screen))
        text = shown(screen)
        assert "store works" in text
        assert f"{name}[red]"[:12] in text  # no markup, and cut where it is too long
        assert "\x1b" not in text
        await until(pilot, "rates", lambda: "commits/s" in shown(screen))

        await pilot.press("enter")
        await until(pilot, "the client", lambda: "PUBACK due 1" in shown(screen))
        text = shown(screen)
        assert f"{name}[red]\\u001b[2J\\u202eevil" in text
        assert "2 of 1k" in text
        await pilot.press("w")
        await until(pilot, "the reason", lambda: "likeliest" in shown(screen))
        await pilot.press("escape")
        await until(pilot, "the table", lambda: not isinstance(screen.screen, ClientScreen))

        await pilot.press("slash", *f"{name}-other", "enter")
        await until(pilot, "one client", lambda: screen._client_ids == [f"{name}-other"])
        await pilot.press("k", *"moved", "enter")
        farewell = other.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
        assert farewell.properties is not None
        assert farewell.properties.reason_string == "moved"
        await until(pilot, "what was done", lambda: "disconnected" in shown(screen))
        await pilot.press("s")
        await until(pilot, "another order", lambda: "by bytes a second" in shown(screen))
        await pilot.press("p")
        await until(pilot, "the pause", lambda: "PAUSED" in shown(screen))
        await pilot.press("question_mark")
        await until(pilot, "the keys", lambda: "the next measure" in shown(screen))
        await pilot.press("escape", "q")


async def test_a_broker_that_goes_away_is_told_and_found_again(tmp_path: Path) -> None:
    with running_broker(tmp_path) as away:
        screen = TopApp(ControlSocket(away.data_dir, "ops"), PollRequest(), 0.2)
        async with screen.run_test(size=(80, 24)) as pilot:
            head = screen.query_one("#head", Static)
            await until(pilot, "the head", lambda: "store works" in str(head.render()))
            away.kill()
            await until(pilot, "no answer", lambda: "NO ANSWER" in str(head.render()))
            away.start()
            await until(pilot, "an answer", lambda: "NO ANSWER" not in str(head.render()))
            assert "store works" in str(head.render())


def test_an_acknowledgement_ends_what_held_a_client_up(
    broker: Broker, clients: Clients, name: str
) -> None:
    api = ControlSocket(broker.data_dir, "ops")
    hold_up(broker, clients, name, f"{name}t")
    slow = clients._opened[0]
    for _ in range(3):
        slow.send(Puback(slow.take().packet_id))

    def is_free() -> bool:
        found = api.ask(ShowFlow(name), FlowDetails, DEADLINE_S)
        return not found.limited_by and found.limits[0].times == 1 and found.queue == 0

    wait_for("it to be free", is_free)
