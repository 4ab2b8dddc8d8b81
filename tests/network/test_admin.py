"""The admin process of a real broker: what it says, and what becomes of both when one dies."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.control.admin_requests import Drain, DrainState, EndDrain
from penstock.control.client import ask
from penstock.control.landed_requests import ReceiptPosition, ReportProgress
from penstock.control.metric_families import FAMILIES
from penstock.control.reader_requests import Lease, LeaseGrant
from penstock.protocol.packets import Publish
from penstock.services.child_process import SILENT_S_MAX, SUSPECT_S
from penstock.stream.client import StreamClient
from tests.support.admin_http import get
from tests.support.bridged import with_bridges
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker
from tests.support.metric_names import exposed_names, process_names

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")
pytest.importorskip("prometheus_client", reason="the extra admin is not installed")

import prometheus_client.openmetrics.parser
import prometheus_client.parser

parse_openmetrics: Any = prometheus_client.openmetrics.parser.text_string_to_metric_families
parse_text: Any = prometheus_client.parser.text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TOKEN = "viewer-0123456789abcdef"
SETTINGS: dict[str, object] = {"admin.bind": "127.0.0.1:0"}


Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(broker: Broker) -> Values:
    """Every value of a scrape, by its name and labels."""
    answer = get(broker, "/metrics", Accept=OPENMETRICS)
    assert answer.status == 200, answer.body
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_openmetrics(answer.body.decode())
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float:
    return values[f"penstock_{name}", frozenset(labels.items())]


def processes(broker: Broker, module: bytes = b"penstock.admin.service") -> list[int]:
    """The processes of the broker's family that run a module: its admin process, or another."""
    found = []
    for pid in broker.family():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if module in command:
            found.append(pid)
    return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with an admin process, and with one of everything that has metrics."""
    nowhere = {"name": "away", "addresses": ["mqtt://127.0.0.1:9"]}
    outgoing = {"forwards": [{"topic_filters": ["out/#"], "direction": "out"}]}
    settings = with_bridges(nowhere | outgoing, **SETTINGS) | {
        "stream.streams": json.dumps(
            [{"name": "messages", "topic_filters": ["#"], "retention_s": 100_000}]
        ),
        "limits.max_inflight": 10,
    }
    with running_broker(tmp_path_factory.mktemp("watched"), settings, stream=True) as broker:
        epoch = next(
            dict(labels)["epoch"]
            for name, labels in scrape(broker)
            if name == "penstock_log_epoch_info"
        )
        ask(
            broker.data_dir,
            Lease("etl", "messages", (), epoch, 0, 60.0, about="a test"),
            LeaseGrant,
        )
        ask(
            broker.data_dir,
            ReportProgress("readings", "messages", (), epoch, 0, 0),
            ReceiptPosition,
        )
        yield broker


@pytest.fixture
def admin_broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, SETTINGS) as broker:
        yield broker


# -- metrics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_documented_metrics_are_told_and_no_others(watched: Broker, accept: str) -> None:
    documented = process_names()
    for family in FAMILIES.values():
        documented |= exposed_names(family)
    parse = parse_openmetrics if accept == OPENMETRICS else parse_text

    def told() -> set[str]:
        answer = get(watched, "/metrics", Accept=accept)
        assert answer.headers["content-type"].startswith(accept.partition(";")[0])
        return {sample.name for one in parse(answer.body.decode()) for sample in one.samples}

    # Nothing was dropped for a bridge here, it is no member of a cluster, and has no certificates;
    # lags are measured in the background.
    of_others = ("penstock_standby_", "penstock_cluster_", "penstock_certificate_")
    elsewhere = {name for name in documented if name.startswith(of_others)}
    elsewhere.add("penstock_bridge_dropped_total")
    wait_for("every metric", lambda: documented - told() == elsewhere)
    assert told() <= documented


def test_counters_move_by_what_a_client_did(watched: Broker, clients: Clients, name: str) -> None:
    before = scrape(watched)
    client = clients.join(watched, name)
    client.subscribe(f"{name}/#", qos=2)
    client.publish(f"{name}/0", b"none", qos=0)
    client.publish(f"{name}/1", b"one", qos=1)
    client.publish(f"{name}/2", b"two", qos=2)
    assert sorted(client.take_payloads(3)) == [b"none", b"one", b"two"]
    after = scrape(watched)

    def moved(of: str, **labels: str) -> float:
        return value(after, of, **labels) - value(before, of, **labels)

    assert moved("connections_accepted_total") == 1
    assert moved("clients_connected") == 1
    assert moved("sessions") == 1
    assert moved("subscriptions") == 1
    for qos in ("0", "1", "2"):
        assert moved("messages_received_total", qos=qos) == 1
        assert moved("messages_sent_total", qos=qos) == 1
    assert moved("payload_received_bytes_total") == 10
    assert moved("payload_sent_bytes_total") == 10
    received = {"CONNECT": 1, "SUBSCRIBE": 1, "PUBLISH": 3, "PUBACK": 1, "PUBREC": 1, "PUBREL": 1}
    sent = {"CONNACK": 1, "SUBACK": 1, "PUBLISH": 3, "PUBACK": 1, "PUBREC": 1, "PUBCOMP": 1}
    for kind, count in received.items():
        assert moved("packets_received_total", type=kind) == count, kind
    for kind, count in sent.items():
        assert moved("packets_sent_total", type=kind) == count, kind
    assert moved("log_end_offset") == 3
    commits = moved("commits_total")
    assert commits > 0
    assert moved("commit_duration_seconds_count") == commits
    assert moved("store_write_duration_seconds_count") == commits
    assert moved("commit_messages_sum") == 3
    assert moved("messages_dropped_total", reason="queue_full") == 0


def test_windows_and_queues_are_told_as_distributions(
    watched: Broker, clients: Clients, name: str
) -> None:
    reader = clients.join(watched, name, 4)
    reader.subscribe(f"{name}/#", qos=1)
    publisher = clients.join(watched, f"{name}p")
    for number in range(15):  # the window has ten places
        publisher.publish(f"{name}/a", b"%d" % number, qos=1)

    def has_it() -> bool:
        values = scrape(watched)
        at_most_5 = value(values, "client_window_messages_bucket", le="5.0")
        window = value(values, "client_window_messages_gcount") - at_most_5
        held = value(values, "clients_at_limit", limit="window")
        versions = value(values, "clients_by_version", version="3.1.1")
        return (window, held, versions) == (1, 1, 1)

    wait_for("the full window", has_it)
    values = scrape(watched)
    assert value(values, "client_queue_messages_gsum") >= 5
    assert value(values, "listener_connections", listener="main") >= 2


def test_a_bridge_is_told_by_its_name(watched: Broker, clients: Clients, name: str) -> None:
    before = value(scrape(watched), "bridge_queue_messages", bridge="away")
    clients.join(watched, name).publish("out/1", b"x", qos=1)
    after = scrape(watched)
    assert value(after, "bridge_queue_messages", bridge="away") == before + 1
    assert value(after, "bridge_connected", bridge="away") == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_complain_about(watched: Broker) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=get(watched, "/metrics").body,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr + done.stdout) == (0, b"")


# -- health ----------------------------------------------------------------------------------


def test_a_broker_that_works_is_alive_and_ready(watched: Broker) -> None:
    assert get(watched, "/healthz").checks == {"loop": True}
    answer = get(watched, "/readyz")
    assert answer.status == 200
    assert answer.checks == dict.fromkeys(("loop", "store", "disk", "accepting", "stream"), True)
    assert get(watched, "/readyz", "HEAD").status == 200


def test_a_broker_that_is_emptied_is_not_ready(admin_broker: Broker) -> None:
    assert get(admin_broker, "/readyz").status == 200
    ask(admin_broker.data_dir, Drain(), DrainState)
    answer = get(admin_broker, "/readyz")
    assert answer.status == 503
    assert [check for check, passes in answer.checks.items() if not passes] == ["accepting"]
    assert get(admin_broker, "/healthz").status == 200
    assert value(scrape(admin_broker), "draining") == 1
    ask(admin_broker.data_dir, EndDrain(), bool)
    assert get(admin_broker, "/readyz").status == 200


def test_a_broker_whose_store_cannot_write_is_alive_and_not_ready(
    admin_broker: Broker, clients: Clients
) -> None:
    away = clients.join(admin_broker, "away", expiry_s=1000)
    away.subscribe("t", qos=1)  # else there is nothing to be stored
    away.drop()
    publisher = clients.join(admin_broker, "p")
    _, hard = resource.prlimit(admin_broker.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(admin_broker.process.pid, resource.RLIMIT_FSIZE, (1_000_000, hard))
    body = os.urandom(400_000)  # nothing that could be compressed
    for number in range(1, 6):
        publisher.send(Publish("t", body, 1, packet_id=number))
    wait_for("the store to fail", lambda: get(admin_broker, "/readyz").status == 503)
    answer = get(admin_broker, "/readyz")
    assert not answer.checks["store"]
    assert "File too large" in answer.why("store")
    assert get(admin_broker, "/healthz").status == 200
    values = scrape(admin_broker)
    assert value(values, "store_works") == 0
    assert value(values, "store_outages_total") == 1
    resource.prlimit(admin_broker.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    wait_for("the store to work", lambda: get(admin_broker, "/readyz").status == 200)


def test_too_little_room_on_the_disk(tmp_path: Path) -> None:
    with running_broker(tmp_path, SETTINGS | {"admin.disk_free_bytes_min": 2**62}) as broker:
        answer = get(broker, "/readyz")
        assert answer.status == 503
        assert not answer.checks["disk"]
        assert "admin.disk_free_bytes_min" in answer.why("disk")


def test_a_broker_that_stands_still_is_not_alive_and_that_is_said_in_time(
    tmp_path: Path,
) -> None:
    with running_broker(tmp_path, SETTINGS | {"admin.answer_s_max": 0.3}) as broker:
        assert get(broker, "/healthz").status == 200
        broker.process.send_signal(signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            answer = get(broker, "/healthz")
            took_s = time.monotonic() - began_s
            assert answer.status == 503
            assert answer.why("loop").startswith("the broker did not answer for 0.3 s: it hangs")
            assert took_s < 5
            assert get(broker, "/readyz").status == 503
        finally:
            broker.process.send_signal(signal.SIGCONT)
        wait_for("the broker to go on", lambda: get(broker, "/healthz").status == 200)


def test_a_broker_that_stood_still_says_so_in_its_log(admin_broker: Broker) -> None:
    admin_broker.process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)  # not for a condition: it is the time for which it stands
    admin_broker.process.send_signal(signal.SIGCONT)
    said = "of that time only; other programs had it, or the machine swaps or was stopped"
    wait_for("the line", lambda: said in admin_broker.log())
    values = scrape(admin_broker)
    at_most = value(values, "loop_lag_seconds_bucket", le="0.5")
    assert value(values, "loop_lag_seconds_count") > at_most


# -- processes -------------------------------------------------------------------------------


def test_a_killed_admin_process_is_started_again_and_the_broker_goes_on(
    admin_broker: Broker, clients: Clients
) -> None:
    client = clients.join(admin_broker, "c")
    get(admin_broker, "/healthz")
    (pid,) = processes(admin_broker)
    os.kill(pid, signal.SIGKILL)
    client.publish("t", b"x", qos=1)

    def is_another() -> bool:
        return processes(admin_broker) not in ([], [pid])

    wait_for("another one", is_another)
    assert get(admin_broker, "/healthz").status == 200  # at the same address
    restarts = value(scrape(admin_broker), "child_restarts_total", process="admin process")
    assert restarts == 1
    assert admin_broker.stop() == 0
    assert admin_broker.family() == []


@pytest.mark.torture("waits for 20 s; test_child_process has it in short")
def test_a_stream_service_that_hangs_is_told_of_and_started_again_and_a_reader_goes_on(
    tmp_path: Path, clients: Clients
) -> None:
    with running_broker(tmp_path, SETTINGS, stream=True) as broker:
        client = clients.join(broker, "c")
        client.publish("t", b"x", qos=1)
        module = b"penstock.stream.service"
        with StreamClient("{}:{}".format(*broker.stream_address)) as reader:
            epoch = reader.offsets("messages").epoch
            (pid,) = processes(broker, module)
            os.kill(pid, signal.SIGSTOP)
            client.publish("t", b"y", qos=1)

            def is_told() -> bool:
                answer = get(broker, "/readyz")
                return answer.status == 503 and not answer.checks["stream"]

            wait_for("readiness to say it", is_told, SILENT_S_MAX)
            assert "the stream service has given no sign of life for" in get(broker, "/readyz").why(
                "stream"
            )
            silent_s = value(scrape(broker), "child_silent_seconds", process="stream service")
            assert silent_s >= SUSPECT_S
            batches = reader.read("messages", epoch, 0, 2, columns=["payload"])
            rows = [row["payload"] for batch in batches for row in batch.to_pylist()]
        assert rows == [b"x", b"y"]
        assert processes(broker, module) != [pid]
        assert value(scrape(broker), "child_hangs_total", process="stream service") == 1
        assert get(broker, "/readyz").status == 200
        wait_until_logged(broker, "the stream service hangs: it gave no sign of life for 20 s")


@pytest.mark.torture("waits for 20 s; test_child_process has it in short")
def test_an_admin_process_that_hangs_is_started_again(admin_broker: Broker) -> None:
    get(admin_broker, "/healthz")
    (pid,) = processes(admin_broker)
    os.kill(pid, signal.SIGSTOP)
    wait_for("another one", lambda: processes(admin_broker) not in ([], [pid]), 60.0)
    assert get(admin_broker, "/healthz").status == 200


def test_the_admin_process_ends_with_a_broker_that_is_killed(admin_broker: Broker) -> None:
    get(admin_broker, "/healthz")
    admin_broker.kill()
    wait_for("nothing to be left", lambda: admin_broker.family() == [])


# -- who may ask -----------------------------------------------------------------------------


def test_metrics_ask_for_the_token_and_checks_do_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# Prometheus\nprometheus:{TOKEN}\n")
    file.chmod(0o600)
    with running_broker(tmp_path, SETTINGS | {"admin.token_file": file}) as broker:
        refused = get(broker, "/metrics")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert get(broker, "/metrics", Authorization="Bearer viewer-0123456789abcdeX").status == 401
        assert get(broker, "/metrics", Authorization=f"Basic {TOKEN}").status == 401
        assert get(broker, "/metrics", Authorization=f"Bearer {TOKEN}").status == 200
        open_to_all = get(broker, "/readyz")
        assert open_to_all.status == 200
        assert "why" not in open_to_all.body.decode()
        assert "why" in get(broker, "/readyz", Authorization=f"Bearer {TOKEN}").body.decode()
        other = "viewer-fedcba9876543210"
        file.write_text(f"{other} admin\n")
        broker.process.send_signal(signal.SIGHUP)
        wait_for(
            "the new token",
            lambda: get(broker, "/metrics", Authorization=f"Bearer {other}").status == 200,
        )
        assert get(broker, "/metrics", Authorization=f"Bearer {TOKEN}").status == 401


def test_an_address_for_others_is_refused_without_a_token(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "penstock", "serve"),
            *("--admin", "0.0.0.0:0", "--data-dir", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "metrics are for everyone there" in done.stderr
    assert "admin.token_file" in done.stderr


def test_answers_have_strict_headers_and_other_names_are_misdirected(watched: Broker) -> None:
    for path in ("/healthz", "/metrics", "/nothing"):
        answer = get(watched, path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
    assert get(watched, "/nothing").status == 404
    assert get(watched, "/metrics", "POST").status == 405
    assert get(watched, "/metrics", Host="rebound.example").status == 421
    assert get(watched, "/metrics", Host="localhost:1").status == 200


def test_https(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o600)
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = {"admin.certificate": tmp_path / "cert.pem", "admin.key": tmp_path / "key.pem"}
    with running_broker(tmp_path, SETTINGS | files) as broker:
        assert broker.admin_url.startswith("https://")
        assert get(broker, "/healthz").status == 200
