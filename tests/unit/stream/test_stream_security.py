"""Tokens and TLS of the stream service: who may read, and whom a reader believes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from penstock.auth.tokens import Tokens, read_tokens
from penstock.errors import ConfigError
from penstock.stream.client import StreamClient, StreamUnavailable
from penstock.stream.credentials import Credentials
from penstock.stream.requests import StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.dial import Authority

TOKEN = "0123456789abcdef"
NEXT_TOKEN = "fedcba9876543210=="
STAGING = StageRowsRequest("sink", 0, "run", 0, 0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"# of the readers\n{TOKEN}\n\n{NEXT_TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, token_file: Path
) -> Iterator[ServiceProcess]:
    """A service with TLS and tokens over a log of five messages."""
    certificate, key = authority.issue("server", "127.0.0.1")
    files = ["--certificate", certificate, "--key", key, "--token-file", str(token_file)]
    with LogWriter(tmp_path_factory.mktemp("data")) as log:
        log.append(5)
        process = ServiceProcess(log.data_dir, *files)
        process.start()
        yield process
        process.stop()


def count(server: str, credentials: Credentials) -> int:
    with StreamClient(server, 10, credentials) as client:
        log = client.offsets("messages")
        rows = client.read("messages", log.epoch, log.earliest, log.latest)
        return sum(batch.num_rows for batch in rows)


def test_a_reader_with_token_and_authority_reads(
    secured: ServiceProcess, authority: Authority, token_file: Path
) -> None:
    for token in (TOKEN, NEXT_TOKEN):
        assert count(secured.address, Credentials(True, authority.file, token)) == 5
    by_file = Credentials(True, authority.file, token_file=str(token_file))
    assert count(secured.address, by_file) == 5


def test_a_writer_shows_its_token_too(
    secured: ServiceProcess, authority: Authority, token_file: Path
) -> None:
    credentials = Credentials(True, authority.file, token_file=str(token_file))
    with (
        StreamClient(secured.address, 10, credentials) as client,
        pytest.raises(ConfigError, match=r"nothing may be published .* stream\.allow_publish"),
    ):
        client.stage(STAGING, PUBLISH_SCHEMA.empty_table())


@pytest.mark.parametrize(
    ("token", "sentence"),
    [("", "the stream service asks for a token"), (TOKEN[1:] + "0", "does not know the token")],
)
def test_without_a_token_that_is_known_every_call_is_refused(
    secured: ServiceProcess, authority: Authority, token: str, sentence: str
) -> None:
    credentials = Credentials(True, authority.file, token)
    with StreamClient(secured.address, 10, credentials) as client:
        for call in (
            client.streams,
            lambda: client.offsets("messages"),
            lambda: client.offset_at("messages", "e", 0),
            lambda: list(client.read("messages", "e", 0, 1)),
            lambda: client.stage(STAGING, PUBLISH_SCHEMA.empty_table()),
        ):
            with pytest.raises(ConfigError, match=sentence):
                call()
    roots = Path(authority.file).read_bytes()
    with flight.FlightClient(f"grpc+tls://{secured.address}", tls_root_certs=roots) as plain:
        for listing in (plain.list_flights, plain.list_actions):
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(listing())


def test_a_service_that_is_not_believed_is_told_at_once(
    secured: ServiceProcess, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    with pytest.raises(ConfigError, match=r"not for this name or not signed by .*\.pem"):
        count(secured.address, Credentials(True, stranger.file, TOKEN))
    with pytest.raises(ConfigError, match="or not signed by an authority this machine knows"):
        count(secured.address, Credentials(True, "", TOKEN))


def test_a_reader_without_tls_is_told_what_it_may_lack(secured: ServiceProcess) -> None:
    with (
        StreamClient(secured.address, 0, Credentials(token=TOKEN)) as client,
        pytest.raises(StreamUnavailable, match=r"or does it speak TLS\?"),
    ):
        client.offsets("messages")


def test_a_token_needs_its_scheme(secured: ServiceProcess, authority: Authority) -> None:
    roots = Path(authority.file).read_bytes()
    with flight.FlightClient(f"grpc+tls://{secured.address}", tls_root_certs=roots) as plain:
        for value, is_known in ((f"bearer {TOKEN}", True), (TOKEN, False), ("Bearer", False)):
            headers = [(b"authorization", value.encode())]
            options = flight.FlightCallOptions(headers=headers)
            if is_known:
                assert list(plain.do_action(flight.Action("streams", b""), options))
            else:
                with pytest.raises(flight.FlightUnauthenticatedError):
                    list(plain.do_action(flight.Action("streams", b""), options))


def test_a_service_without_tls_is_told_at_once(tmp_path: Path, authority: Authority) -> None:
    with LogWriter(tmp_path) as log:
        process = ServiceProcess(log.data_dir)
        process.start()
        try:
            with pytest.raises(ConfigError, match=f"at {process.address} speaks no TLS"):
                count(process.address, Credentials(True, authority.file))
        finally:
            process.stop()


@pytest.mark.parametrize(
    ("credentials", "sentence"),
    [
        (Credentials(token_file="absent"), "token file absent cannot be read"),
        (Credentials(True, "absent"), "authorities absent cannot be used: .*No such file"),
        (Credentials(True, __file__), "cannot be used: it is not PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    credentials: Credentials, sentence: str
) -> None:
    with (
        StreamClient("127.0.0.1:1", 10, credentials) as client,
        pytest.raises(ConfigError, match=sentence),
    ):
        client.offsets("messages")


def test_a_token_is_in_no_representation() -> None:
    assert TOKEN not in repr(Credentials(token=TOKEN))
    assert TOKEN not in repr(Tokens([TOKEN]).__dict__)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no token in it"),
        ("# only this\n", "has no token in it"),
        ("too-short\n", "line 1 is no token, which must be 16 to 4096"),
        (f"{TOKEN}\n:{TOKEN}\n", "line 2 is no token"),
        (f"{TOKEN} {TOKEN}\n", "line 1 has a word behind the token that is no role"),
    ],
)
def test_a_token_file_with_a_mistake_is_one_sentence_without_the_token(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_tokens(path)
    assert sentence in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("wrong", ["certificate", "key", "token_file"])
def test_a_service_with_a_file_that_does_not_fit_ends_with_exit_code_2(
    tmp_path: Path, authority: Authority, token_file: Path, wrong: str
) -> None:
    certificate, key = authority.issue("one", "127.0.0.1")
    other_key = authority.issue("other", "127.0.0.1")[1]
    files = {"certificate": certificate, "key": key, "token_file": str(token_file)}
    files[wrong] = {"certificate": "absent", "key": other_key, "token_file": "absent"}[wrong]
    arguments = [
        part for name, path in files.items() for part in (f"--{name.replace('_', '-')}", path)
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "penstock.stream.service", "--data-dir", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 2
    assert "penstock: stream service: " in ended.stderr.splitlines()[-1]


def test_a_service_that_asks_for_certificates_lets_nobody_in_without(
    tmp_path: Path, authority: Authority
) -> None:
    """Those of another authority are none."""
    (tmp_path / "elsewhere").mkdir()
    certificate, key = authority.issue("server", "127.0.0.1")
    files = ["--certificate", certificate, "--key", key, "--client-ca", authority.file]
    ours = authority.issue("reader", "reader.example")
    theirs = Authority(tmp_path / "elsewhere").issue("reader", "reader.example")
    with LogWriter(tmp_path / "data") as log:
        log.append(5)
        process = ServiceProcess(log.data_dir, *files)
        process.start()
        try:
            server = process.address
            shown = Credentials(True, authority.file, "", "", *ours)
            assert count(server, shown) == 5
            for wrong, doubt in (
                (Credentials(True, authority.file), "ask for a certificate of ours"),
                (Credentials(True, authority.file, "", "", *theirs), "not know who signed our"),
            ):
                with (
                    StreamClient(server, 0, wrong) as client,
                    pytest.raises(StreamUnavailable, match=doubt),
                ):
                    client.streams()
            mixed = Credentials(True, authority.file, "", "", ours[0], theirs[1])
            with pytest.raises(ConfigError, match=r"^the reader: the certificate .* cannot be use"):
                count(server, mixed)
        finally:
            process.stop()
