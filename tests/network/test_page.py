"""The page of operators in a real browser: what a person sees, and what each role may press."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")
pytest.importorskip("prometheus_client", reason="the extra admin is not installed")

from penstock.protocol import reasons
from tests.support.broker import Broker
from tests.support.browser import Tab, chromium, open_tab
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker
from tests.support.operators import PASSWORD, with_operators

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

HOSTILE = "<img src=x onerror=document.title='owned'>\u202egpj"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("page")
    settings = with_operators(directory) | {"events.enabled": "true"}
    with running_broker(directory, settings, stream=True) as started:
        yield started


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with open_tab(tmp_path) as opened:
        yield opened


def log_in(tab: Tab, broker: Broker, user: str) -> None:
    tab.open(broker.admin_url)
    tab.wait_for_text("Log in")
    tab.fill("user", user)
    tab.fill("password", PASSWORD)
    tab.press("Log in", "form")
    tab.wait_for_text(f"{user} (")


def go_to(tab: Tab, view: str) -> None:
    tab.run(f"location.hash = '#{view}'")


def test_an_operator_sees_a_client_and_disconnects_it_and_the_event_says_who(
    tab: Tab, broker: Broker, clients: Clients
) -> None:
    press = clients.join(broker, "press-7")
    clients.join(broker, HOSTILE)
    log_in(tab, broker, "olga")
    tab.wait_for_text("Ready for clients")
    go_to(tab, "clients")
    tab.wait_for_text("press-7")
    tab.wait_for_text("<img src=x onerror=document.title='owned'>\\u202egpj")
    go_to(tab, "client/press-7")
    tab.press("Disconnect…", "main")
    tab.fill("why", "maintenance")
    tab.press("Disconnect", "dialog")
    farewell = press.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
    assert farewell.properties is not None
    assert farewell.properties.reason_string == "maintenance"
    tab.wait_for_text("1 disconnected")
    go_to(tab, "events")

    def is_told() -> bool:
        tab.press("List", "main")
        shown = tab.run("document.querySelector('main').innerText")
        return "kick" in shown and "olga at 127.0.0.1 (page)" in shown

    wait_for("the event", is_told)
    assert "owned" not in tab.run("document.title")
    assert [one for one in tab.complaints if "404" not in one] == [], "it breaks no rule of its own"


def test_a_state_from_before_the_broker_hung_or_ended_is_not_shown_as_true(
    tab: Tab, tmp_path: Path
) -> None:
    """The checks stayed green: "Ready for clients"."""
    with running_broker(tmp_path, with_operators(tmp_path)) as own:
        log_in(tab, own, "victor")
        tab.wait_for_text("Ready for clients")
        tab.wait_for_text("0 forks, 0 damaged blocks")
        os.kill(own.process.pid, signal.SIGSTOP)
        try:
            tab.wait_for_text("Not ready")
            tab.wait_for_text("the broker did not answer for 2 s")
        finally:
            os.kill(own.process.pid, signal.SIGCONT)
        tab.wait_for_text("Ready for clients")
    tab.wait_for_text("No answer")
    assert not tab.run("document.body.innerText.includes('Ready for clients')")


def test_a_viewer_has_no_buttons_that_act_and_what_it_sends_is_refused(
    tab: Tab, broker: Broker, clients: Clients
) -> None:
    clients.join(broker, "press-8")
    log_in(tab, broker, "victor")
    for view, text in (
        ("client/press-8", "In-flight window"),
        ("bans", "Bans"),
        ("control", "role admin"),
    ):
        go_to(tab, view)
        tab.wait_for_text(text)
        buttons = tab.run(
            "[...document.querySelectorAll('main button')].map((one) => one.textContent)"
        )
        assert not any(label.endswith("…") for label in buttons), buttons
    act = "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}"
    asked = f"fetch('/api/v1/bans/make', {act}).then((one) => one.status)"
    assert tab.run(asked) == 403, "the cookie alone does nothing"
    assert tab.run("document.cookie") == "", "no script reads the cookie"


def test_the_page_may_load_and_run_only_its_own(tab: Tab, broker: Broker) -> None:
    log_in(tab, broker, "victor")
    written = tab.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; }"
        " catch (error) { return error.name; } })()"
    )
    assert written == "TypeError", "no text becomes HTML"
    tab.run(
        "document.body.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))"
    )
    wait_for("the refusal", lambda: tab.run("1") and any("style" in one for one in tab.complaints))


def test_a_link_to_no_view_shows_the_first(tab: Tab, broker: Broker) -> None:
    log_in(tab, broker, "victor")
    go_to(tab, "clients")
    tab.wait_for_text("Search")
    go_to(tab, "constructor")  # each object of JavaScript has one
    tab.wait_for_text("Ready for clients")


def test_logging_out_ends_it(tab: Tab, broker: Broker) -> None:
    log_in(tab, broker, "victor")
    tab.press("Log out", "header")
    tab.wait_for_text("Log in")
    tab.run("location.reload()")
    tab.wait_for_text("Log in")
