"""The JSON API of a real broker: who may do what, what it does, and that nothing makes it fail."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")
pytest.importorskip("prometheus_client", reason="the extra admin is not installed")

from penstock.admin.openapi import document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation
from penstock.admin.rate_limiter import BURST
from penstock.auth.admin_tokens import ADMIN, OPERATOR, ROLES, VIEWER
from penstock.control.admin_requests import AdminRequest
from penstock.protocol import reasons
from tests.support.admin_http import Answer, get
from tests.support.broker import Broker
from tests.support.budget import budget
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker

TOKENS = {role: f"{role}-0123456789abcdef" for role in ROLES}
MANY = 64
"""Tokens of administrators, for those who ask more often than one of them may."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("api")
    file = directory / "tokens"
    lines = [f"{role}-name:{token} {role}" for role, token in TOKENS.items()]
    lines += [f"many-{number}:{many(number)} admin" for number in range(MANY)]
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o600)
    settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
    with running_broker(directory, settings) as started:
        yield started


def many(number: int) -> str:
    return f"many-{number:04}-0123456789abcdef"


def ask(
    broker: Broker, path: str, told: object = None, token: str = TOKENS[ADMIN], **headers: str
) -> Answer:
    """A GET, or with something to tell a POST."""
    headers = {"Authorization": f"Bearer {token}"} | headers
    if told is None:
        return get(broker, PREFIX + path, **headers)
    headers = {"Content-Type": "application/json"} | headers
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    return get(broker, PREFIX + path, "POST", body, **headers)


def as_role(broker: Broker, each: Operation, token: str) -> Answer:
    """One operation, asked wrongly, so that it does nothing."""
    told = {"nonsense": True} if each.modifies else None
    return ask(broker, each.path if each.modifies else f"{each.path}?nonsense=1", told, token)


# -- who may ask -----------------------------------------------------------------------------


@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: each.name)
def test_each_operation_is_for_its_role_and_those_above(broker: Broker, each: Operation) -> None:
    for number, role in enumerate(ROLES):
        answer = as_role(broker, each, TOKENS[role])
        while answer.status == 429:
            answer = as_role(broker, each, TOKENS[role])
        allowed = number >= ROLES.index(each.role)
        assert answer.status == (400 if allowed else 403), answer.body
        assert allowed or f"needs the role {each.role}" in answer.json["error"]


def test_without_a_token_or_with_a_wrong_one_nothing_is_told(broker: Broker) -> None:
    for each in OPERATIONS:
        method = "POST" if each.modifies else "GET"
        for headers in ({}, {"Authorization": "Bearer admin-0123456789abcdeX"}):
            answer = get(broker, PREFIX + each.path, method, b"{}", **headers)
            assert answer.status == 401
            assert "WWW-Authenticate".lower() in answer.headers
    assert get(broker, f"{PREFIX}/openapi.json").status == 401


def test_without_a_token_file_there_is_no_api(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"admin.bind": "127.0.0.1:0"}) as started:
        answer = ask(started, "/sessions")
        assert answer.status == 403
        assert "admin.token_file" in answer.json["error"]


def test_a_token_that_is_used_too_often_waits(broker: Broker) -> None:
    assert ask(broker, "/drain", token=many(0)).status == 200
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, broker, "/drain", None, many(0)) for _ in range(int(BURST) * 5)]
    refused = [one.result() for one in asked if one.result().status == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"
    assert ask(broker, "/drain", token=many(1)).status == 200
    wait_for("its turn", lambda: ask(broker, "/drain", token=many(0)).status == 200)


# -- what it does ----------------------------------------------------------------------------


def test_sessions_are_listed_in_pages_shown_and_kicked_by_name(
    broker: Broker, clients: Clients
) -> None:
    press = clients.join(broker, "press-7", expiry_s=100)
    press.subscribe("plant/+")
    clients.join(broker, "press-8")
    first = ask(broker, "/sessions?client=press-*&limit=1", token=many(2)).json
    assert [entry["client_id"] for entry in first["entries"]] == ["press-7"]
    second = ask(broker, f"/sessions?client=press-*&cursor={first['cursor']}", token=many(2)).json
    assert [entry["client_id"] for entry in second["entries"]] == ["press-8"]
    shown = ask(broker, "/session?client_id=press-7", token=many(2)).json
    assert [line["filter"] for line in shown["filters"]] == ["plant/+"]
    assert ask(broker, "/session?client_id=nobody", token=many(2)).status == 404

    session_filter = {"client": "press-7"}
    counted = ask(broker, "/sessions/kick", {"filter": session_filter, "only_count": True}, many(2))
    assert counted.json == {"count": 1}
    done = ask(
        broker, "/sessions/kick", {"filter": session_filter, "why": "moved"}, TOKENS[OPERATOR]
    )
    assert (done.status, done.json) == (200, {"count": 1})
    farewell = press.expect_disconnect(reasons.ADMINISTRATIVE_ACTION)
    assert farewell.properties is not None
    assert farewell.properties.reason_string == "moved"
    said = "operator-name at 127.0.0.1 (API) disconnected 1 clients (client 'press-7')"
    wait_for("the log line", lambda: said in broker.log())
    wait_for(
        "it to be away",
        lambda: ask(broker, "/sessions?connected=false&client=press-7", token=many(3)).json[
            "entries"
        ],
    )
    removed = ask(broker, "/sessions/remove", {"filter": session_filter}, many(3))
    assert removed.json == {"count": 1}
    assert ask(broker, "/session?client_id=press-7", token=many(3)).status == 404


def test_the_api_tells_why_a_client_gets_nothing(broker: Broker, clients: Clients) -> None:
    told = ask(broker, "/why?client_id=nobody", token=many(19)).json
    assert "nobody" in told["reason"]
    assert told["facts"]["session"] is None
    clients.join(broker, "reader").subscribe("plant/a")
    told = ask(broker, "/why?client_id=reader&topic=plant/b", token=TOKENS[VIEWER]).json
    assert "plant/b" in told["reason"]
    assert told["remedy"]
    assert told["facts"]["filters"] == ["plant/a"]
    assert ask(broker, "/why?client_id=reader&topic=%23", token=many(19)).status == 400


def test_retained_messages_are_listed_shown_and_cleared(broker: Broker, clients: Clients) -> None:
    client = clients.join(broker, "r")
    client.publish("shelf/a", b"\x00\xff", qos=1, retain=True)
    listed = ask(broker, "/retained?topic_filter=shelf/%23", token=many(4)).json
    assert [entry["topic"] for entry in listed["entries"]] == ["shelf/a"]
    shown = ask(broker, "/retained/message?topic=shelf/a", token=many(4)).json
    assert shown["payload_base64"] == "AP8="
    assert ask(broker, "/retained/clear", {"topic_filter": "shelf/#"}, many(4)).json == {"count": 1}
    assert ask(broker, "/retained/message?topic=shelf/a", token=many(4)).status == 404


def test_bans_are_made_listed_and_lifted(broker: Broker) -> None:
    made = ask(broker, "/bans/make", {"kind": "address", "value": "203.0.113.9/24"}, many(5))
    assert (made.status, made.json) == (200, "203.0.113.0/24")
    listed = ask(broker, "/bans", token=many(5)).json["entries"]
    assert ("address", "203.0.113.0/24") in [(one["kind"], one["value"]) for one in listed]
    lifted = {"kind": "address", "value": "203.0.113.0/24"}
    assert ask(broker, "/bans/lift", lifted, many(5)).json is True
    assert ask(broker, "/bans/lift", lifted, many(5)).json is False
    wrong = ask(broker, "/bans/make", {"kind": "address", "value": "nowhere"}, many(5))
    assert wrong.status == 400


def test_the_broker_is_emptied_and_opened_again(broker: Broker) -> None:
    assert ask(broker, "/drain/begin", {"per_s": 1.0}, many(6)).json["draining"] is True
    assert ask(broker, "/drain", token=TOKENS[VIEWER]).json["draining"] is True
    assert ask(broker, "/drain/end", {}, many(6)).json is True
    assert ask(broker, "/drain", token=many(6)).json["draining"] is False


def test_health_and_what_the_broker_cannot_do_as_it_was_started(broker: Broker) -> None:
    assert ask(broker, "/health", token=many(7)).json["store_failure"] == ""
    refused = ask(broker, "/tables", token=many(7))  # it has no streams
    assert refused.status == 409
    assert "cannot do this as it was started" in refused.json["error"]


def test_settings_are_read_again(broker: Broker) -> None:
    assert ask(broker, "/reload", {}, many(8)).json["changed"] == []
    said = "reload by many-8 at 127.0.0.1 (API): 0 settings changed"
    wait_for("the log line", lambda: said in broker.log())


# -- what is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "told", "status", "said"),
    [
        ("/sessions?limit=0", None, 400, "a page has 1 to 1000 entries"),
        ("/sessions?limit=ten", None, 400, "Expected `int`"),
        ("/sessions?limit=1&limit=2", None, 400, "given twice"),
        ("/sessions?older_than_s=nan", None, 400, "Expected `float`"),
        ("/sessions?address=a/b", None, 400, "selection cannot be used"),
        ("/sessions?cursor=" + "9" * 5000, None, 400, "length <= 32"),
        ("/session", None, 400, "missing required field `client_id`"),
        ("/readers?owner=x", None, 400, "no field owner"),
        ("/retained?topic_filter=a%23", None, 400, "is no topic filter"),
        ("/sessions/kick", {}, 400, "missing required field `filter`"),
        ("/sessions/kick", {"filter": {}, "by": "me"}, 400, "no field by"),
        ("/sessions/kick", b"{", 400, "is not JSON"),
        ("/sessions/kick", b"[]", 400, "must be a JSON object"),
        ("/sessions/kick", b'{"filter": {"older_than_s": 1e400}}', 400, "out of range"),
        ("/bans/make", {"kind": "client", "value": "a", "for_s": -1}, 400, ">= 0"),
        ("/bans/make", {"kind": "colour", "value": "red"}, 400, ""),
        ("/bans/make", b"[" * 100_000, 400, "is not JSON"),
        ("/bans/make", b" " * 200_000, 413, "131072 bytes"),
        ("/drain/begin", {"per_s": 0}, 400, "more than 0"),
        ("/nothing", None, 404, "Not Found"),
    ],
)
def test_a_mistake_is_a_sentence(
    broker: Broker, path: str, told: object, status: int, said: str
) -> None:
    answer = ask(broker, path, told, many(9 + len(path) % 8))
    assert (answer.status, said in answer.json["error"]) == (status, True), answer.body


def test_a_body_that_a_form_could_send_is_refused(broker: Broker) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        answer = ask(broker, "/drain/begin", b"{}", many(18), **{"Content-Type": kind})
        assert answer.status == 415
    assert ask(broker, "/sessions", {}, many(18)).status == 405


def test_every_request_of_an_operator_is_an_operation() -> None:
    offered = {each.request for each in OPERATIONS}
    missing = {kind.__name__ for kind in get_args(AdminRequest) if kind not in offered}
    assert missing <= {"FindReceivers"}, "it needs an offset, which only the log knows"


def test_the_document_is_whole(broker: Broker) -> None:
    served = ask(broker, "/openapi.json", token=TOKENS[VIEWER]).json
    assert served == json.loads(json.dumps(document()))
    assert served["openapi"] == "3.1.0"
    text = json.dumps(served)
    for name in served["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text, f"nothing refers to {name}"
    for reference in _references(served):
        assert reference.rpartition("/")[2] in served["components"]["schemas"]
    found = {(path, method) for path, of in served["paths"].items() for method in of}
    assert found == {(each.path, each.method.lower()) for each in OPERATIONS}


def _references(of: Any) -> Iterator[str]:
    if isinstance(of, dict):
        if isinstance(of.get("$ref"), str):
            yield of["$ref"]
        for inner in of.values():
            yield from _references(inner)
    elif isinstance(of, list):
        for inner in of:
            yield from _references(inner)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["*", "[", "#", "+/+", "a/#", "client", "address", "10.0.0.0/8", "::1"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner)
)


@settings(
    max_examples=budget(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=st.data())
def test_any_request_is_answered_and_never_with_a_failure(
    broker: Broker, drawn: st.DataObject
) -> None:
    each = drawn.draw(st.sampled_from(OPERATIONS))
    fields = [*each.request.__struct_fields__, "client", "older_than_s", "x"]
    token = many(20 + drawn.draw(st.integers(0, MANY - 21)))
    if each.modifies:
        told = drawn.draw(st.dictionaries(st.sampled_from(fields), VALUES, max_size=4))
        try:
            body = json.dumps(told).encode("utf-8", "surrogatepass")
        except ValueError:
            return
        answer = ask(broker, each.path, body, token)
    else:
        query = drawn.draw(st.binary(max_size=20)).hex(" ").replace(" ", "%")
        name = drawn.draw(st.sampled_from(fields))
        answer = ask(broker, f"{each.path}?{name}=%{query or '41'}", token=token)
    assert answer.status < 500, answer.body
    assert broker.process.poll() is None, "the broker is there"
    if each.path == "/drain/begin":
        ask(broker, "/drain/end", {}, token)
