r"""Formats of a received message for printing: ``-F`` as in mosquitto_sub, and JSON.

::

      '%t: %p\n'  ── parsed once ─▶ a function for each piece ── for each message ─▶ bytes

``%`` precedes a field of the message, with a field width (``%-10t``, ``%05l``) and for %C %I %R %t
a maximum (``%.8t``); ``@`` precedes a code of strftime; ``\`` precedes 0 a e n r t v.

A message of the log has further fields: %o its offset, %e the log's epoch, %c the publisher. MQTT
sends a subscriber none of them.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ConfigError, PenstockError
from penstock.protocol.properties import Properties
from penstock.telemetry.logs import printable
from penstock.telemetry.terminal import TerminalSafe

if TYPE_CHECKING:
    from penstock.client import Message

_NANOSECONDS: Final = 1_000_000_000
_PIECES: Final = re.compile(
    r"%(?P<flags>[-0]*)(?P<width>\d*)(?:\.(?P<most>\d*))?(?P<code>.)?"
    r"|@(?P<time>.)?|\\(?P<escape>.)?|(?P<text>[^%@\\]+)",
    re.DOTALL,
)
_ESCAPES: Final = {
    "0": b"\0",
    "a": b"\a",
    "e": b"\x1b",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
}
_ZERO_PADDED: Final = "AEFlmoSXxp"
_WITH_MAXIMUM: Final = "CIRt"  # codes that may have a maximum length
_WITH_WIDTH: Final = "AcCEeFIlmopRStxX"  # codes that may have a field width


class NotJson(PenstockError):
    """Raised when ``%J`` gets a payload that is not JSON."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The entry of a message in the log.

    Attributes:
        epoch: the epoch of the log.
        offset: the message's offset in the log.
        client_id: the client identifier of the publisher.
    """

    epoch: str
    offset: int
    client_id: str


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A message with the time at which it was received.

    Attributes:
        message: the message.
        packet_id: its packet identifier; 0 with QoS 0.
        at_ns: when it was received, nanoseconds since the Unix epoch: by this client, or for a
            message of the log by the broker.
        log_entry: its entry in the log; None for a message that a subscriber received.
    """

    message: Message
    packet_id: int
    at_ns: int
    log_entry: LogEntry | None = None

    @property
    def properties(self) -> Properties:
        """The properties of the message; empty if it has none."""
        return self.message.properties or Properties()


def with_current_time(message: Message) -> TimedMessage:
    """Return ``message`` with the present time and its packet identifier."""
    arrival = message.arrival
    packet_id = None if arrival is None else arrival.publish.packet_id
    return TimedMessage(message, packet_id or 0, time.time_ns())


Formatter = Callable[[TimedMessage], bytes]


def parse_format(text: str, *, pretty: bool = False, from_log: bool = False) -> list[Formatter]:
    """Parse the format of ``-F``; return a function for each piece. Text of the format itself, such
    as colours, comes out as ``TerminalSafe``.

    Args:
        text: the format.
        pretty: print JSON over several lines.
        from_log: whether the messages come from the log, and so have a log entry.

    Raises:
        ConfigError: the format has an unknown code.
    """
    values = _VALUES | _LOG_VALUES if from_log else _VALUES
    pieces: list[Formatter] = []
    for match in _PIECES.finditer(text):
        if match["text"] is not None:
            pieces.append(_constant_piece(match["text"].encode()))
        elif match[0][0] == "%":
            pieces.append(_message_piece(match, pretty, values))
        elif match[0][0] == "@":
            pieces.append(_time_piece(match["time"]))
        elif match["escape"] in _ESCAPES:
            pieces.append(_constant_piece(_ESCAPES[match["escape"]]))
        else:
            raise ConfigError(f"-F: {match[0]} is none of " + ", ".join(f"\\{e}" for e in _ESCAPES))
    return pieces


def as_json(received: TimedMessage) -> bytes:
    """Return the output of ``--json``: the whole message as a JSON object on one line."""
    message, entry = received.message, received.log_entry
    shown: dict[str, Any] = {}
    if entry is not None:
        shown |= {"epoch": entry.epoch, "offset": entry.offset}
    shown["topic"] = message.topic
    try:
        shown["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        shown["payload"] = base64.b64encode(message.payload).decode()
        shown["encoding"] = "base64"
    shown |= {"qos": message.qos, "retain": message.retain}
    if entry is None:
        shown["duplicate"] = message.duplicate
    else:
        shown["client_id"] = entry.client_id
    shown["id"] = message.id
    properties = dict(received.properties.present())
    correlation = properties.get("correlation_data")
    if isinstance(correlation, bytes):
        properties["correlation_data"] = base64.b64encode(correlation).decode()
    shown["properties"] = properties
    shown["received"] = utc_text(received)
    return json.dumps(shown, ensure_ascii=False).encode()


def utc_text(received: TimedMessage) -> str:
    """Return when a message was received, in UTC, as ISO 8601 with microseconds."""
    seconds, nanoseconds = divmod(received.at_ns, _NANOSECONDS)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{moment}.{nanoseconds // 1000:06d}Z"


def as_log_line(received: TimedMessage) -> bytes:
    """Return a message of the log on one line: local time, offset, topic, payload.

    Line ends and bytes that are no UTF-8 text are escaped; ``%p`` and JSON have the payload
    exactly.
    """
    entry = received.log_entry
    assert entry is not None, "only a message of the log has an offset"
    moment = _clock(received, "%Y-%m-%d %H:%M:%S")
    milliseconds = received.at_ns % _NANOSECONDS // 1_000_000
    prefix = f"{moment}.{milliseconds:03d}{_clock(received, '%z')} {entry.offset}"
    topic = printable(received.message.topic)
    payload = printable(received.message.payload.decode(errors="backslashreplace"))
    return f"{prefix} {topic} {payload}\n".encode()


# -- the pieces ----------------------------------------------------------------------------


def _constant_piece(value: bytes) -> Formatter:
    constant = TerminalSafe(value)
    return lambda _: constant


def _time_piece(code: str | None) -> Formatter:
    if code is None:
        raise ConfigError("-F ends with @, which must be followed by a code of strftime, or @")
    if code == "@":
        return _constant_piece(b"@")
    if code == "N":
        return lambda received: b"%09d" % (received.at_ns % _NANOSECONDS)
    return lambda received: _clock(received, f"%{code}").encode()


def _message_piece(
    match: re.Match[str], pretty: bool, values: Mapping[str, Formatter]
) -> Formatter:
    code = match["code"]
    if code == "%":
        return _constant_piece(b"%")
    if code == "j":
        return lambda received: _mosquitto_json(received, _text_payload(received), pretty)
    if code == "J":
        return lambda received: _mosquitto_json(received, _json_payload(received), pretty)
    value = values.get(code or "")
    if value is None:
        if code in _LOG_VALUES:
            raise ConfigError(
                f"-F: MQTT sends a subscriber no {_LOG_VALUE_NAMES[code]}: {match[0]} is for"
                " 'penstock tail', which reads the log"
            )
        known = ", ".join(f"%{one}" for one in ("%", *values, "j", "J"))
        raise ConfigError(f"-F: {match[0]} is none of {known}")
    if code not in _WITH_WIDTH or not (match["width"] or match["most"] or match["flags"]):
        return value
    width = int(match["width"] or 0)
    length_max = int(match["most"]) if match["most"] and code in _WITH_MAXIMUM else None
    is_left_aligned = "-" in match["flags"]
    has_zeros = "0" in match["flags"] and code in _ZERO_PADDED and not is_left_aligned
    fill = b"0" if has_zeros else b" "

    def pad(received: TimedMessage) -> bytes:
        text = value(received)[:length_max]
        return text.ljust(width, fill) if is_left_aligned else text.rjust(width, fill)

    return pad


def _clock(received: TimedMessage, code: str) -> str:
    return time.strftime(code, time.localtime(received.at_ns // _NANOSECONDS))


def _text(value: object) -> bytes:
    return b"" if value is None else str(value).encode()


def _user_properties(received: TimedMessage) -> bytes:
    pairs = received.properties.user_properties or []
    return " ".join(f"{name}:{value}" for name, value in pairs).encode()


def _identifiers(received: TimedMessage) -> bytes:
    return " ".join(str(one) for one in received.properties.subscription_identifiers or []).encode()


def _unix_time(received: TimedMessage) -> bytes:
    return b"%d.%09d" % divmod(received.at_ns, _NANOSECONDS)


_VALUES: Final[dict[str, Formatter]] = {
    "A": lambda received: _text(received.properties.topic_alias),
    "C": lambda received: _text(received.properties.content_type),
    "D": lambda received: received.properties.correlation_data or b"",
    "d": lambda received: _text(int(received.message.duplicate)),  # ours
    "E": lambda received: _text(received.properties.message_expiry_interval),
    "F": lambda received: _text(received.properties.payload_format_indicator),
    "I": lambda received: _clock(received, "%Y-%m-%dT%H:%M:%S%z").encode(),
    "i": lambda received: _text(received.message.id),  # ours
    "l": lambda received: _text(len(received.message.payload)),
    "m": lambda received: _text(received.packet_id),
    "P": _user_properties,
    "p": lambda received: received.message.payload,
    "q": lambda received: _text(received.message.qos),
    "R": lambda received: _text(received.properties.response_topic),
    "r": lambda received: _text(int(received.message.retain)),
    "S": _identifiers,
    "t": lambda received: received.message.topic.encode(),
    "U": _unix_time,
    "X": lambda received: received.message.payload.hex().upper().encode(),
    "x": lambda received: received.message.payload.hex().encode(),
}


def _entry(received: TimedMessage) -> LogEntry:
    assert received.log_entry is not None, "only a message of the log has an entry there"
    return received.log_entry


_LOG_VALUES: Final[dict[str, Formatter]] = {
    "c": lambda received: _entry(received).client_id.encode(),
    "e": lambda received: _entry(received).epoch.encode(),
    "o": lambda received: _text(_entry(received).offset),
}
"""Codes for messages of the log, which mosquitto_sub does not have."""

_LOG_VALUE_NAMES: Final = {"c": "publisher", "e": "epoch", "o": "offset"}

# -- JSON as mosquitto_sub has it ----------------------------------------------------------


def _text_payload(received: TimedMessage) -> Any:
    payload = received.message.payload
    return payload.decode(errors="surrogateescape") if payload else None


def _json_payload(received: TimedMessage) -> Any:
    message = received.message
    try:
        return json.loads(message.payload) if message.payload else None
    except ValueError:
        raise NotJson(f"the payload on {message.topic!r} is no JSON") from None


def _mosquitto_json(received: TimedMessage, payload: Any, pretty: bool) -> bytes:
    message = received.message
    microseconds = received.at_ns % _NANOSECONDS // 1000
    zone = _clock(received, "%z")
    shown: dict[str, Any] = {
        "tst": f"{_clock(received, '%Y-%m-%dT%H:%M:%S')}.{microseconds:06d}{zone}",
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos > 0:
        shown["mid"] = received.packet_id
    properties = _mosquitto_properties(received.properties)
    if properties:
        shown["properties"] = properties
    shown["payload"] = payload
    indent = "\t" if pretty else None
    separators = (",", ": ") if pretty else (",", ":")
    text = json.dumps(shown, ensure_ascii=False, indent=indent, separators=separators)
    return text.encode(errors="surrogateescape")


def _mosquitto_properties(properties: Properties) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in properties.present():
        if name == "user_properties":  # of a repeated name the last, as JSON readers do
            shown["user-properties"] = dict(properties.user_properties or [])
        elif name == "subscription_identifiers":
            identifiers = properties.subscription_identifiers or []
            shown["subscription-identifier"] = identifiers[0] if len(identifiers) == 1 else value
        elif isinstance(value, bytes):
            shown["correlation-data"] = value.decode(errors="surrogateescape")
        else:
            shown[name.replace("_", "-")] = value
    return shown
