"""The stream service of a real broker with TLS and tokens, and both read again at SIGHUP."""

import signal
import ssl
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.stream import app
from penstock.errors import ConfigError
from penstock.stream.client import StreamClient
from penstock.stream.credentials import Credentials
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority
from tests.support.fixtures import running_broker

OLD, NEW = "the-old-token-0123456789", "the-new-token-0123456789"


def secured_by(authority: Authority, tokens: Path) -> dict[str, object]:
    certificate, key = authority.issue("stream", "127.0.0.1")
    tokens.write_text(f"{OLD}\n")
    return {"stream.certificate": certificate, "stream.key": key, "stream.token_file": tokens}


def address(broker: Broker) -> str:
    return ":".join(map(str, broker.stream_address))


def certificate_of(broker: Broker, authority: Authority) -> str:
    """What the service shows."""
    return ssl.get_server_certificate(broker.stream_address, ca_certs=authority.file)


def readable(broker: Broker, authority: Authority, token: str) -> bool:
    credentials = Credentials(True, authority.file, token)
    try:
        with StreamClient(address(broker), DEADLINE_S, credentials) as client:
            return client.offsets("messages").latest == 0
    except ConfigError:
        return False


def test_files_of_the_stream_service_are_read_again_at_sighup(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tokens = tmp_path / "tokens"
    settings = secured_by(authority, tokens)
    with running_broker(tmp_path, settings, stream=True) as broker:
        assert readable(broker, authority, OLD)
        assert not readable(broker, authority, NEW)
        shown = certificate_of(broker, authority)

        tokens.write_text("short\n")
        broker.process.send_signal(signal.SIGHUP)
        wait_for("the refusal", lambda: "SIGHUP: nothing was changed" in broker.log())
        assert readable(broker, authority, OLD)

        authority.issue("stream", "127.0.0.1")
        tokens.write_text(f"{NEW}\n")
        broker.process.send_signal(signal.SIGHUP)
        wait_for("the new token", lambda: readable(broker, authority, NEW))
        assert not readable(broker, authority, OLD)
        assert certificate_of(broker, authority) != shown
        assert OLD not in broker.log()
        assert NEW not in broker.log()


def test_commands_show_their_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tokens = tmp_path / "tokens"
    settings = secured_by(authority, tokens)
    with running_broker(tmp_path, settings, stream=True) as broker:
        readers = ["readers", "--server", address(broker), "--tls-ca-file", authority.file]
        refused = CliRunner().invoke(app, readers)
        assert "the stream service asks for a token" in str(refused.exception)
        shown = CliRunner().invoke(app, [*readers, "--token-file", str(tokens), "--json"])
        assert (shown.exit_code, shown.output) == (0, "")


@pytest.mark.parametrize("setting", ["stream.token_file", "stream.certificate"])
def test_a_file_that_is_missing_ends_the_start(tmp_path: Path, setting: str) -> None:
    settings = {setting: "absent", **({"stream.key": "absent"} if "cert" in setting else {})}
    broker = Broker(tmp_path, settings, stream=True)
    try:
        with pytest.raises(AssertionError, match="the broker ended before it was ready"):
            broker.start()
        assert broker.process.wait(DEADLINE_S) == 2
        assert "absent" in broker.log().splitlines()[-1]
    finally:
        broker.close()
