"""`penstock tables run` as it is used: a real broker, TLS, a token, and a lease on the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.stream.client import StreamClient
from penstock.stream.credentials import Credentials
from tests.spark.test_tables_process import DECLARATION, start
from tests.spark.waiting import DEADLINE_S
from tests.support.broker import Broker
from tests.support.dial import Authority
from tests.support.fixtures import Clients, running_broker

TOKEN = "a-token-of-32-characters-at-least"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def broker(tmp_path: Path, authority: Authority, token_file: Path) -> Iterator[Broker]:
    certificate, key = authority.issue("server", "127.0.0.1")
    settings = {
        "stream.certificate": certificate,
        "stream.key": key,
        "stream.token_file": token_file,
    }
    with running_broker(tmp_path, settings, stream=True) as running:
        yield running


def test_a_run_lands_over_tls_and_holds_the_log(
    broker: Broker, authority: Authority, token_file: Path, tmp_path: Path, clients: Clients
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(DECLARATION.format(tables=tmp_path / "tables").replace('group = ""\n', ""))
    publisher = clients.join(broker, "publisher")
    for payload in (b"1", b"2", b"x"):
        publisher.publish("plant/7/temp", payload)
    host, port = broker.stream_address
    access = ["--tls-ca-file", authority.file, "--token-file", str(token_file)]
    job = start(config, f"{host}:{port}", "run", "--available-now", *access)
    output, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, output
    landed = DeltaTable(tmp_path / "tables" / "numbers").to_pyarrow_table()
    assert sorted(landed.column("value").to_pylist()) == [1, 2]

    credentials = Credentials(True, authority.file, token_file=str(token_file))
    with StreamClient(f"{host}:{port}", credentials=credentials) as client:
        (reader,) = client.readers()
        (table,) = client.tables()
    assert (reader.group, reader.topics) == ("numbers", ("plant/+/temp",))
    assert reader.lease_left_s > 2 * 86_400
    assert (table.table, table.offset) == ("numbers", 3)
