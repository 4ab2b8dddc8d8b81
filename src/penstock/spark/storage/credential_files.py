"""Reads files with credentials and authorities, also while they are being written anew.

Whoever rotates credentials may truncate a file and write it again, and a job reads it for each
request. So what was read last counts for `_KEPT_S` more; a file that cannot be used for longer is
an error of the store, which a job waits out. Only the first reading is an error of the settings.
"""

from __future__ import annotations

import configparser
import json
import os
import time
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.errors import ConfigError
from penstock.spark.storage.location import ObjectStoreError

_KEPT_S: Final = 60.0
_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")

T = TypeVar("T")

_read_last: Final[dict[Hashable, Any]] = {}
_failing_since_s: Final[dict[Hashable, float]] = {}


def read_keys(path: Path, section: str, prefix: str) -> dict[str, str]:
    """Return the entries of a section of a file like `~/.aws/credentials`, by their names.

    Args:
        path: the file.
        section: the name of the section.
        prefix: the beginning of the names, "aws_" or "azure_".

    Raises:
        ConfigError: the file cannot be used, and never could.
        ObjectStoreError: it cannot be used any more.
    """
    return _last_good((path, section, prefix), partial(_read_section, path, section, prefix))


def check_json(path: Path) -> Path:
    """Return the path of a file with the JSON of a service account.

    Raises:
        ConfigError: the file cannot be used, and never could.
        ObjectStoreError: it cannot be used any more.
    """
    return _last_good((path, "json"), partial(_read_json, path))


def read_authorities(path: Path) -> bytes:
    """Return the content of a PEM file.

    Raises:
        ConfigError: the file cannot be read, and never could.
        ObjectStoreError: it cannot be read any more.
    """
    return _last_good((path, "pem"), partial(_read_bytes, path))


def _last_good(key: Hashable, read: Callable[[], T]) -> T:
    try:
        found = read()
    except ConfigError as error:
        if key not in _read_last:
            raise
        since_s = _failing_since_s.setdefault(key, time.monotonic())
        if time.monotonic() - since_s < _KEPT_S:
            known: T = _read_last[key]
            return known
        raise ObjectStoreError(str(error)) from None
    _read_last[key] = found
    _failing_since_s.pop(key, None)
    return found


def _read_section(path: Path, section: str, prefix: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_read_bytes(path).decode())
    except (configparser.Error, UnicodeDecodeError):
        raise ConfigError(
            f"credentials of the object store: {path} is not written as ~/.aws/credentials is: a"
            f" line [{section}], and below it lines such as {prefix}… = …"
        ) from None
    if not parser.has_section(section):
        there = ", ".join(parser.sections()) or "none"
        raise ConfigError(
            f"credentials of the object store: {path} has no section [{section}]; there: {there}"
        )
    found = {key: value for key, value in parser.items(section) if key.startswith(prefix) and value}
    if prefix == "aws_":
        found = {key: found[key] for key in _KEYS if key in found}
        missing = [key for key in _KEYS[:2] if key not in found]
    else:
        missing = [] if found else [f"{prefix}storage_account_key"]
    if missing:
        raise ConfigError(
            f"credentials of the object store: section [{section}] of {path} has no {missing[0]}"
        )
    _refuse_foreign_token(path, section, found)
    return found


def _refuse_foreign_token(path: Path, section: str, found: dict[str, str]) -> None:
    """Refuse keys with which the libraries would send the session token of the environment."""
    key = found.get("aws_access_key_id")
    is_foreign = key is not None and os.environ.get("AWS_ACCESS_KEY_ID") != key
    if is_foreign and os.environ.get("AWS_SESSION_TOKEN") and "aws_session_token" not in found:
        raise ConfigError(
            f"credentials of the object store: section [{section}] of {path} has no"
            " aws_session_token, and the one in the environment, AWS_SESSION_TOKEN, is of other"
            " keys: unset it for the job and for Spark's workers"
        )


def _read_json(path: Path) -> Path:
    try:
        json.loads(_read_bytes(path))
    except ValueError:
        raise ConfigError(
            f"credentials of the object store: {path} is not the JSON of a service account"
        ) from None
    return path


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"the object store: cannot read {path}: {reason}") from None
