"""A real Prometheus scrapes a real broker, with a token, and evaluates the alert rules."""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from penstock.control.admin_requests import Drain, DrainState
from penstock.control.client import ask
from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import Clients, running_broker

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed"
)

RULES = Path(__file__).resolve().parents[2] / "packaging" / "prometheus" / "penstock_alerts.yml"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever is set here
TOKEN = "prometheus-0123456789abcdef"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("scraped")
    file = directory / "tokens"
    file.write_text(f"prometheus:{TOKEN}\n")
    file.chmod(0o600)
    settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": file}
    with running_broker(directory, settings) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the broker every second."""
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "token").write_text(TOKEN)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "penstock",
                "authorization": {"credentials_file": str(directory / "token")},
                "static_configs": [{"targets": [urlsplit(broker.admin_url).netloc]}],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))  # which is YAML, too
    with ReservedPort("127.0.0.1") as port:
        address = str(port)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    left_behind.watch(process.pid)
    try:
        wait_for("Prometheus", lambda: is_ready(f"http://{address}/-/ready"))
        yield f"http://{address}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        left_behind.forget(process.pid)


def is_ready(url: str) -> bool:
    try:
        with OPENER.open(url, timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def told(prometheus: str, path: str) -> Any:
    with OPENER.open(f"{prometheus}/api/v1/{path}", timeout=DEADLINE_S) as answer:
        return json.load(answer)["data"]


def value(prometheus: str, expression: str) -> float | None:
    result = told(prometheus, f"query?query={quote(expression)}")["result"]
    return float(result[0]["value"][1]) if result else None


def test_prometheus_scrapes_and_finds_what_is_there(
    broker: Broker, prometheus: str, clients: Clients
) -> None:
    wait_for("a scrape", lambda: value(prometheus, 'up{job="penstock"}') == 1)
    clients.join(broker, "c").publish("t", b"x", qos=1)
    wait_for("the client", lambda: value(prometheus, "penstock_clients_connected") == 1)
    wait_for(
        "the message",
        lambda: value(prometheus, 'penstock_messages_received_total{qos="1"}') == 1,
    )
    (target,) = told(prometheus, "targets?state=active")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    kinds = told(prometheus, "metadata?metric=penstock_commit_duration_seconds")
    assert kinds["penstock_commit_duration_seconds"][0]["type"] == "histogram"


def test_the_rules_are_evaluated_and_an_alert_is_raised(broker: Broker, prometheus: str) -> None:
    wait_for("a scrape", lambda: value(prometheus, "penstock_draining") == 0)
    ask(broker.data_dir, Drain(), DrainState)

    def alerts() -> dict[str, str]:
        found = told(prometheus, "alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    wait_for("the alert", lambda: alerts().get("PenstockIsDraining") == "pending")
    (group,) = told(prometheus, "rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
