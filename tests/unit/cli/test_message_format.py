"""``-F`` and ``--json``: each code, on a message that has everything and on one with nothing."""

import json
import time
from collections.abc import Iterator

import pytest

from penstock.cli.message_format import (
    LogEntry,
    NotJson,
    TimedMessage,
    as_json,
    as_log_line,
    parse_format,
)
from penstock.cli.printing import PrintOptions
from penstock.client import Message
from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.errors import ConfigError
from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties

AT_NS = 1_470_818_943_786_368_637


@pytest.fixture(autouse=True)
def _in_utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def message(
    payload: bytes = b"hello", topic: str = "a/b", properties: Properties | None = None
) -> Message:
    publish = Publish(topic, payload, 1, True, True, 7, properties)
    return Message(ReceivedMessage(publish, topic))


def received(payload: bytes = b"hello", properties: Properties | None = None) -> TimedMessage:
    return TimedMessage(message(payload, properties=properties), 7, AT_NS)


def formatted(form: str, one: TimedMessage) -> bytes:
    return b"".join(piece(one) for piece in parse_format(form))


def everything() -> Properties:
    return Properties(
        payload_format_indicator=1,
        message_expiry_interval=30,
        content_type="text/plain",
        response_topic="re/x",
        correlation_data=b"\xff1",
        subscription_identifiers=[5],
        user_properties=[("k", "v"), ("k", "w"), ("message-id", "m-1")],
    )


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%t %p", b"a/b hello"),
        ("%q|%r|%l|%m|%d|%i", b"1|1|5|7|1|m-1"),
        ("%x %X", b"68656c6c6f 68656C6C6F"),
        ("%C|%E|%F|%R|%S|%D|%A", b"text/plain|30|1|re/x|5|\xff1|"),
        ("%P", b"k:v k:w message-id:m-1"),
        ("%U %I", b"1470818943.786368637 2016-08-10T08:49:03+0000"),
        ("@Y-@m-@d @H:@M:@S.@N @@", b"2016-08-10 08:49:03.786368637 @"),
        (r"\\\0\a\e\n\r\t\v", b"\\\0\a\x1b\n\r\t\v"),
        ("100%%", b"100%"),
        ("[%10t][%-10t][%2.2t][%.9t]", b"[       a/b][a/b       ][a/][a/b]"),
        ("[%05l][%-5l][%8p][%-8p][%08p]", b"[00005][5    ][   hello][hello   ][000hello]"),
        ("[%3C][%4.4C][%5q]", b"[text/plain][text][1]"),
    ],
)
def test_each_code_shows_what_it_stands_for(form: str, shown: bytes) -> None:
    assert formatted(form, received(properties=everything())) == shown


def test_a_code_that_a_message_has_no_value_for_is_nothing() -> None:
    assert formatted("[%C%D%E%F%P%R%S%A%i%p]", received(b"")) == b"[]"


@pytest.mark.parametrize("form", ["%z", "%q%", "%5", "%-", "@", "x\\", r"\q"])
def test_an_unknown_code_is_a_mistake(form: str) -> None:
    with pytest.raises(ConfigError, match="-F"):
        parse_format(form)


def test_the_json_of_mosquitto_has_the_payload_as_text_or_as_it_is() -> None:
    properties = Properties(content_type="x", user_properties=[("k", "v")])
    one = received(b'{"a": 1}', properties)
    shown = {
        "tst": "2016-08-10T08:49:03.786368+0000",
        "topic": "a/b",
        "qos": 1,
        "retain": 1,
        "payloadlen": 8,
        "mid": 7,
        "properties": {"content-type": "x", "user-properties": {"k": "v"}},
    }
    assert json.loads(formatted("%j", one)) == shown | {"payload": '{"a": 1}'}
    assert json.loads(formatted("%J", one)) == shown | {"payload": {"a": 1}}
    assert json.loads(formatted("%j", received(b"")))["payload"] is None
    with pytest.raises(NotJson):
        formatted("%J", received(b"21,5"))


def test_json_has_all_of_a_message() -> None:
    assert json.loads(as_json(received("grün".encode(), everything()))) == {
        "topic": "a/b",
        "payload": "grün",
        "qos": 1,
        "retain": True,
        "duplicate": True,
        "id": "m-1",
        "properties": {
            "payload_format_indicator": 1,
            "message_expiry_interval": 30,
            "content_type": "text/plain",
            "response_topic": "re/x",
            "correlation_data": "/zE=",
            "subscription_identifiers": [5],
            "user_properties": [["k", "v"], ["k", "w"], ["message-id", "m-1"]],
        },
        "received": "2016-08-10T08:49:03.786368Z",
    }


def test_a_payload_that_is_no_text_is_base64_in_json() -> None:
    shown = json.loads(as_json(received(b"\xff\0")))
    assert (shown["payload"], shown["encoding"]) == ("/wA=", "base64")
    assert b"\n" not in as_json(received(b"a\nb"))


@pytest.mark.parametrize(
    ("printing", "shown", "shown_of_an_empty_one"),
    [
        (PrintOptions(), b"hello\n", b""),
        (PrintOptions(no_end_of_line=True), b"hello", b""),
        (PrintOptions(verbose=True), b"a/b hello\n", b"a/b (null)\n"),
        (PrintOptions(form="%q"), b"1\n", b"1\n"),
        (PrintOptions(form="%J"), b"", b""),
    ],
    ids=["plain", "-N", "-v", "-F", "no JSON"],
)
def test_a_message_is_printed_as_the_options_say(
    printing: PrintOptions, shown: bytes, shown_of_an_empty_one: bytes
) -> None:
    printer = printing.printer(on_terminal=False)
    assert printer(message()) == shown
    if printing.form != "%J":
        assert printer(message(b"")) == shown_of_an_empty_one


def test_a_message_of_the_log_has_its_place_there() -> None:
    one = TimedMessage(message(b"two\nlines\xff", "a\nb"), 0, AT_NS, LogEntry("e-1", 1234, "meter"))
    pieces = parse_format("%o %08o %e %c", from_log=True)
    assert b"".join(piece(one) for piece in pieces) == b"1234 00001234 e-1 meter"
    assert as_log_line(one) == (b"2016-08-10 08:49:03.786+0000 1234 a\\nb two\\nlines\\xff\n")
    shown = json.loads(as_json(one))
    assert (shown["epoch"], shown["offset"], shown["client_id"]) == ("e-1", 1234, "meter")
    assert "duplicate" not in shown


@pytest.mark.parametrize(("code", "what"), [("o", "offset"), ("e", "epoch"), ("c", "publisher")])
def test_a_subscriber_is_told_who_knows_the_offset(code: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"no {what}: %{code} is for 'penstock tail'"):
        parse_format(f"%{code}")


def test_a_line_feed_in_a_topic_forges_no_line() -> None:
    """The topic is all that tells one message from the next in the lines of ``sub -v``."""
    forged = TimedMessage(message(topic="a\nplant/alarm off"), 7, AT_NS)
    assert PrintOptions(verbose=True).formatter(on_terminal=False)(forged) == (
        b"a\\nplant/alarm off hello\n"
    )
