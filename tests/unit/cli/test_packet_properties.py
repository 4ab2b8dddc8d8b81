"""``-D``: three words or four, and nothing else of the command line changed."""

import pytest

from penstock.cli.packet_properties import fold_properties, parse_properties
from penstock.errors import ConfigError

WITH_VALUE = ("-t", "-m", "--message", "-D")
COMMANDS = ("connect", "publish", "will")


def parsed(*words: str) -> dict[str, list[tuple[str, object]]]:
    given = [word for word in fold_properties(words, WITH_VALUE) if word != "-D"]
    return {command: p.present() for command, p in parse_properties(given, COMMANDS).items()}


def test_properties_are_read_by_command() -> None:
    words = "-D publish content-type text/plain -D PUBLISH message-expiry-interval 30 "
    words += "-D will user-property k v -D will user-property k w -D publish correlation-data c"
    assert parsed(*words.split()) == {
        "publish": [
            ("message_expiry_interval", 30),
            ("content_type", "text/plain"),
            ("correlation_data", b"c"),
        ],
        "will": [("user_properties", [("k", "v"), ("k", "w")])],
    }


def test_a_value_that_looks_like_the_option_is_one() -> None:
    words = ["-m", "-D", "-D", "publish", "user-property", "-D", "-t", "-t", "a"]
    assert fold_properties(words, WITH_VALUE) == [
        *("-m", "-D", "-D", "publish\0user-property\0-D\0-t", "-t", "a"),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-D publish", "-D is followed by"),
        ("-D publish content-type", "-D is followed by"),
        ("-D publish user-property k", "-D is followed by"),
        ("-D suback reason-string x", "must be one of connect, publish, will"),
        ("-D publish will-delay-interval 3", "must be one of payload-format-indicator"),
        ("-D publish topic-alias 3", "must be one of"),
        ("-D publish message-expiry-interval soon", "must be a number from 0 to 4294967295"),
        ("-D publish payload-format-indicator 2", "must be a number from 0 to 1"),
        ("-D publish content-type x -D publish content-type y", "given twice"),
    ],
)
def test_a_mistake_is_told(words: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parsed(*words.split())


def test_text_must_be_utf8_and_a_payload_need_not() -> None:
    assert fold_properties(["-m", "\udcff"], WITH_VALUE) == ["-m", "\udcff"]
    with pytest.raises(ConfigError, match="UTF-8"):
        fold_properties(["-t", "\udcff"], WITH_VALUE)
