"""The types of values of settings: a check for each, and the words for the values that it allows.

The message of each ValueError follows "must be" in the sentence about a mistake (`mistakes.py`).
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from penstock.config.address import Address, SocketFile, parse_listen_address
from penstock.engine.values.declared_limits import TOPIC_LEVELS_MAX
from penstock.engine.values.event_kinds import KINDS
from penstock.engine.values.topics import (
    is_events_filter,
    is_share_name,
    is_shared,
    is_topic_filter,
    is_topic_name,
    share_name,
    without_share_prefix,
)

_FILE_MODE: Final = re.compile(r"[0-7]{3}")
_HTTP_PATH: Final = re.compile(r"/[!-~]{0,1023}")
_LOCATION: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OBJECT_STORES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfss": "abfss",
    "abfs": "abfss",
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _parsed_address(value: object) -> object:
    return Address.parse(value) if isinstance(value, str) else value


def _parsed_address_or_empty(value: object) -> object:
    return value if value == "" else _parsed_address(value)


def _parsed_listen_address(value: object) -> object:
    return parse_listen_address(value) if isinstance(value, str) else value


def _checked_network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise ValueError("a network such as 10.0.0.0/8, 192.0.2.7 or fd00::/8") from None


def _checked_file_mode(value: str) -> str:
    if _FILE_MODE.fullmatch(value) is None:
        raise ValueError('three octal digits for owner, group and others, such as "660"')
    return value


ANY_PATH: Final = "*"
"""Instead of the path of a WebSocket."""


def _checked_http_path(value: str) -> str:
    if value != ANY_PATH and _HTTP_PATH.fullmatch(value) is None:
        raise ValueError("a path that starts with a slash, such as /mqtt, or * for any")
    return value


def _checked_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise ValueError("1 to 64 letters, digits and . _ - that start with a letter or digit")
    return value


def _checked_name_or_empty(value: str) -> str:
    return value and _checked_name(value)


def checked_topic_filter(value: str) -> str:
    """Return ``value`` if it is a topic filter without a share name.

    Raises:
        ValueError: it is something else; the message says what it must be.
    """
    if is_shared(value) or not is_topic_filter(value, TOPIC_LEVELS_MAX):
        raise ValueError("an MQTT topic filter, such as # or plant/+/temperature")
    return value


def _checked_bridged_filter(value: str) -> str:
    if is_shared(value) and not is_share_name(share_name(value)):
        raise ValueError("$share/GROUP/FILTER, with a name without + and # for the group")
    if not is_topic_filter(without_share_prefix(value), TOPIC_LEVELS_MAX):
        raise ValueError("an MQTT topic filter, such as # or plant/+/temperature")
    return value


def _checked_topic_prefix(value: str) -> str:
    if value and (not is_topic_name(value, TOPIC_LEVELS_MAX) or is_shared(value)):
        raise ValueError("the beginning of a topic name, such as plant/7/, or nothing")
    return value


def checked_mount_point(value: str) -> str:
    """Return ``value`` if it is a mount point of a listener, or empty.

    Raises:
        ValueError: it is something else; the message says what it must be.
    """
    if value and (not is_topic_name(value, TOPIC_LEVELS_MAX) or not _is_branch(value)):
        raise ValueError("the beginning of a topic that ends with a slash, such as tenant/7/")
    return value


def _is_branch(value: str) -> bool:
    return value.endswith("/") and not value.startswith("$") and len(value) <= 1000


def _checked_printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("printable characters, or nothing")
    return value


def _checked_id_prefix(value: str) -> str:
    if value.startswith("$") or not value.isprintable():
        raise ValueError("printable characters, the first of them not $, or nothing")
    return value


def _checked_topic_name(value: str) -> str:
    if value and (not is_topic_name(value, TOPIC_LEVELS_MAX) or is_shared(value)):
        raise ValueError("a topic name without wildcards, or nothing")
    return value


def _checked_dead_letter_topic(value: str) -> str:
    if value and (not is_topic_name(value, TOPIC_LEVELS_MAX) or value.startswith("$")):
        raise ValueError("a topic name without wildcards that does not start with $, or nothing")
    return value


def _checked_message_filter(value: str) -> str:
    checked_topic_filter(value)
    if is_events_filter(value):
        raise ValueError("a topic filter of messages; there are no events about events")
    return value


def _checked_event_kind(value: str) -> str:
    if value not in KINDS:
        raise ValueError("one of " + ", ".join(KINDS))
    return value


def _checked_share_name(value: str) -> str:
    if not is_share_name(value):
        raise ValueError("the name of a group of shared subscriptions, without / + and #")
    return value


def _checked_local_path(value: Path) -> Path:
    return Path(local_directory(str(value)))


def local_directory(value: str) -> str:
    """Return the path of a directory of this machine, given as a path or as a file: URL.

    Raises:
        ValueError: the value is the URL of an object store or of another server.
    """
    if _LOCATION.match(value) is None:
        return value
    found = urlsplit(value)
    if found.scheme != "file" or found.netloc not in ("", "localhost"):
        raise ValueError(
            "a directory of a file system of this machine; object stores and other servers cannot"
            " take it"
        )
    return unquote(found.path)


def table_location(value: str) -> str:
    """Return the directory of tables: a path, or the URL of a place in an object store.

    Raises:
        ValueError: the value is a URL of another kind, or lacks a bucket.
    """
    if _LOCATION.match(value) is None:
        return value
    found = urlsplit(value)
    if found.scheme == "file":
        return local_directory(value)
    scheme = _OBJECT_STORES.get(found.scheme)
    if scheme is None or not found.netloc:
        raise ValueError(
            "a path, or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or"
            " abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        )
    has_login = found.password or (found.username and scheme != "abfss")
    if has_login or found.query or found.fragment:
        raise ValueError(
            "a URL without keys and parameters, for which there is tables.object_store"
        )
    path = found.path.strip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("a URL without empty parts, '.' and '..' in its path")
    return f"{scheme}://{found.netloc}/{path}".rstrip("/")


BindAddress = Annotated[Address, BeforeValidator(_parsed_address), PlainSerializer(str)]
OptionalBindAddress = Annotated[
    Address | Literal[""], BeforeValidator(_parsed_address_or_empty), PlainSerializer(str)
]
ListenAddress = Annotated[
    Address | SocketFile, BeforeValidator(_parsed_listen_address), PlainSerializer(str)
]
Network = Annotated[str, AfterValidator(_checked_network)]
LocalDirectory = Annotated[str, AfterValidator(local_directory)]
TableLocation = Annotated[str, AfterValidator(table_location)]
LocalPath = Annotated[Path, AfterValidator(_checked_local_path)]
FileMode = Annotated[str, AfterValidator(_checked_file_mode)]
HttpPath = Annotated[str, AfterValidator(_checked_http_path)]
ListenerName = Annotated[str, AfterValidator(_checked_name)]
StreamName = Annotated[str, AfterValidator(_checked_name)]
TableName = Annotated[str, AfterValidator(_checked_name)]
CatalogName = Annotated[str, AfterValidator(_checked_name)]
GroupName = Annotated[str, AfterValidator(_checked_name_or_empty)]
BridgeName = Annotated[str, AfterValidator(_checked_name)]
PrintableText = Annotated[str, AfterValidator(_checked_printable)]
IdPrefix = Annotated[str, AfterValidator(_checked_id_prefix)]
MountPoint = Annotated[str, AfterValidator(checked_mount_point)]
TopicName = Annotated[str, AfterValidator(_checked_topic_name)]
TopicPrefix = Annotated[str, AfterValidator(_checked_topic_prefix)]
TopicFilter = Annotated[str, AfterValidator(checked_topic_filter)]
BridgedFilter = Annotated[str, AfterValidator(_checked_bridged_filter)]
MessageFilter = Annotated[str, AfterValidator(_checked_message_filter)]
EventKind = Annotated[str, AfterValidator(_checked_event_kind)]
DeadLetterTopic = Annotated[str, AfterValidator(_checked_dead_letter_topic)]
ShareName = Annotated[str, AfterValidator(_checked_share_name)]
SharingStrategy = Literal[
    "round_robin", "random", "sticky", "least_inflight", "hash_client", "hash_topic"
]
