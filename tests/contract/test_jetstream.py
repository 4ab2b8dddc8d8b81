"""The log in JetStream beside its contract: logins, TLS, and servers that are set up wrongly."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cluster.jetstream import JetStreamLog, NatsHeartbeats, nats_client
from penstock.cluster.jetstream_stream import new_stream
from penstock.cluster.log import (
    AppendRefused,
    Bounds,
    Entry,
    LogRefused,
    LogUnavailable,
)
from penstock.cluster.nats_client import FRESH_S
from penstock.config.cluster import Cluster
from penstock.errors import StoreError
from tests.support.damage_faults import flip_bit
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.fake_nats import INFO, FakeNats
from tests.support.nats_cluster import NatsCluster, NatsServer, needed
from tests.support.nats_credentials import Operator
from tests.support.patient_log import PatientLog

pytestmark = needed

CALL_S = 10.0
SHORT_S = 0.5
SYNC = "sync_interval: always"

Start = Callable[..., NatsCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server that is alone, or several."""
    with contextlib.ExitStack() as stack:

        def started(
            servers: int = 1, jetstream: str = SYNC, lines: str = "", uses_tls: bool = False
        ) -> NatsCluster:
            made = NatsCluster(tmp_path / "nats", servers, jetstream, lines, uses_tls)
            stack.callback(made.close)
            made.start()
            return made

        yield started


def log_of(cluster: NatsCluster, replicas: int = 1, **settings: str) -> JetStreamLog:
    """A log of a single server is good enough where its replicas are not what is tested."""
    chosen = Cluster.model_validate({"log": cluster.urls, "name": "orders"} | settings)
    return JetStreamLog(chosen, "test", replicas)


def api(cluster: NatsCluster, call: str, body: bytes) -> bytes:
    """Ask JetStream as an operator would."""
    with closing(nats_client(Cluster(log=cluster.urls), "operator")) as client:
        return client.request(f"$JS.API.{call}", body, time.monotonic() + DEADLINE_S).data


def works(log: JetStreamLog) -> bool:
    log.open(CALL_S)
    patient = PatientLog(log)
    with contextlib.suppress(AppendRefused):  # it is there
        patient.append(b"first", 0, CALL_S)
    return patient.entry_at(1, CALL_S) == Entry(1, b"first")


def refused(log: JetStreamLog, words: str) -> None:
    """Check that ``open`` refuses what it finds, and says so in these words."""
    with closing(log), pytest.raises(LogRefused) as caught:
        log.open(CALL_S)
    assert words in str(caught.value)


def test_a_server_that_is_alone_is_refused(start: Start) -> None:
    refused(log_of(start(), 3), "three servers")


def test_a_stream_with_too_few_replicas_is_refused(start: Start) -> None:
    cluster = start()
    with closing(log_of(cluster)) as log:
        assert works(log)
    refused(log_of(cluster, 3), "needs 3")


def test_five_copies_outlive_two_servers(start: Start) -> None:
    """A log of three copies is given two more by the first member whose settings say five."""
    cluster = start(5)
    with closing(log_of(cluster, 3)) as log:
        assert works(log)
        assert len(log.state(CALL_S).nodes) == 3
    five = Cluster(log=cluster.urls, name="orders", replicas=5)
    refused(JetStreamLog(five, "reads", creates=False), "has 3 replica(s) and needs 5")
    with closing(JetStreamLog(five, "follows")) as log:
        log.open(DEADLINE_S)

        def is_whole() -> bool:
            nodes = log.state(CALL_S).nodes
            return len(nodes) == 5 and all(node.is_current for node in nodes)

        wait_for("five whole copies", is_whole)
        for server in cluster.servers[:2]:
            server.kill()

        PatientLog(log).append(b"second", 1, CALL_S)  # on three of five


def test_a_copy_is_read_from_the_connected_server_alone(start: Start) -> None:
    """JetStream gives each direct get to any replica, so a whole server's reads met the gap of
    another one's copy: all three were taken for damaged, and none could be filled anew."""
    cluster = start(3)
    count, read_max = 400, 100
    with closing(log_of(cluster, 3)) as log:
        assert works(log)
        for number in range(1, count):
            PatientLog(log).append(bytes(300), number, DEADLINE_S)
        wait_for("three copies", lambda: all(node.is_current for node in log.state(CALL_S).nodes))
        damaged = next(node.name for node in log.state(CALL_S).nodes if not node.is_leader)
    server = cluster.server(damaged)
    server.stop()
    (block,) = server.store_dir.glob("**/streams/orders/msgs/*.blk")
    flip_bit(block)
    server.start()

    def copy_of(one: NatsServer) -> str:
        """Read it to its end or to the first gap; empty if the server does not answer."""
        first = 1
        with closing(log_of(cluster, 3, log=[one.url])) as own, contextlib.suppress(LogUnavailable):  # type: ignore[arg-type]
            own.open(CALL_S)
            while first <= count:
                entries = own.read_copy(first, read_max, CALL_S)
                if not entries or entries[0].sequence != first:
                    return "a gap"
                first = entries[-1].sequence + 1
            return "whole"
        return ""

    wait_for("a gap in its copy", lambda: copy_of(server) == "a gap")
    for one in cluster.servers * 4:
        found = wait_for(f"an answer of {one.name}", partial(copy_of, one))
        assert found == ("a gap" if one is server else "whole"), one.name


def test_a_server_that_will_not_come_back_is_replaced_by_one_of_another_name(
    start: Start, tmp_path: Path
) -> None:
    """As `penstock cluster remove` does it, with the login of the system account."""
    accounts = (
        "accounts { P { jetstream: enabled, users: [{ user: p, password: p }] }\n"
        "SYS { users: [{ user: s, password: s }] } }\nsystem_account: SYS\n"
    )
    for user in "ps":
        (tmp_path / user).write_text(f"{user}:{user}\n")
    config = tmp_path / "penstock.toml"
    cluster = start(4, lines=accounts)
    settings = Cluster(log=cluster.urls, name="orders", credentials_file=str(tmp_path / "p"))
    config.write_text(
        f'[cluster]\nname = "orders"\nlog = {json.dumps(list(cluster.urls))}\n'
        f'credentials_file = "{tmp_path}/p"\n'
    )
    command = ["cluster", "remove", "--config", str(config), "--system-login", str(tmp_path / "s")]
    with closing(JetStreamLog(settings, "test")) as log:
        assert works(log)
        wait_for("three copies", lambda: len(log.state(CALL_S).nodes) == 3)
        with pytest.raises(StoreError, match="nobody is not removed"):
            CliRunner().invoke(app, [*command, "nobody"], catch_exceptions=False)
        lost = next(node.name for node in log.state(CALL_S).nodes if not node.is_leader)
        cluster.server(lost).kill()
        assert CliRunner().invoke(app, [*command, lost], catch_exceptions=False).exit_code == 0

        def is_replaced() -> bool:
            nodes = log.state(CALL_S).nodes
            names = {node.name for node in nodes}
            return len(names) == 3 and lost not in names and all(one.is_current for one in nodes)

        wait_for("a copy on the fourth server", is_replaced)
        PatientLog(log).append(b"second", 1, DEADLINE_S)


def test_a_stream_in_memory_is_refused(start: Start) -> None:
    cluster = start()
    body = b'{"name":"orders","subjects":["orders.log"],"storage":"memory","allow_direct":true}'
    assert b"error" not in api(cluster, "STREAM.CREATE.orders", body)
    refused(log_of(cluster), "in memory")


@pytest.mark.parametrize(
    ("mistake", "edit", "words"),
    [
        ({"max_bytes": 1_000_000, "discard": "old"}, {"discard": "new"}, "--discard new"),
        ({"max_msgs_per_subject": 9}, {"max_msgs_per_subject": -1}, "--max-msgs-per-subject=-1"),
        ({"allow_direct": False}, {"allow_direct": True}, "--allow-direct"),
        ({"max_age": 10**12}, {"max_age": 0}, "--max-age 0s"),
    ],
)
def test_a_stream_that_is_edited_as_its_refusal_says_is_taken(
    start: Start, mistake: dict[str, object], edit: dict[str, object], words: str
) -> None:
    """What `nats stream edit` sends."""
    cluster = start()
    made = new_stream("orders", "orders.log", 1, 1 << 20) | mistake
    assert b'"error"' not in api(cluster, "STREAM.CREATE.orders", json.dumps(made).encode())
    refused(log_of(cluster), f"nats stream edit orders {words}")
    edited = json.dumps(made | edit).encode()
    assert b'"error"' not in api(cluster, "STREAM.UPDATE.orders", edited)
    with closing(log_of(cluster)) as log:
        assert works(log)


def test_a_server_without_jetstream_is_refused(start: Start) -> None:
    refused(log_of(start(jetstream="enabled: false")), "without JetStream")


def test_a_server_that_has_lost_its_jetstream_is_passed_over(start: Start) -> None:
    """As one whose disk was full, until it is restarted; the others have the log."""
    cluster = start()
    with FakeNats(lambda visit: visit.take_login(INFO | {"jetstream": False})) as without:
        chosen = Cluster(log=(without.url, *cluster.urls), name="orders")
        with closing(JetStreamLog(chosen, "test", 1)) as log:
            assert works(log)
        assert without.visits == 1


def test_servers_that_are_away_are_said(start: Start) -> None:
    cluster = start()
    cluster.servers[0].kill()
    with closing(log_of(cluster)) as log, pytest.raises(LogUnavailable, match=cluster.urls[0]):
        log.open(SHORT_S)


@pytest.mark.parametrize(
    ("lines", "login"),
    [
        ('authorization { user: "penstock", password: "s:ecret" }', "penstock:s:ecret\n"),
        ('authorization { token: "secret" }', "secret"),
    ],
)
def test_a_login_is_shown(start: Start, tmp_path: Path, lines: str, login: str) -> None:
    cluster = start(lines=lines)
    file = tmp_path / "login"
    file.write_text(login)
    with closing(log_of(cluster, credentials_file=str(file))) as log:
        assert works(log)
    file.write_text("wrong:login")
    for credentials_file in ("", str(file)):
        refused(log_of(cluster, credentials_file=credentials_file), "cluster.credentials_file")


def test_a_user_that_may_not_write_is_refused(start: Start, tmp_path: Path) -> None:
    cluster = start(
        lines='authorization { users: [ { user: "a", password: "b",'
        ' permissions: { publish: ["$JS.API.INFO"] } } ] }'
    )
    file = tmp_path / "login"
    file.write_text("a:b")
    refused(log_of(cluster, credentials_file=str(file)), "Permissions Violation")


def test_the_credentials_file_of_a_user_is_shown(start: Start, tmp_path: Path) -> None:
    operator = Operator()
    cluster = start(lines=operator.server_lines())
    file = tmp_path / "user.creds"
    file.write_text(operator.credentials())
    with closing(log_of(cluster, credentials_file=str(file))) as log:
        assert works(log)
    file.write_text(Operator().credentials())  # of another operator
    refused(log_of(cluster, credentials_file=str(file)), "Authorization Violation")


def test_tls_shows_certificates_in_both_directions(start: Start, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    files = {}
    for name, issuer, host in (
        ("server", authority, "127.0.0.1"),
        ("client", authority, "penstock"),
        ("other", stranger, "penstock"),
    ):
        issued = issuer.issue_cert(host)
        files[name] = tmp_path / f"{name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(files[name])
    for name, issuer in (("ca", authority), ("stranger", stranger)):
        files[name] = tmp_path / f"{name}.pem"
        issuer.cert_pem.write_to_path(files[name])
    cluster = start(
        lines=f'tls {{ cert_file: "{files["server"]}", key_file: "{files["server"]}",'
        f' ca_file: "{files["ca"]}", verify: true }}',
        uses_tls=True,
    )

    def of(ca: str, client: str) -> JetStreamLog:
        return log_of(
            cluster,
            ca_file=str(files[ca]),
            certificate=str(files[client]),
            key=str(files[client]),
        )

    with closing(of("ca", "client")) as log:
        assert works(log)
        large = bytes(log.entry_bytes_max)
        log.append(large, 1, CALL_S)
        assert log.read(2, 1, CALL_S) == [Entry(2, large)]
    with (
        closing(of("stranger", "client")) as log,
        pytest.raises(LogUnavailable, match="certificate verify failed"),
    ):
        log.open(SHORT_S)
    with closing(of("ca", "other")) as log, pytest.raises(LogUnavailable):
        log.open(SHORT_S)


def append_in_a_fork(cluster: Cluster) -> None:
    """Append in a child by fork, then here; in a process with no other thread to fork beside."""
    with closing(JetStreamLog(cluster, "test", 1)) as log:
        assert works(log)
        child = multiprocessing.get_context("fork").Process(
            target=log.append, args=(b"of the child", 1, CALL_S)
        )
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == 0
        assert log.entry_at(2, CALL_S) == Entry(2, b"of the child")
        log.append(b"of the parent", 2, CALL_S)


def test_a_child_process_goes_on_with_a_connection_of_its_own(start: Start) -> None:
    cluster = Cluster.model_validate({"log": start().urls, "name": "orders"})
    parent = multiprocessing.get_context("spawn").Process(target=append_in_a_fork, args=(cluster,))
    parent.start()
    parent.join(2 * DEADLINE_S)
    assert parent.exitcode == 0


def test_a_server_that_was_restarted_is_reached_again_without_an_unknown_append(
    start: Start,
) -> None:
    cluster = start()
    with closing(log_of(cluster)) as log:
        assert works(log)
        cluster.restart()
        let_pass(2 * FRESH_S)  # a connection with bytes a moment ago is taken to be up
        log.append(b"second", 1, CALL_S)
        with pytest.raises(AppendRefused):
            log.append(b"elsewhere", 7, CALL_S)


def test_a_server_that_is_paused_is_left_for_another(start: Start) -> None:
    """The one that this client is connected to, which is not the leader."""
    cluster = start(3)
    with closing(log_of(cluster, 3)) as log:
        assert works(log)

        def other_leads() -> bool:
            log.move_leader(["n2", "n3"], CALL_S)
            return log.state(CALL_S).leader in ("n2", "n3")

        wait_for("another leader", other_leads)
        assert log.server == "n1"
        with closing(NatsHeartbeats(Cluster(log=cluster.urls), "test")) as heartbeats:
            heartbeats.send(b"before")
            assert heartbeats.received(CALL_S) == [b"before"]
            cluster.server("n1").pause()

            def is_heard() -> bool:
                heartbeats.send(b"afterwards")
                return b"afterwards" in heartbeats.received(0.1)

            wait_for("heartbeats by another server", is_heard)
        patient = PatientLog(log)
        patient.append(b"second", 1, CALL_S)
        assert patient.entry_at(2, CALL_S) == Entry(2, b"second")
        assert log.server != "n1"
        cluster.server("n1").resume()


def test_a_leader_that_hears_no_majority_does_not_say_where_the_log_ends(start: Start) -> None:
    """Another may lead by then, and its log be longer."""
    cluster = start(3)
    with closing(log_of(cluster, 3)) as log:
        assert works(log)
        assert log.bounds(CALL_S) == Bounds(1, 1)
        followers = [node.name for node in log.state(CALL_S).nodes if not node.is_leader]
        for name in followers:
            cluster.server(name).pause()

        def is_alone() -> bool:
            state = log.state(CALL_S)
            return bool(state.leader) and not state.has_quorum

        wait_for("the leader to hear nobody", is_alone)
        with pytest.raises(LogUnavailable, match="majority"):
            log.bounds(CALL_S)
        assert log.read(1, 10, CALL_S) == [Entry(1, b"first")]
        for name in followers:
            cluster.server(name).resume()

        def is_told() -> bool:
            with contextlib.suppress(LogUnavailable):
                return log.bounds(CALL_S) == Bounds(1, 1)
            return False

        wait_for("the bounds", is_told)
