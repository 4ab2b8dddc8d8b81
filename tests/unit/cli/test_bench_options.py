"""The options of bench: mistakes are told before anything is connected."""

import pytest
from typer.testing import CliRunner

from penstock.cli.bench import BenchBrokerOptions
from penstock.cli.main import app
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-d", "1", "-n", "1"), "only one of -d and -n"),
        (("-s", "27"), "must be 28 or more"),
        (("-t", "a/#"), "must be a topic"),
        (("-V", "4"), "-V is '4'"),
        (("-h", "b", "-L", "mqtt://b"), "only one of -L"),
        (("--tls-alpn", "mqtt", "-L", "mqtt://b"), "speaks no TLS"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert told in str(result.exception)


@pytest.mark.parametrize("arguments", [("-P", "0"), ("-q", "3"), ("-w", "0"), ("-r", "-1")])
def test_a_number_out_of_its_range_is_a_mistake(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["bench", *arguments]).exit_code == 2


def test_help_has_its_own_meaning_of_the_short_options() -> None:
    told = CliRunner().invoke(app, ["bench", "--help"]).stdout
    for words in ("-P, --publishers", "-d, --duration", "--pw", "--cafile", "-c, --persistent"):
        assert words in told


def test_login_and_tls_are_as_for_pub() -> None:
    broker = BenchBrokerOptions(host="b", username="u", password="p", ca_file="ca.pem")
    assert broker.parsed_url().server == "mqtts://b:8883"
    login = broker.login()
    assert (login["username"], login["password"], login["version"]) == ("u", b"p", "5")
    tls = login["tls"]
    assert tls is not None
    assert tls.ca == "ca.pem"
