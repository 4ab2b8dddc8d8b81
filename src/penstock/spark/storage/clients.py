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
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.store import ObjectStore, from_url

from penstock.config.object_store import ObjectStoreSettings
from penstock.spark.storage.credential_files import check_json, read_authorities, read_keys
from penstock.telemetry.logs import one_line

_BACKOFF_S_MAX: Final = 10.0
_ROLE_ADDRESSES: Final = ("169.254.169.254", "metadata.google.internal")
"""The addresses at which a machine asks for the credentials of its role, when nothing else is."""

_TOLD_BACK: Final = re.compile(
    r"<([\w-]*(?:Token|KeyId|Signature|ToSign|CanonicalRequest)[\w-]*)>.*?</\1>"
)
"""The parts of an answer of S3's in which it repeats what it was sent."""

_SHOWN_CHARACTERS_MAX: Final = 400
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_FILE_NAME: Final = "google_service_account"
_SHOWN_OPTIONS: Final = ("aws_endpoint", "aws_region", _FILE_NAME)

Options = Mapping[str, str]
"""Options of an object store, as obstore and deltalake know them; some values are secrets."""


def store_options(url: str, settings: ObjectStoreSettings) -> dict[str, str]:
    """Return the options of the store at a URL, with the credentials that it has now.

    Raises:
        ConfigError: the file or profile with the credentials cannot be used, and never could.
        ObjectStoreError: it cannot be used any more.
    """
    scheme = urlsplit(url).scheme
    found: dict[str, str] = {}
    if scheme == "s3":
        found |= _s3_options(url, settings)
    elif scheme == "gs" and settings.credentials_file:
        found[_FILE_NAME] = str(check_json(Path(settings.credentials_file)))
    elif settings.credentials_file:
        path = Path(settings.credentials_file)
        found |= read_keys(path, settings.profile or "default", "azure_")
    return found


def store_at(url: str, settings: ObjectStoreSettings) -> ObjectStore:
    """Return the client of the bucket or container at a URL; there is one for each credentials.

    Raises:
        ConfigError: a file of credentials or authorities cannot be used, and never could.
        ObjectStoreError: it cannot be used any more.
    """
    options = store_options(url, settings)
    return _store(url, settings, tuple(sorted(options.items())))


def delta_options(url: str, settings: ObjectStoreSettings) -> dict[str, str]:
    """Return the `storage_options` of the deltalake package for the store at a URL."""
    options = store_options(url, settings)
    return {
        **options,
        **({"allow_http": "true"} if _is_plain(options) else {}),
        "timeout": f"{settings.timeout_s}s",
        "max_retries": str(_retries(settings)),
        "retry_timeout": f"{settings.retry_s}s",
        "backoff_config.max_backoff": f"{_BACKOFF_S_MAX}s",
    }


def without_secrets(text: object, options: Options) -> str:
    """Return the words of an error in one line, with dots for each value that is a secret."""
    found = one_line(str(text).partition("Debug source:")[0]).strip()
    found = _TOLD_BACK.sub(r"<\1>…</\1>", found)
    if any(address in found for address in _ROLE_ADDRESSES):
        return (
            "no credentials are there: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or those of"
            " Azure or Google) in the environment of the job and of Spark's workers, or"
            " tables.object_store.credentials_file or profile; this machine has no role either"
            f" ({found[:80]} …)"
        )
    for name, value in options.items():
        if name not in _SHOWN_OPTIONS and value not in ("", "true", "false"):
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
    client: dict[str, Any] = {"timeout": timedelta(seconds=settings.timeout_s)}
    if _is_plain(dict(options)):
        client["allow_http"] = True
    if settings.ca_file:
        client["root_certificate"] = read_authorities(Path(settings.ca_file))
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


def _is_plain(options: Options) -> bool:
    return options.get("aws_endpoint", "").startswith("http://")


def _retries(settings: ObjectStoreSettings) -> int:
    return 1000 if settings.retry_s else 0  # the time ends them


def _s3_options(url: str, settings: ObjectStoreSettings) -> dict[str, str]:
    endpoint = settings.endpoint or _from_environment(*_ENDPOINTS)
    is_virtual = _is_virtual_hosted(endpoint, settings)
    found = {"aws_virtual_hosted_style_request": "true" if is_virtual else "false"}
    region = settings.region
    if settings.credentials_file:
        path = Path(settings.credentials_file)
        found |= read_keys(path, settings.profile or "default", "aws_")
    elif profile := settings.profile or _environment_profile():
        shared = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        found |= read_keys(Path(shared).expanduser(), profile, "aws_")
        region = region or _region_of(profile)
    if endpoint:
        found["aws_endpoint"] = _of_bucket(endpoint, url) if is_virtual else endpoint
    named = _from_environment("AWS_REGION", "AWS_DEFAULT_REGION")
    if region or (endpoint and not named):
        found["aws_region"] = region or "us-east-1"
    return found


def _is_virtual_hosted(endpoint: str, settings: ObjectStoreSettings) -> bool:
    if settings.path_style is not None:
        return not settings.path_style
    named = _from_environment("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
    return named.lower() in ("true", "1") if named else not endpoint


def _of_bucket(endpoint: str, url: str) -> str:
    """Return the endpoint with the bucket in its host name, as the libraries want it."""
    bucket, parts = urlsplit(url).netloc, urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}."):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _from_environment(*names: str) -> str:
    """Return the value of the first of these variables that has one."""
    return next(filter(None, map(os.environ.get, names)), "")


def _environment_profile() -> str:
    """Return the profile that the environment names, unless it has keys, which come first."""
    return "" if "AWS_ACCESS_KEY_ID" in os.environ else os.environ.get("AWS_PROFILE", "")


def _region_of(profile: str) -> str:
    path = Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    section = profile if profile == "default" else f"profile {profile}"
    return parser.get(section, "region", fallback="")
