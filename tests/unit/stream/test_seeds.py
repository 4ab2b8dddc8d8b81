"""Copies of a store for other members: to whom they are given, whole, in pieces, and removed."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.flight as flight
import pytest

from penstock.auth.tokens import ANONYMOUS, SEED, Grant, Tokens
from penstock.config.address import Address
from penstock.config.stream import StreamDefinition
from penstock.errors import StoreUnavailable
from penstock.store.backup import back_up
from penstock.store.database import open_database
from penstock.store.identity import begin_epoch
from penstock.store.manifest import Manifest
from penstock.store.secondary import LogFollower
from penstock.stream import seeds
from penstock.stream.credentials import Credentials
from penstock.stream.requests import RequestError
from penstock.stream.seed_client import fetch_copy
from penstock.stream.seeds import SEEDS_MAX, SeedFiles, Seeds, SeedTicket
from penstock.stream.service import StreamServer

STREAM = StreamDefinition(name="messages", topic_filters=("#",))
TOKEN = "seed-0123456789abcdef0123456789"
SHOWN = [(b"authorization", b"Bearer " + TOKEN.encode())]


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory whose broker makes backups."""
    database = open_database(tmp_path / "data")
    begin_epoch(database)

    def ask(_: Path, destination: Path) -> Manifest:
        return back_up(database, destination)

    monkeypatch.setattr(seeds, "ask_for_backup", ask)
    yield tmp_path / "data"
    database.close()


@pytest.fixture
def client(data_dir: Path) -> Iterator[flight.FlightClient]:
    """A client of a service that asks for a token only where the store is to be copied."""
    tokens = Tokens([Grant("", frozenset({SEED}), (), TOKEN)])
    log = LogFollower(data_dir)
    server = StreamServer(
        Address("127.0.0.1", 0), log, [STREAM], tokens=tokens, anonymous=ANONYMOUS
    )
    made = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    yield made
    made.close()
    server.shutdown()


def act(client: flight.FlightClient, kind: str, fields: object, with_token: bool = True) -> bytes:
    options = flight.FlightCallOptions(headers=SHOWN if with_token else [])
    (answer,) = client.do_action(flight.Action(kind, json.dumps(fields).encode()), options)
    return bytes(answer.body.to_pybytes())


def test_without_a_token_the_streams_are_open_and_the_store_is_not(
    client: flight.FlightClient, data_dir: Path
) -> None:
    assert b"messages" in act(client, "streams", {}, with_token=False)
    with pytest.raises(flight.FlightServerError, match="has not the role 'seed'"):
        act(client, "seed", {}, with_token=False)
    ticket = flight.Ticket(msgspec.json.encode(SeedTicket("any", "backup.json")))
    with pytest.raises(flight.FlightServerError, match="has not the role 'seed'"):
        client.do_get(ticket).read_all()
    assert not (data_dir / seeds.SEEDS_DIRECTORY).exists()


def test_a_copy_comes_whole_and_is_removed(client: flight.FlightClient, data_dir: Path) -> None:
    made = msgspec.json.decode(act(client, "seed", {}), type=SeedFiles)
    options = flight.FlightCallOptions(headers=SHOWN)
    directory = data_dir / seeds.SEEDS_DIRECTORY / made.seed
    assert {"backup.json", "store/CURRENT"} <= {name for name, _ in made.files}
    for name, size in made.files:
        ticket = flight.Ticket(msgspec.json.encode(SeedTicket(made.seed, name)))
        pieces = client.do_get(ticket, options).read_all().to_pylist()
        data = b"".join(piece["data"] for piece in pieces)
        assert all(zlib.crc32(piece["data"]) == piece["crc32"] for piece in pieces)
        assert (len(data), data) == (size, (directory / name).read_bytes())
    assert json.loads(act(client, "seed_done", {"seed": made.seed}))
    assert not directory.exists()
    assert not json.loads(act(client, "seed_done", {"seed": made.seed}))


@pytest.mark.parametrize("name", ["../committed", "/etc/passwd", "store", "store/none"])
def test_only_files_of_the_copy_are_given(client: flight.FlightClient, name: str) -> None:
    made = msgspec.json.decode(act(client, "seed", {}), type=SeedFiles)
    ticket = flight.Ticket(msgspec.json.encode(SeedTicket(made.seed, name)))
    with pytest.raises(flight.FlightServerError, match="there is no file"):
        client.do_get(ticket, flight.FlightCallOptions(headers=SHOWN)).read_all()


def test_only_so_many_copies_are_made_at_a_time(client: flight.FlightClient) -> None:
    for _ in range(SEEDS_MAX):
        act(client, "seed", {})
    with pytest.raises(flight.FlightServerError, match="take a copy of this store now"):
        act(client, "seed", {})


def test_a_member_that_asks_again_has_one_copy(client: flight.FlightClient, data_dir: Path) -> None:
    for _ in range(SEEDS_MAX + 1):
        made = msgspec.json.decode(act(client, "seed", {"node": "c"}), type=SeedFiles)
    names = [path.name for path in (data_dir / seeds.SEEDS_DIRECTORY).iterdir()]
    assert names == [made.seed]


def test_a_service_that_others_reach_and_that_asks_for_nothing_gives_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="gives copies of its store to nobody"):
        Seeds(tmp_path, trusts_anonymous=False).check_caller(has_token=False)
    Seeds(tmp_path, trusts_anonymous=True).check_caller(has_token=False)
    Seeds(tmp_path, trusts_anonymous=False).check_caller(has_token=True)


def test_a_copy_that_a_killed_service_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / seeds.SEEDS_DIRECTORY / "old" / "store").mkdir(parents=True)
    Seeds(tmp_path, trusts_anonymous=True)
    assert not (tmp_path / seeds.SEEDS_DIRECTORY).exists()


def test_a_member_that_does_not_listen_yet_is_a_sentence_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = "{}:{}".format(*closed.getsockname())
    with pytest.raises(StoreUnavailable, match=r"is the member running, and is this its stream\."):
        fetch_copy(address, Credentials(), tmp_path, "b", lambda *_: None)
