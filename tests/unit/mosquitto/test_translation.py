"""Every option of Mosquitto 2.0 and 2.1 becomes a setting, or a sentence that says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from penstock.config.memory import share_note
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.mosquitto.authorities import FILE_CHARS_MAX
from penstock.mosquitto.broker_options import GENERAL_OPTIONS
from penstock.mosquitto.configuration import (
    BRIDGE_OPTIONS,
    LISTENER_OPTIONS,
    SECURITY_OPTIONS,
    is_known,
    looks_like_mosquitto,
    read_configuration,
)
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Finding
from penstock.mosquitto.translation import Translation

DEBIAN: Final = Path("/etc/mosquitto/mosquitto.conf")
EXAMPLE: Final = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf")
HASH: Final = "$7$101$" + "c2FsdHNhbHQ=" + "$" + "QUFB" * 21 + "QQ=="

VALUES: Final = {
    "accept_protocol_versions": "4, 5",
    "address": "remote.example:8883",
    "addresses": "remote.example [::1]:1884",
    "bind_address": "127.0.0.1",
    "bridge_protocol_version": "mqttv50",
    "bridge_tcp_keepalive": "10 10 3",
    "connection": "up",
    "enable_proxy_protocol": "2",
    "listener": "1883 127.0.0.1",
    "log_dest": "stderr",
    "log_type": "debug",
    "mount_point": "tenant/7/",
    "persistent_client_expiration": "3d",
    "protocol": "websockets",
    "restart_timeout": "5 30",
    "socket_domain": "ipv4",
    "start_type": "automatic",
    "tls_version": "tlsv1.2",
    "topic": "plant/# both 2",
    "websockets_origin": "https://page.example",
}
NUMBERS: Final = re.compile(
    "max_|maximum_|_interval|global_max|idle_|threshold|port$|memory_limit|message_size|_size|_level"
    "|facility"
)
FILES: Final = ("file", "path", "dir", "location")


def value_of(option: str, directory: Path) -> str:
    """Return a value that Mosquitto takes for this option."""
    if option in VALUES:
        return VALUES[option]
    if option == "password_file":
        return str(directory / "pw")
    if option == "acl_file":
        return str(directory / "acl")
    if option in ("max_qos", "maximum_qos"):
        return "1"
    if NUMBERS.search(option):
        return "1000"
    if option.endswith(FILES) or option.startswith(("plugin", "auth_plugin", "global_plugin")):
        return str(directory / option)
    if option.endswith(("name", "id", "prefix", "topic", "password", "hint", "identity", "psk")):
        return "word"
    return "true"


def translate(directory: Path, text: str, **files: str) -> tuple[list[Finding], Settings]:
    """Return the findings, and the settings as the broker reads them."""
    for name, content in files.items():
        (directory / name).write_text(content)
    path = directory / "mosquitto.conf"
    path.write_text(text.replace("DIR", str(directory)))
    found = Translation(read_configuration(path), frozenset(), directory)
    for name, content in found.bundles.items():
        (directory / name).write_text(content)
    written = directory / "penstock.toml"
    written.write_text(found.toml())
    return found.findings.all, load_settings(written, environ={})


def finding(found: list[Finding], line: int) -> Finding:
    """The only finding about a line of the configuration."""
    (one,) = [one for one in found if one.place.endswith(f"mosquitto.conf:{line}")]
    return one


def all_options() -> list[str]:
    return sorted(
        {
            *GENERAL_OPTIONS,
            *LISTENER_OPTIONS,
            *SECURITY_OPTIONS,
            *BRIDGE_OPTIONS,
            "plugin_opt_x",
            "port",
            "bind_address",
        }
        - {"include_dir", "connection", "listener"}
    )


@pytest.mark.parametrize("option", all_options())
def test_each_option_alone_has_one_finding_and_the_result_is_a_configuration(
    option: str, tmp_path: Path
) -> None:
    value = value_of(option, tmp_path)
    before = "listener 1883 127.0.0.1\n"
    if option in BRIDGE_OPTIONS:
        before = "connection up\n" if option.startswith("address") else ""
        before = before or "connection up\naddress remote.example\n"
    elif option in ("port", "bind_address"):
        before = ""
    line = before.count("\n") + 1
    rest = "" if option == "topic" else "topic cmd/# in 1\n"
    found, _ = translate(
        tmp_path,
        f"{before}{option} {value}\n{rest if option in BRIDGE_OPTIONS else ''}",
        pw=f"alice:{HASH}\n",
        acl="topic read x\n",
    )
    one = finding(found, line)
    assert one.kind in (TAKEN, SAME, DIFFERS, MISSING)
    assert "knows no such option" not in one.explanation
    assert one.explanation.endswith(".")


@pytest.mark.skipif(not EXAMPLE.exists(), reason="Mosquitto's documents are not installed")
def test_every_option_of_the_example_that_mosquitto_ships_is_known() -> None:
    named = re.findall(r"^#?([a-z_0-9.]{4,})(?: .*)?$", EXAMPLE.read_text(), re.MULTILINE)
    options = [name for name in named if "_" in name or name in ("listener", "port", "user")]
    assert len(options) > 70
    assert [name for name in options if not is_known(name)] == []
    assert looks_like_mosquitto(EXAMPLE)


@pytest.mark.skipif(not EXAMPLE.exists(), reason="Mosquitto's documents are not installed")
def test_the_example_as_it_is_listens_on_this_machine_and_lets_everyone_in(tmp_path: Path) -> None:
    found, settings = translate(tmp_path, EXAMPLE.read_text())
    assert str(settings.listener.bind) == "127.0.0.1:1883"
    assert settings.listener.allow_anonymous
    assert [one.place for one in found] == [""] * len(found)  # defaults only


@pytest.mark.skipif(not DEBIAN.exists(), reason="Mosquitto is not installed")
def test_the_configuration_that_debian_ships_comes_over_whole(tmp_path: Path) -> None:
    configuration = read_configuration(DEBIAN)
    found = Translation(configuration, frozenset(), tmp_path).findings.all
    places = [one.place for one in found]
    assert [line.text for line in configuration.lines() if line.place not in places] == []
    assert [one for one in found if one.kind == MISSING] == []


def test_values_come_over_with_the_line_that_they_are_from(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b.conf").write_text("max_keepalive 300\n")
    (tmp_path / "conf.d" / "a.conf").write_text("sys_interval 30\n")
    (tmp_path / "conf.d" / "not-read").write_text("nonsense\n")
    _, settings = translate(
        tmp_path,
        "listener 1884 127.0.0.1\nmax_connections 50\nmax_inflight_messages 7\n"
        "persistent_client_expiration 2w\nmessage_size_limit 1000\ninclude_dir DIR/conf.d\n"
        "listener 0 DIR/socket\nlistener 8080 ::1\nprotocol websockets\nmax_topic_alias 3\n",
    )
    limits = settings.limits
    assert (limits.max_inflight, limits.session_expiry_s_max) == (7, 1_209_600)
    assert (limits.max_packet_size_bytes, limits.keep_alive_s_max) == (66_536, 300)
    assert settings.status.sys_interval_s == 30
    main, unix, ws = settings.listener.enabled_listeners()
    assert (str(main.bind), main.kind, main.max_connections) == ("127.0.0.1:1884", "tcp", 50)
    assert (str(unix.bind), unix.kind) == (f"{tmp_path}/socket", "unix")
    assert (str(ws.bind), ws.kind, ws.limits.topic_alias_maximum) == ("[::1]:8080", "ws", 3)
    text = (tmp_path / "penstock.toml").read_text()
    assert f"# {tmp_path}/mosquitto.conf:3: max_inflight_messages 7\nmax_inflight = 7" in text
    assert f"# {tmp_path}/conf.d/b.conf:1: max_keepalive 300" in text


def test_a_limit_of_sessions_is_that_of_one_user_too(tmp_path: Path) -> None:
    """Mosquitto knows no shares: 100 clients with one user name were 25."""
    found, settings = translate(tmp_path, "global_max_clients 100\n")
    assert (settings.limits.sessions_max, settings.limits.sessions_per_user_max) == (100, 100)
    assert share_note(settings) == ""
    assert "sessions_per_user_max" in finding(found, 1).explanation


def test_an_included_file_includes_no_others(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("include_dir elsewhere\n")
    with pytest.raises(ConfigError, match=r"a\.conf:1: include_dir is in an included file"):
        translate(tmp_path, "include_dir DIR/conf.d\n")


def test_an_option_that_nobody_knows_is_told(tmp_path: Path) -> None:
    found, _ = translate(tmp_path, "max_inflght_messages 5\nmax_keepalive soon\ntopic x out\n")
    assert finding(found, 1).kind == MISSING
    assert "spelt right" in finding(found, 1).explanation
    assert "correct it" in finding(found, 2).explanation
    assert "no `connection` line" in finding(found, 3).explanation


def test_a_listener_with_less_protection_than_before_is_left_out(tmp_path: Path) -> None:
    found, settings = translate(
        tmp_path,
        "listener 1884\npsk_hint hint\ncertfile c.pem\nlistener 1885\nmount_point tenant\n"
        "listener 8883\ncertfile c.pem\nkeyfile k.pem\nrequire_certificate true\n"
        "listener 1886 127.0.0.1\nallow_anonymous true\nlistener 0 DIR/s\nprotocol websockets\n",
    )
    assert [str(one.bind) for one in settings.listener.enabled_listeners()] == ["127.0.0.1:1886"]
    assert finding(found, 3).explanation == "The listener of this line is not opened."
    for line in (1, 4, 6, 12):
        assert finding(found, line).explanation.startswith("The listener is not opened: ")


def test_without_a_line_that_opens_one_the_listener_is_for_this_machine_only(
    tmp_path: Path,
) -> None:
    _, settings = translate(tmp_path, "max_connections 50\nprotocol websockets\n")
    assert str(settings.listener.bind) == "127.0.0.1:1883"
    assert settings.listener.allow_anonymous
    _, settings = translate(tmp_path, "max_connections 50\nport 1884\nallow_anonymous true\n")
    assert str(settings.listener.bind) == "0.0.0.0:1884"
    assert settings.listener.max_connections == 50


def test_each_line_has_a_finding_however_odd_the_file_is(tmp_path: Path) -> None:
    text = (
        "per_listener_settings true\nport 1883\nport 1884\nbind_address 127.0.0.1\n"
        "listener 0 DIR/socket\nsocket_domain ipv4\nallow_anonymous true\nallow_anonymous false\n"
        "listener 1885\nprotocol http_api\nallow_anonymous true\npassword_file DIR/pw\n"
        "connection lost\nkeepalive_interval 7\naddress a\naddress b\nbridge_psk x\ntopic # out\n"
        "max_inflight_messages 1\nmax_inflight_messages 2\nuser\n"
    )
    found, settings = translate(tmp_path, text, pw=f"alice:{HASH}\n")
    places = {one.place.rpartition(":")[2] for one in found}
    assert {str(number) for number in range(1, text.count("\n") + 1)} <= places
    assert settings.bridge.remotes == ()
    assert finding(found, 14).explanation == "The bridge of this line is left out."
    assert settings.limits.max_inflight == 2


def certificate(letter: str) -> str:
    body = letter * 64
    return f"-----BEGIN CERTIFICATE-----\n{body}\n{body}==\n-----END CERTIFICATE-----\n"


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    """A directory as people have it: keys beside certificates, and in the same files."""
    key = "-----BEGIN PRIVATE KEY-----\nTUlJRXZ3\n-----END PRIVATE KEY-----\n"
    directory = tmp_path / "ca"
    directory.mkdir()
    (directory / "a.pem").write_text(f"subject=a\n{key}{certificate('A')}")
    (directory / "3f2a1b0c.0").symlink_to("a.pem")
    (directory / "b.crt").write_text(
        certificate("A") + certificate("B").replace("\n", "\r\n") + key
    )
    (directory / "key.pem").write_text(f"BEGIN CERTIFICATE\n{key}")
    (directory / "server.key").write_text(certificate("C") + key)
    return directory


@pytest.mark.usefixtures("authorities")
def test_authorities_of_a_directory_are_joined_without_the_keys_beside_them(tmp_path: Path) -> None:
    found, settings = translate(
        tmp_path,
        "listener 8883\ncapath DIR/ca\ncertfile c.pem\nkeyfile k.pem\nrequire_certificate true\n"
        "use_identity_as_username true\nconnection up\naddress r\ntopic # out\n"
        "bridge_capath DIR/ca\n",
    )
    listener = settings.listener
    assert listener.require_client_certificate
    assert settings.access.identity_from_certificate == "common_name"
    assert finding(found, 2).kind == DIFFERS
    assert "the 2 certificates" in finding(found, 2).explanation
    for bundle in (listener.client_ca, settings.bridge.remotes[0].ca):
        assert Path(bundle).read_text() == certificate("A") + certificate("B")


def test_a_file_that_is_too_long_for_certificates_is_told(authorities: Path) -> None:
    with (authorities / "long.pem").open("w") as file:
        file.truncate(FILE_CHARS_MAX + 1)
    found, settings = translate(
        authorities.parent, "connection up\naddress r\ntopic # out\nbridge_capath DIR/ca\n"
    )
    assert settings.bridge.remotes == ()
    assert any(
        "File too large" in one.explanation and "long.pem" in one.explanation for one in found
    )


def test_secrets_stand_in_no_report_and_in_no_comment(tmp_path: Path) -> None:
    found, settings = translate(
        tmp_path,
        "connection up\naddress r\ntopic # out\nremote_password hush\nplugin p.so\n"
        "plugin_opt_db_password quiet\n",
    )
    assert settings.bridge.remotes[0].password == "hush"
    assert not any("hush" in one.text + one.explanation for one in found)
    assert not any("quiet" in one.text + one.explanation for one in found)
    assert (tmp_path / "penstock.toml").read_text().count("hush") == 1


def test_bridges_come_over_with_their_rules(tmp_path: Path) -> None:
    found, settings = translate(
        tmp_path,
        "connection up stream\naddress a.example b.example:8883 # two\nbridge_cafile DIR/ca.pem\n"
        'topic plant/# out 1 "" site/7/\ntopic cmd/# in 2 local/ remote/\n'
        'topic "a b/#" both\ntopic "" out 0 x/state y/z/state\ntopic "" out 0 x/state y/other\n'
        "topic $SYS/# in\nbridge_outgoing_retain false\nremote_clientid gate\n"
        "restart_timeout 2 60\nnotification_topic up/state\n"
        "connection lost\ntopic # out\n",
    )
    (remote,) = settings.bridge.remotes
    assert (remote.name, remote.client_id, remote.version) == ("up", "gate", "3.1.1")
    assert remote.addresses == ("mqtts://a.example:1883", "mqtts://b.example:8883")
    assert (remote.reconnect_s_min, remote.reconnect_s_max) == (2, 60)
    assert remote.status_topic == "up/state"
    rules = [
        (one.topic_filters[0], one.direction, one.qos_max, one.local_prefix, one.remote_prefix)
        for one in remote.forwards
    ]
    assert rules == [
        ("plant/#", "out", 1, "", "site/7/"),
        ("cmd/#", "in", 2, "local/", "remote/"),
        ("a b/#", "out", 0, "", ""),
        ("a b/#", "in", 0, "", ""),
        ("state", "out", 0, "x/", "y/z/"),
    ]
    assert [one.retain for one in remote.forwards] == [False, True, False, True, False]
    assert finding(found, 8).kind == MISSING
    assert "below $" in finding(found, 9).explanation
    assert "has no valid address" in finding(found, 14).explanation


def test_a_configuration_of_mosquittos_is_told_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    for text, is_mosquitto in (
        ("# words\nlistener 1883\n", True),
        ("persistence true\n", True),
        ("connection up\n", True),
        ('[listener]\nbind = "127.0.0.1:1883"\n', False),
        ("log = 3\n", False),
        ("", False),
    ):
        path.write_text(text)
        assert looks_like_mosquitto(path) is is_mosquitto, text
