"""The log in etcd beyond its contract: logins, TLS, quota, servers that hang or are too few."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from penstock.cluster.etcd import EtcdHeartbeats, EtcdLog
from penstock.cluster.log import AppendUnknown, Bounds, Entry, LogRefused, LogUnavailable
from penstock.cluster.writer import ATTEMPT_S
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.etcd_cluster import EtcdCluster, needed

pytestmark = needed

CALL_S: Final = 10.0
SHORT_S: Final = 2.0
QUOTA_BYTES: Final = 8 << 20


@contextmanager
def started(
    directory: Path, servers: int = 3, options: Sequence[str] = (), scheme: str = "http"
) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(directory, servers, options, scheme)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with started(tmp_path_factory.mktemp("etcd")) as made:
        yield made


def opened(settings: Cluster) -> EtcdLog:
    log = EtcdLog(settings)
    log.open(DEADLINE_S)
    return log


def post(cluster: EtcdCluster, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(f"{cluster.urls[0]}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=CALL_S) as answer:
        answer.read()


def test_a_single_server_is_refused(tmp_path: Path) -> None:
    with (
        started(tmp_path, servers=1) as alone,
        closing(EtcdLog(Cluster(log=alone.urls, name="one"))) as log,
        pytest.raises(LogRefused, match="1 voting member"),
    ):
        log.open(DEADLINE_S)


def test_no_server_is_reached(tmp_path: Path) -> None:
    with started(tmp_path, servers=1) as gone:
        urls = gone.urls
    with closing(EtcdLog(Cluster(log=urls, name="none"))) as log:
        with pytest.raises(LogUnavailable, match="is not reached"):
            log.open(0.5)
        with pytest.raises(LogUnavailable):
            log.state(0.5)
    with closing(EtcdHeartbeats(Cluster(log=urls, name="none"), "a")) as beats:
        beats.send(b"lost")
        assert beats.received(0.1) == []


def test_keys_of_another_program_are_refused(cluster: EtcdCluster) -> None:
    end = "Zm9yZWlnbi9lbmQ="  # foreign/end
    post(cluster, "/v3/kv/put", {"key": end, "value": "eA=="})
    with (
        closing(EtcdLog(Cluster(log=cluster.urls, name="foreign"))) as log,
        pytest.raises(LogRefused, match="another program"),
    ):
        log.open(CALL_S)


def test_a_server_that_hangs_is_left_for_another(cluster: EtcdCluster) -> None:
    with closing(opened(Cluster(log=cluster.urls, name="hangs"))) as log:
        log.append(b"one", 0, CALL_S)
        for server in cluster.servers:
            server.pause()
            try:
                wait_for("the others to lead", lambda: _answers(log))
                assert wait_for("its entry", lambda: _first_entry(log)) == Entry(1, b"one")
                assert log.read(1, 10, CALL_S) == [Entry(1, b"one")]
                state = log.state(CALL_S)
                assert state.has_quorum
                assert [node.name for node in state.nodes if not node.is_current] == [server.name]
            finally:
                server.resume()
            wait_for("all three", lambda: all(node.is_current for node in log.state(CALL_S).nodes))


def _first_entry(log: EtcdLog) -> Entry | None:
    """Ask for it within the time of one attempt to append."""
    with contextlib.suppress(LogUnavailable):
        return log.entry_at(1, ATTEMPT_S)
    return None


def _answers(log: EtcdLog) -> bool:
    try:
        return log.bounds(SHORT_S) == Bounds(1, 1)
    except LogUnavailable:
        return False


def test_a_login_holds_when_servers_forget_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "login"
    with started(tmp_path / "servers") as cluster:
        post(cluster, "/v3/auth/user/add", {"name": "root", "password": "pipes: and more"})
        post(cluster, "/v3/auth/role/add", {"name": "root"})
        post(cluster, "/v3/auth/user/grant", {"user": "root", "role": "root"})
        post(cluster, "/v3/auth/enable", {})
        for text in ("root:another", ""):
            file.write_text(text)
            settings = Cluster(
                log=cluster.urls, name="login", credentials_file=str(file) if text else ""
            )
            with closing(EtcdLog(settings)) as log, pytest.raises(LogRefused):
                log.open(CALL_S)
        file.write_text("root:pipes: and more\n")
        settings = Cluster(log=cluster.urls, name="login", credentials_file=str(file))
        with closing(opened(settings)) as log:
            log.append(b"one", 0, CALL_S)
            cluster.restart()
            wait_for("the log", lambda: _answers(log))
            log.append(b"two", 1, CALL_S)
            assert [entry.data for entry in log.read(1, 10, CALL_S)] == [b"one", b"two"]


@pytest.mark.parametrize("text", ["", "no colon", ":password", "a:b\nc:d"])
def test_a_file_without_a_login_is_a_mistake_of_the_settings(tmp_path: Path, text: str) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    with pytest.raises(ConfigError, match="USER:PASSWORD"):
        EtcdLog(Cluster(log=("http://127.0.0.1:1",), credentials_file=str(file)))


def test_tls_is_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    for blob in issued.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert.pem", append=True)
    options = ("--cert-file", f"{tmp_path}/cert.pem", "--key-file", f"{tmp_path}/key.pem")
    with started(tmp_path / "servers", options=options, scheme="https") as cluster:
        settings = Cluster(log=cluster.urls, name="tls", ca_file=f"{tmp_path}/ca.pem")
        with closing(opened(settings)) as log:
            for after in range(5):
                log.append(b"over TLS", after, CALL_S)
            assert log.bounds(CALL_S) == Bounds(1, 5)
        with closing(EtcdLog(Cluster(log=cluster.urls, name="tls"))) as stranger:
            wait_for("its last attempt to have time", lambda: "certificate" in _refusal(stranger))


def _refusal(log: EtcdLog) -> str:
    with pytest.raises(LogUnavailable) as refused:
        log.open(1.0)
    return str(refused.value)


@pytest.mark.torture("writes several times the quota, synced on three servers")
def test_a_trimmed_entry_gives_its_room_back(tmp_path: Path) -> None:
    """Twice the quota goes through a log that is trimmed; without that it ends, and says how."""
    options = ("--quota-backend-bytes", str(QUOTA_BYTES))
    with (
        started(tmp_path, options=options) as cluster,
        closing(opened(Cluster(log=cluster.urls, name="quota"))) as log,
    ):
        size = log.entry_bytes_max // 2
        last = 0
        while last * size < 2 * QUOTA_BYTES:
            log.append(bytes(size), last, CALL_S)
            last += 1
            log.trim(last - 1, CALL_S)
        assert log.bounds(CALL_S) == Bounds(last - 1, last)
        with pytest.raises(AppendUnknown, match="quota-backend-bytes"):  # noqa: PT012
            while last * size < 5 * QUOTA_BYTES:
                log.append(bytes(size), last, CALL_S)
                last += 1
        assert log.bounds(CALL_S).last in (last, last + 1)  # etcd may keep what it refuses
