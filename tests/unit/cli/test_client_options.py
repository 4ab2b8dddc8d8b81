"""The options of pub, sub and rr: where, who, and mistakes, told before anything is connected."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.broker_options import Url, parse_url
from penstock.cli.connection import Connection
from penstock.cli.main import app
from penstock.cli.selection import Selection
from penstock.errors import ConfigError
from penstock.protocol.packets import Will
from penstock.protocol.properties import Properties

FOR_EVER_S = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("connection", "server"),
    [
        (Connection(), "mqtt://localhost:1883"),
        (Connection(host="::1", port=1884), "mqtt://[::1]:1884"),
        (Connection(port=8883), "mqtts://localhost:8883"),
        (Connection(host="b", ca_file="ca.pem"), "mqtts://b:8883"),
        (Connection(port=1884, system_authorities=True), "mqtts://localhost:1884"),
        (Connection(unix="/run/mqtt.sock"), "unix:///run/mqtt.sock"),
        (Connection(url="mqtts://b/a/#"), "mqtts://b"),
        (Connection(host="a,::1", port=1884), "mqtt://a:1884,[::1]:1884"),
    ],
    ids=["default", "IPv6", "8883", "--cafile", "--tls-use-os-certs", "--unix", "-L", "cluster"],
)
def test_the_options_say_where_the_broker_is(connection: Connection, server: str) -> None:
    assert connection.parsed_url().server == server


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("mqtt://b", Url("mqtt://b", None, None, "")),
        ("mqtt://u:p%40ss@b:1/a/+/#", Url("mqtt://b:1", "u", b"p@ss", "a/+/#")),
        ("mqtts://u@[::1]/t?x", Url("mqtts://[::1]", "u", None, "t?x")),
        ("ws://u:p@b:80/mqtt?x=1", Url("ws://b:80/mqtt?x=1", "u", b"p", "")),
        ("wss://b", Url("wss://b", None, None, "")),
        ("mqtt://u:a,b@c,d:1/t,mqtt://", Url("mqtt://c,d:1", "u", b"a,b", "t,mqtt://")),
        ("unix:///run/s", Url("unix:///run/s", None, None, "")),
    ],
)
def test_a_url_is_read_as_mosquitto_does(text: str, url: Url) -> None:
    assert parse_url(text) == url


def test_the_topic_of_the_url_is_one_more() -> None:
    connection = Connection(url="mqtt://b/a/b")
    assert connection.with_url_topic(["c"]) == ["c", "a/b"]
    assert Connection().with_url_topic(None) == []


@pytest.mark.parametrize(
    ("connection", "clean", "expiry_s"),
    [
        (Connection(), True, None),
        (Connection(client_id="i", keeps_session=True), False, FOR_EVER_S),
        (Connection(client_id="i", keeps_session=True, session_expiry="60"), False, 60),
        (Connection(session_expiry="60"), True, 60),
        (Connection(client_id="i", session_expiry="-1"), True, FOR_EVER_S),
        (Connection(client_id="i", session_expiry="∞"), True, FOR_EVER_S),
    ],
    ids=["neither", "-c", "-c -x", "-x", "-x -1", "-x for ever"],
)
def test_the_options_say_how_long_the_session_lasts(
    connection: Connection, clean: bool, expiry_s: int | None
) -> None:
    settings = connection.settings({})
    assert (settings["clean_start"], settings["session_expiry_s"]) == (clean, expiry_s)


def test_the_options_say_who_asks(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"secret\n")
    settings = Connection(username="u", password_file=file, id_prefix="x-").settings({})
    assert (settings["username"], settings["password"]) == ("u", b"secret")
    assert settings["client_id"].startswith("x-")
    of_url = Connection(url="mqtt://u:p@b").settings({})
    assert (of_url["username"], of_url["password"]) == ("u", b"p")
    assert Connection(password="\udcff").settings({})["password"] == b"\xff"


@pytest.mark.parametrize("given", ["5", "mqttv5", "MQTTv5"])
def test_versions_have_the_names_of_mosquitto(given: str) -> None:
    assert Connection(version=given).settings({})["version"] == "5"
    assert Connection(version="mqttv311").settings({})["version"] == "3.1.1"
    assert Connection(version="31").settings({})["version"] == "3.1"


def test_properties_of_connect_become_settings() -> None:
    connect = Properties(receive_maximum=5, session_expiry_interval=9, user_properties=[("k", "v")])
    settings = Connection().settings({"connect": connect})
    assert settings["receive_maximum"] == 5
    assert settings["session_expiry_s"] == 9
    assert settings["user_properties"] == [("k", "v")]


def test_a_will() -> None:
    connection = Connection(will_topic="w", will_payload="x", will_qos=1, will_retain=True)
    assert connection.settings({})["will"] == Will("w", b"x", 1, True)


@pytest.mark.parametrize(
    ("connection", "told"),
    [
        (Connection(url="mqtt://b", host="c"), "only one of -L"),
        (Connection(unix="/s", port=1), "only one of -L"),
        (Connection(url="b"), "-L must be"),
        (Connection(version="4"), "-V is '4'"),
        (Connection(keeps_session=True), "give -i"),
        (Connection(client_id="i", id_prefix="x"), "only one of -i and -I"),
        (Connection(session_expiry="soon"), "-x must be"),
        (Connection(password="p", password_file=Path("f")), "only one of --pw"),
        (Connection(password_file=Path("/absent")), "/absent"),
        (Connection(url="mqtt://b", ca_file="x"), "speaks no TLS"),
        (Connection(alpn="http/1.1"), "must be mqtt"),
        (Connection(will_payload="x"), "--will-topic"),
    ],
)
def test_a_mistake_in_the_connection_is_told(connection: Connection, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        connection.settings({})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("pub -t a", "give a message"),
        ("pub -m x", "give the topic with -t"),
        ("pub -t a -m x -l", "only one of -m"),
        ("pub -t a -l --repeat 2", "--repeat goes with"),
        ("pub -t a -m x --outbox b -q 0", "leave out -q 0"),
        ("pub -t a -f /absent", "/absent"),
        ("pub -t a -m x -D publish content-type y -V 311", "needs MQTT 5"),
        ("sub", "topics to subscribe to"),
        ("sub -t a -T a/#/b", "-T: not a topic filter"),
        ("sub -t a -R --retained-only", "only one of -R"),
        ("sub -t a --json -v", "only one of --json"),
        ("sub -t a --output /absent/file", "/absent/file"),
        ("rr -m x", "-t"),
        ("rr -t a", "give one request"),
        ("rr -t a -m x -V 311", "give -e"),
    ],
)
def test_a_mistake_in_a_command_is_told(arguments: str, told: str) -> None:
    error = CliRunner().invoke(app, arguments.split()).exception
    assert isinstance(error, ConfigError)
    assert told in str(error)


@pytest.mark.parametrize("command", ["pub", "sub", "rr"])
def test_help_is_long_and_h_is_the_host(command: str) -> None:
    answer = CliRunner().invoke(app, [command, "--help"])
    assert answer.exit_code == 0
    assert "-h, --host" in answer.stdout
    assert CliRunner().invoke(app, [command, "-h"]).exit_code == 2


def test_a_selection_leaves_out_what_its_filters_match() -> None:
    selection = Selection(filters_out=["a/#", "b/+"])
    assert [one for one in ("a", "a/x/y", "b", "b/c") if selection.excludes(one)] == [
        *("a", "a/x/y", "b/c"),
    ]
