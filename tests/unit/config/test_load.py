"""Where settings come from, and the one sentence for each mistake."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.config.address import Address
from penstock.config.describe import as_toml
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.config.stream import StreamDefinition
from penstock.errors import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return path


def mistake(
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: dict[str, str] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(config_file, overrides, environ or {})
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings(environ={})
    assert settings == Settings()
    assert settings.listener.bind == Address("127.0.0.1", 1883)
    assert settings.durability.persistence == "file"
    assert settings.stream.streams == (StreamDefinition(name="messages", topic_filters=("#",)),)


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[limits]\nmax_inflight = 1\nreceive_maximum = 1\nmax_mqueue_len = 1\n",
    )
    environ = {"PENSTOCK_LIMITS__MAX_INFLIGHT": "2", "PENSTOCK_LIMITS__RECEIVE_MAXIMUM": "2"}
    limits = load_settings(path, {"limits.max_inflight": 3}, environ).limits
    assert (limits.max_inflight, limits.receive_maximum, limits.max_mqueue_len) == (3, 2, 1)
    assert limits.sessions_max == Settings().limits.sessions_max


def test_an_override_of_none_was_not_given() -> None:
    assert load_settings(None, {"log.level": None}, {}) == Settings()


def test_lists_are_json_in_the_environment() -> None:
    environ = {"PENSTOCK_STREAM__STREAMS": '[{"name": "t", "topic_filters": ["a/+", "b/#"]}]'}
    (stream,) = load_settings(environ=environ).stream.streams
    assert stream == StreamDefinition(name="t", topic_filters=("a/+", "b/#"))


def test_an_ipv6_address_in_the_environment_is_no_list() -> None:
    settings = load_settings(environ={"PENSTOCK_LISTENER__BIND": "[::1]:1883"})
    assert settings.listener.bind == Address("::1", 1883)


def test_variables_without_a_double_underscore_are_not_settings() -> None:
    environ = {"PENSTOCK_COMPILE": "0", "OTHER__LIMITS": "1"}
    assert load_settings(environ=environ) == Settings()


def test_settings_do_not_change_after_loading() -> None:
    settings = load_settings(environ={})
    with pytest.raises(ValidationError, match="frozen"):
        settings.limits.max_inflight = 1


def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, "[limits]\nmax_inflight = 70000\n")
    assert mistake(path) == (
        f"limits.max_inflight is 70000 (from {path}, line 2), but must be a whole number from 0 to"
        " 65535."
    )


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("LISTENER__BIND", "1883", "HOST:PORT with a port from 0 to 65535"),
        ("LISTENER__ALLOW_ANONYMOUS", "maybe", "true or false"),
        ("LISTENER__CONNECT_TIMEOUT_S", "0", "a number above 0 up to 3600"),
        ("LIMITS__RECEIVE_MAXIMUM", "0", "a whole number from 1 to 65535"),
        ("LIMITS__MAX_INFLIGHT", "many", "a whole number from 0 to 65535"),
        ("DURABILITY__PERSISTENCE", "disk", '"file" or "memory"'),
        ("STREAM__STREAMS", "[]", "a list of 1 to 100"),
        ("LOG__LEVEL", "loud", '"debug" or "info" or "warning" or "error"'),
    ],
)
def test_each_kind_of_value_says_what_it_may_be(variable: str, value: str, allowed: str) -> None:
    text = mistake(environ={f"PENSTOCK_{variable}": value})
    setting = variable.lower().replace("__", ".")
    assert text.startswith(f"{setting} is ")
    assert f"(from PENSTOCK_{variable}), but must be {allowed}" in text
    assert "\n" not in text


def test_a_mistake_inside_a_list_is_named_by_its_place() -> None:
    streams = '[{"name": "t", "topic_filters": ["a", "a/#/b"]}]'
    assert mistake(environ={"PENSTOCK_STREAM__STREAMS": streams}) == (
        "stream.streams[0].topic_filters[1] is 'a/#/b' (from PENSTOCK_STREAM__STREAMS),"
        " but must be an MQTT topic filter, such as # or plant/+/temperature."
    )


def test_a_missing_part_of_a_stream_is_named() -> None:
    text = mistake(environ={"PENSTOCK_STREAM__STREAMS": '[{"topic_filters": ["a"]}]'})
    assert text == "stream.streams[0].name is missing (from PENSTOCK_STREAM__STREAMS)."


def test_two_streams_of_one_name_are_refused() -> None:
    stream = '{"name": "t", "topic_filters": ["a"]}'
    text = mistake(environ={"PENSTOCK_STREAM__STREAMS": f"[{stream}, {stream}]"})
    assert text == "stream.streams names 't' twice; give each its own name."


def test_all_mistakes_are_told_each_in_its_line() -> None:
    text = mistake(overrides={"log.level": "loud", "durability.persistence": "disk"})
    assert text == (
        "durability.persistence is 'disk' (from the command line), but must be"
        ' "file" or "memory".\n'
        "log.level is 'loud' (from the command line), but must be"
        ' "debug" or "info" or "warning" or "error".'
    )


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LIMITS__MAX_INFLIHGT", "limits.max_inflight"),
        ("LIMIT__MAX_INFLIGHT", "limits.max_inflight"),
        ("LISTENER__MAX_INFLIGHT", "limits.max_inflight"),
        ("DURABILITY__DATADIR", "durability.data_dir"),
        ("LISTENER__PORT", "listener.bind"),  # as Mosquitto's users call it
        ("LIMITS__MAX_QUEUED_MESSAGES", "limits.max_mqueue_len"),
        ("ACCESS__ALLOW_ANONYMOUS", "listener.allow_anonymous"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_one_meant(variable: str, meant: str) -> None:
    text = mistake(environ={f"PENSTOCK_{variable}": "1"})
    assert text.endswith(f"(from PENSTOCK_{variable}) is not a setting; did you mean {meant}?")


def test_an_unknown_setting_like_no_other_is_answered_with_those_there_are() -> None:
    assert mistake(environ={"PENSTOCK_LOG__XYZZY": "1"}).endswith(
        "settings of log are level, format, file, file_bytes_max, files_max."
    )
    assert "the groups of settings are listener," in mistake(environ={"PENSTOCK_QQ__XYZZY": "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits", "is not valid TOML"),
        ("limits = 3", "write [limits] and its settings below it"),
        ("max_inflight = 3", "did you mean limits.max_inflight?"),
        ("[limit]\nmax_inflight = 3", "did you mean limits.max_inflight?"),
        ("[log]\nlevels = 'info'", "did you mean log.level?"),
        ("[limits]\nmqueue_priorities = {'a/#' = 300}", "must be a whole number from 1 to 255"),
        ("[limits]\nmqueue_priorities = {'a/#/b' = 3}", "an MQTT topic filter, such as"),
        ("[limits]\nmqueue_priorities = 3", "must be a table"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    sentence = mistake(path)
    assert said in sentence
    assert str(path) in sentence


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "absent.toml"
    assert mistake(path) == (
        f"The configuration file {path} cannot be read: No such file or directory."
    )


def test_bad_json_in_the_environment_is_one_sentence() -> None:
    text = mistake(environ={"PENSTOCK_STREAM__STREAMS": "[messages]"})
    assert text.startswith("PENSTOCK_STREAM__STREAMS is not valid JSON")


def test_priorities_come_from_file_and_environment_in_their_order(tmp_path: Path) -> None:
    wanted = {"b/#": 9, "a/+": 3}
    path = tmp_path / "p.toml"
    path.write_text('[limits.mqueue_priorities]\n"b/#" = 9\n"a/+" = 3\n', encoding="utf-8")
    environ = {"PENSTOCK_LIMITS__MQUEUE_PRIORITIES": '{"b/#": 9, "a/+": 3}'}
    for settings in (load_settings(path, {}, {}), load_settings(None, {}, environ)):
        assert list(settings.limits.mqueue_priorities.items()) == list(wanted.items())
        path.write_text(as_toml(settings), encoding="utf-8")
        assert load_settings(path, {}, {}) == settings
    for table in ({"a/#/b": 1}, {"a": 0}, {"a": 256}):
        assert "mqueue_priorities" in mistake(overrides={"limits.mqueue_priorities": table})


@pytest.mark.parametrize("bind", ["0.0.0.0:1883", "[::]:1883", "192.0.2.7:1883", "host.example:1"])
@pytest.mark.parametrize("setting", ["listener.bind", "stream.bind"])
def test_an_open_address_without_authentication_is_refused(setting: str, bind: str) -> None:
    text = mistake(overrides={setting: bind})
    assert text.startswith(f"{setting} is {bind}, which other machines can reach")
    assert "allow_anonymous = true" in text


def test_an_open_address_is_taken_when_everyone_is_let_in() -> None:
    overrides = {"listener.bind": "0.0.0.0:1883", "listener.allow_anonymous": True}
    assert load_settings(None, overrides, {}).listener.bind == Address("0.0.0.0", 1883)


def test_readers_that_show_a_token_may_come_from_other_machines() -> None:
    overrides = {"stream.bind": "0.0.0.0:8815", "stream.token_file": "tokens"}
    assert load_settings(None, overrides, {}).stream.file_options == ("--token-file", "tokens")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"certificate": "c.pem"}, "stream.certificate and stream.key, two PEM files, belong tog"),
        ({"key": "c.pem"}, "stream.certificate and stream.key, two PEM files, belong together"),
        ({"client_ca": "c.pem"}, "stream.client_ca asks readers for certificates, which are shown"),
        ({"token_file": "t", "allow_anonymous": True}, "leave out one of them"),
    ],
)
def test_settings_of_the_stream_service_that_contradict_each_other(
    settings: dict[str, object], said: str
) -> None:
    text = mistake(overrides={f"stream.{name}": value for name, value in settings.items()})
    assert said in text


def test_a_stream_service_that_is_off_needs_no_address_of_its_own() -> None:
    overrides = {"stream.bind": "0.0.0.0:1883", "stream.enabled": False}
    assert not load_settings(None, overrides, {}).stream.enabled


def test_two_services_do_not_share_a_port() -> None:
    overrides = {"listener.bind": "127.0.0.1:8815"}
    assert mistake(overrides=overrides).startswith("listener.bind and stream.bind are both")
    free = {"listener.bind": "127.0.0.1:0", "stream.bind": "127.0.0.1:0"}
    assert load_settings(None, free, {}).listener.bind == Address("127.0.0.1", 0)


def test_a_setting_with_one_underscore_is_not_left_out_without_a_word() -> None:
    with pytest.raises(ConfigError, match="did you mean PENSTOCK_LIMITS__MAX_INFLIGHT"):
        load_settings(None, {}, {"PENSTOCK_LIMITS_MAX_INFLIGHT": "3"})
    load_settings(None, {}, {"PENSTOCK_COMPILE": "0", "PENSTOCK_SEED": "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[listener]\naccept_protocol_versions = ["4"]', 'but must be "3.1" or "3.1.1" or "5".'),
        (
            '[jwt_login]\nalgorithms = ["none"]',
            """[0] is 'none' (from FILE, line 2), but must be "RS256\"""",
        ),
        ("[jwt_login]\nalgorithms = []", "but must be a list of at least 1."),
        (
            "[limits]\nmax_inflight = true",
            "is True (from FILE, line 2), but must be a whole number from 0",
        ),
        (
            "[access]\nfailure_delay_s = false",
            "is False (from FILE, line 2), but must be a number from 0",
        ),
        ('[listener]\nauto_id_prefix = "$bridge/"', "the first of them not $, or nothing."),
        ('[listener]\nauto_id_prefix = "\\u0000"', "but must be printable characters"),
        ('[http_login]\nurl = "https://x:99999/"', "but must be http://HOST[:PORT]/PATH"),
        ('[access]\nidentity_from_certificate = "subject"', "no listener asks for one"),
        ("[access]\nuse_subject_as_username = true", "mean access.identity_from_certificate?"),
        ('[mqtt5]\nserver_reference = "\\u0000"', "but must be printable characters"),
        ('[mqtt5]\nresponse_information = "\\u0007"', "but must be printable characters"),
        ("[listener]\nmax_qos = 1", "did you mean listener.maximum_qos?"),
    ],
)
def test_nonsense_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    found = mistake(path)
    assert said.replace("FILE", str(path)) in found
    assert "\n" not in found


def test_a_masked_secret_is_no_secret(tmp_path: Path) -> None:
    """A bridge would log in with eight asterisks."""
    remote = (
        '[[bridge.remotes]]\nname = "a"\naddresses = ["mqtt://x"]\npassword = "geheim"\n'
        'forwards = [{topic_filters = ["#"], direction = "out"}]\n'
    )
    printed = as_toml(load_settings(written(tmp_path, remote), environ={}))
    path = written(tmp_path, printed)
    line = printed.split("\n").index("[[bridge.remotes]]") + 1
    expected = f"bridge.remotes (from {path}, line {line}) has ******** in it"
    assert mistake(path).startswith(expected)
