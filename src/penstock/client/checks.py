"""Checks the arguments of a program, and converts them for the engine."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

from penstock.client.engine_options import connect_packet
from penstock.client.options import Options
from penstock.config.remote_url import RemoteUrl
from penstock.engine.values.topics import is_topic_filter, is_topic_name
from penstock.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import Properties, decode_properties, encode_properties
from penstock.transport.dialling import TlsFiles

Payload = bytes | bytearray | memoryview | str | int | float | None
"""A payload: text is sent as UTF-8, a number as its decimal text, None as an empty payload."""

_URLS_MAX: Final = 100
_LEVELS_MAX: Final = 65_535
_TOPIC_BYTES_MAX: Final = 65_535


def encode_publish_properties(properties: Properties) -> bytes:
    """Return the properties of a PUBLISH as bytes.

    Raises:
        LocalProtocolError: a property is not one of PUBLISH, or only the client itself may set it.
    """
    if properties.topic_alias is not None or properties.subscription_identifiers:
        raise LocalProtocolError(
            reasons.PROTOCOL_ERROR, "topic aliases and identifiers are not the program's to set"
        )
    encoded = encode_properties(properties)
    try:
        decode_properties(encoded, 0, len(encoded), PUBLISH)
    except RemoteProtocolError as error:
        raise LocalProtocolError(error.reason, error.message) from None
    return encoded


def copy_properties(properties: Properties | None) -> Properties:
    """Return a copy of PUBLISH properties; empty properties for None.

    Raises:
        LocalProtocolError: a property is not one of PUBLISH, or only the client itself may set it.
    """
    if properties is None:
        return Properties()
    encoded = encode_publish_properties(properties)
    return decode_properties(encoded, 0, len(encoded), PUBLISH)


def encode_payload(payload: Payload) -> bytes:
    """Return a payload as bytes.

    Raises:
        TypeError: the payload is neither bytes nor text nor a number.
    """
    given: object = payload
    if isinstance(given, bytes):
        return given
    if given is None:
        return b""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return str(given).encode()
    raise TypeError(f"a payload is bytes, text or a number, not {type(given).__name__}")


def check_topic(topic: str) -> None:
    """Check that a topic is a valid topic name.

    Raises:
        LocalProtocolError: it is not, or has more than 65535 bytes.
    """
    if not is_topic_name(topic, _LEVELS_MAX) or "\0" in topic:
        raise LocalProtocolError(reasons.TOPIC_NAME_INVALID, f"not a topic name: {topic!r}")
    try:
        is_too_long = len(topic.encode()) > _TOPIC_BYTES_MAX
    except UnicodeEncodeError:
        raise LocalProtocolError(
            reasons.TOPIC_NAME_INVALID, f"not a topic name: {topic!r}"
        ) from None
    if is_too_long:
        raise LocalProtocolError(reasons.TOPIC_NAME_INVALID, "a topic has at most 65535 bytes")


def check_filters(topic_filters: list[str]) -> None:
    """Check that all of a list are valid topic filters.

    Raises:
        LocalProtocolError: one is not, or the list is empty.
    """
    if not topic_filters:
        raise LocalProtocolError(reasons.PROTOCOL_ERROR, "no topic filter")
    for topic_filter in topic_filters:
        if not is_topic_filter(topic_filter, _LEVELS_MAX):
            raise LocalProtocolError(
                reasons.TOPIC_FILTER_INVALID, f"not a topic filter: {topic_filter!r}"
            )


def check_connect(options: Options) -> None:
    """Encode the CONNECT packet once, to find errors in the options before the first connection.

    Raises:
        ConfigError: the options cannot be encoded.
    """
    if options.will is not None and not is_topic_name(options.will.topic, _LEVELS_MAX):
        raise ConfigError(f"the will's topic is not a topic name: {options.will.topic!r}")
    try:
        connect = connect_packet(options, options.client_id or "penstock", False, None)
        encode(connect, connect.version)
    except (LocalProtocolError, UnicodeError) as error:
        raise ConfigError(f"CONNECT cannot be encoded: {error}") from error


def parse_urls(given: str | Sequence[str]) -> list[RemoteUrl]:
    """Parse the URLs of the server, of which each text may have several; keep their order.

    Raises:
        ConfigError: one is not a URL of a server, there are none, or more than 100.
    """
    if not given:
        raise ConfigError("a client needs a URL")
    urls: list[RemoteUrl] = []
    for url in (given,) if isinstance(given, str) else given:
        try:
            urls += RemoteUrl.parse_list(url)
        except ValueError as error:
            raise ConfigError(
                f"{url!r} is not a server's URL, such as {error}.{_hint(url)}"
            ) from None
    if len(urls) > _URLS_MAX:
        raise ConfigError(f"{len(urls)} URLs are given; at most {_URLS_MAX} are allowed")
    return urls


def _hint(url: str) -> str:
    if "://" not in url:
        return f" Put the scheme before it: mqtt://{url}"
    if "@" in url:
        return " User name and password are given as username= and password="
    return ""


def tls_context(urls: list[RemoteUrl], tls: TlsFiles | None) -> ssl.SSLContext | None:
    """Return the TLS context; None if no URL needs one.

    Raises:
        ConfigError: a file cannot be used, or no URL uses TLS.
    """
    if not any(url.is_encrypted for url in urls):
        if tls is not None:
            raise ConfigError("tls has files, which only mqtts:// and wss:// use")
        return None
    return (tls or TlsFiles()).context("tls")
