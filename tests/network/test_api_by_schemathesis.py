"""The API as its own document describes it: schemathesis asks a real broker whatever that allows.

No answer is a failure of the server, none is undocumented, and a viewer's token is refused every
act that the served document has.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")
pytest.importorskip("prometheus_client", reason="the extra admin is not installed")

import schemathesis

from penstock.admin.openapi import document
from penstock.admin.operations import PREFIX
from penstock.auth.admin_tokens import ADMIN, VIEWER
from tests.support.admin_http import get
from tests.support.broker import Broker
from tests.support.budget import budget
from tests.support.fixtures import running_broker

MANY = 200
SCHEMA: Any = schemathesis.openapi.from_dict(document())
TURNS = iter(range(10**9))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("described")
    file = directory / "tokens"
    lines = [f"many-{number:04}-0123456789abcdef {ADMIN}" for number in range(MANY)]
    file.write_text("\n".join([*lines, f"viewer-0123456789abcdef {VIEWER}"]))
    file.chmod(0o600)
    asked = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
    with running_broker(directory, asked) as started:
        get(started, "/healthz")
        yield started


@SCHEMA.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=budget(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_request_is_answered_as_documented(broker: Broker, case: Any) -> None:
    token = f"many-{next(TURNS) % MANY:04}-0123456789abcdef"
    answer = case.call(
        base_url=broker.admin_url + PREFIX, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code < 500, answer.content
    case.validate_response(
        answer,
        checks=[
            schemathesis.checks.CHECKS.get_one(name)
            for name in (
                "not_a_server_error",
                "status_code_conformance",
                "content_type_conformance",
                "response_schema_conformance",
            )
        ],
    )
    if case.path == "/drain/begin":
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        get(broker, f"{PREFIX}/drain/end", "POST", b"{}", **headers)


def test_a_viewer_is_refused_every_act_of_the_served_document(broker: Broker) -> None:
    headers = {"Authorization": "Bearer viewer-0123456789abcdef"}
    served = get(broker, f"{PREFIX}/openapi.json", **headers).json
    acts = [path for path, of in served["paths"].items() if "post" in of]
    assert len(acts) > 5
    for path in acts:
        while True:
            answer = get(
                broker,
                served["servers"][0]["url"] + path,
                "POST",
                b"{}",
                **headers,
                **{"Content-Type": "application/json"},
            )
            if answer.status != 429:
                break
            time.sleep(float(answer.headers["retry-after"]) / 20)  # as the answer asks for
        assert answer.status == 403, (path, answer.body)
