"""Makes the clients of object stores, with their credentials and time limits.

Two libraries ask a store, `obstore` for files and `deltalake` for the log of a Delta table. Both
stand on the same Rust crate (object_store) and know the same names of options, so there is one set
of options for both.

Credentials come from the first of these that is there:

    tables.object_store.credentials_file     a file, read again when it changes
    tables.object_store.profile, AWS_PROFILE a section of ~/.aws/credentials
    the environment                          AWS_ACCESS_KEY_ID, GOOGLE_…, AZURE_…, web identity
    the machine                              a container's or an instance's role

The last two are found by the libraries themselves. What a task of Spark is sent has the settings
and never a secret: each machine finds its own.
"""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.store import ObjectStore, from_url

from penstock.config.object_store import ObjectStoreSettings
from penstock.errors import ConfigError
from penstock.telemetry.logs import one_line

_BACKOFF_S_MAX: Final = 10.0
_ROLE_ADDRESSES: Final = ("169.254.169.254", "metadata.google.internal")
"""The addresses at which a machine asks for the credentials of its role, when nothing else is."""

_SHOWN_CHARACTERS_MAX: Final = 400
_FROM_PROFILE: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_FILE_NAME: Final = "google_service_account"
_SHOWN_OPTIONS: Final = ("aws_endpoint", "aws_region", _FILE_NAME)

Options = Mapping[str, str]
"""Options of an object store, as obstore and deltalake know them; some values are secrets."""


def store_options(url: str, settings: ObjectStoreSettings) -> dict[str, str]:
    """Return the options of the store at a URL, with the credentials that it has now.

    Raises:
        ConfigError: the file or profile with the credentials cannot be used.
    """
    scheme = urlsplit(url).scheme
    found: dict[str, str] = {}
    if scheme == "s3":
        found |= _s3_options(settings)
    elif scheme == "gs" and settings.credentials_file:
        found[_FILE_NAME] = str(_checked_json(Path(settings.credentials_file)))
    elif settings.credentials_file:
        path = Path(settings.credentials_file)
        found |= _section(path, settings.profile or "default", "azure_")
    return found


def store_at(url: str, settings: ObjectStoreSettings) -> ObjectStore:
    """Return the client of the bucket or container at a URL; there is one for each credentials."""
    options = store_options(url, settings)
    return _store(url, settings, tuple(sorted(options.items())))


def delta_options(url: str, settings: ObjectStoreSettings) -> dict[str, str]:
    """Return the `storage_options` of the deltalake package for the store at a URL."""
    is_plain = settings.endpoint.startswith("http://")
    return {
        **store_options(url, settings),
        **({"allow_http": "true"} if is_plain else {}),
        "timeout": f"{settings.timeout_s}s",
        "max_retries": str(_retries(settings)),
        "retry_timeout": f"{settings.retry_s}s",
        "backoff_config.max_backoff": f"{_BACKOFF_S_MAX}s",
    }


def without_secrets(text: object, options: Options) -> str:
    """Return the words of an error in one line, with dots for each value that is a secret."""
    found = one_line(str(text).partition("Debug source:")[0]).strip()
    if any(address in found for address in _ROLE_ADDRESSES):
        return (
            "no credentials are there: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or those of"
            " Azure or Google) in the environment of the job and of Spark's workers, or"
            " tables.object_store.credentials_file or profile; this machine has no role either"
            f" ({found[:80]} …)"
        )
    for name, value in options.items():
        if name not in _SHOWN_OPTIONS and value not in ("true", "false"):
            found = found.replace(value, "…")
    for name in _secret_variables():
        found = found.replace(os.environ[name], "…")
    return found if len(found) <= _SHOWN_CHARACTERS_MAX else found[:_SHOWN_CHARACTERS_MAX] + " …"


def _secret_variables() -> Iterator[str]:
    for name, value in os.environ.items():
        is_of_a_store = name.startswith(("AWS_", "AZURE_", "GOOGLE_"))
        if is_of_a_store and any(word in name for word in ("KEY", "SECRET", "TOKEN")) and value:
            yield name


@lru_cache(maxsize=32)
def _store(
    url: str, settings: ObjectStoreSettings, options: tuple[tuple[str, str], ...]
) -> ObjectStore:
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=settings.timeout_s),
        "allow_http": settings.endpoint.startswith("http://"),
    }
    if settings.ca_file:
        client["root_certificate"] = Path(settings.ca_file).read_bytes()
    store: ObjectStore = from_url(
        url,
        config=dict(options),  # type: ignore[call-overload]  # which keys depends on the URL
        client_options=client,
        retry_config={
            "max_retries": _retries(settings),
            "retry_timeout": timedelta(seconds=settings.retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=_BACKOFF_S_MAX),
                "base": 2,
            },
        },
    )
    return store


def _retries(settings: ObjectStoreSettings) -> int:
    return 1000 if settings.retry_s else 0  # the time ends them


def _s3_options(settings: ObjectStoreSettings) -> dict[str, str]:
    endpoint = settings.endpoint
    path_style = bool(endpoint) if settings.path_style is None else settings.path_style
    found = {"aws_virtual_hosted_style_request": "false" if path_style else "true"}
    region = settings.region
    if settings.credentials_file:
        path = Path(settings.credentials_file)
        found |= _section(path, settings.profile or "default", "aws_")
    elif profile := settings.profile or _environment_profile():
        shared = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        found |= _section(Path(shared).expanduser(), profile, "aws_")
        region = region or _region_of(profile)
    if endpoint:
        found["aws_endpoint"] = endpoint
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or (endpoint and not named):
        found["aws_region"] = region or "us-east-1"
    return found


def _environment_profile() -> str:
    """Return the profile that the environment names, unless it has keys, which come first."""
    return "" if "AWS_ACCESS_KEY_ID" in os.environ else os.environ.get("AWS_PROFILE", "")


def _region_of(profile: str) -> str:
    path = Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    section = profile if profile == "default" else f"profile {profile}"
    return parser.get(section, "region", fallback="")


def _section(path: Path, name: str, prefix: str) -> dict[str, str]:
    """Return the entries of a section of a file of credentials whose names have this prefix."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"credentials of the object store: cannot read {path}: {reason}"
        ) from None
    except (configparser.Error, UnicodeDecodeError):
        raise ConfigError(
            f"credentials of the object store: {path} is not written as ~/.aws/credentials is: a"
            f" line [{name}], and below it lines such as {prefix}… = …"
        ) from None
    if not parser.has_section(name):
        there = ", ".join(parser.sections()) or "none"
        raise ConfigError(
            f"credentials of the object store: {path} has no section [{name}]; there: {there}"
        )
    found = {key: value for key, value in parser.items(name) if key.startswith(prefix)}
    if prefix == "aws_":
        missing = [key for key in _FROM_PROFILE[:2] if key not in found]
        found = {key: found[key] for key in _FROM_PROFILE if key in found}
    else:
        missing = [] if found else [f"{prefix}storage_account_key"]
    if missing:
        raise ConfigError(
            f"credentials of the object store: section [{name}] of {path} has no {missing[0]}"
        )
    return found


def _checked_json(path: Path) -> Path:
    try:
        json.loads(path.read_text())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"credentials of the object store: cannot read {path}: {reason}"
        ) from None
    except ValueError:
        raise ConfigError(
            f"credentials of the object store: {path} is not the JSON of a service account"
        ) from None
    return path
