"""Finds the place that a text names, and tries whether tables can be kept there."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table_places import is_remote, parse_place
from penstock.errors import ConfigError
from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import Location

_PROBES: Final = "_penstock"
_checked: Final = set[str]()


E = TypeVar("E", bound=Exception)

PathOrUrl = str | Path | Location
"""A path, a URL (s3://, gs://, abfss://, file://), or the place itself."""


def location_of(place: PathOrUrl, settings: ObjectStoreSettings | None = None) -> Location:
    """Return the place that a path or a URL names.

    Args:
        place: the path or the URL; a place is returned as it is.
        settings: how an object store is reached; None: as the environment says.

    Raises:
        ConfigError: the URL is of another kind, or names no bucket.
    """
    if isinstance(place, Location):
        return place
    text = parse_place(str(place))
    if not is_remote(text):
        return LocalLocation(text)
    from penstock.spark.storage.objects import ObjectLocation  # it needs obstore

    parts = urlsplit(text)
    return ObjectLocation(
        f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"), settings or ObjectStoreSettings()
    )


def location_in(table: Location, uri: str) -> Location:
    """Return the place of a file that a table names by its path or URL."""
    prefix = f"{table.uri}/"
    if uri.startswith(prefix):
        return table / uri.removeprefix(prefix)
    return location_of(uri, settings_of(table))


def settings_of(location: Location) -> ObjectStoreSettings | None:
    """Return how the object store of a place is reached; None for a place on this machine."""
    if isinstance(location, LocalLocation):
        return None
    from penstock.spark.storage.objects import ObjectLocation

    assert isinstance(location, ObjectLocation)
    return location.settings


def delta_options(location: Location) -> dict[str, str]:
    """Return the `storage_options` by which the deltalake package asks the store of a place."""
    settings = settings_of(location)
    if settings is None:
        return {}
    from penstock.spark.storage import clients

    return clients.delta_options(location.uri, settings)


def cleaned(error: E, location: Location) -> E:
    """Return an error of a library that asked the store of a place, with no secret in its words.

    Stores repeat tokens and keys in their answers, and deltalake all that they answer.
    """
    settings = settings_of(location)
    if settings is not None:
        from penstock.spark.storage import clients

        options: dict[str, str] = {}
        with suppress(ConfigError, OSError):  # what is told is not hidden by another error
            options = clients.store_options(location.uri, settings)
        error.args = (clients.without_secrets(error, options),)
    return error


def check_store(table: Location) -> None:
    """Check, once for each bucket, that tables can be kept in it by several jobs.

    Raises:
        ConfigError: its store cannot do conditional writes.
        OSError: the store cannot be asked.
    """
    if isinstance(table, LocalLocation) or (store := table.store) in _checked:
        return
    check_creates(table)
    _checked.add(store)


def check_creates(location: Location) -> None:
    """Try whether a store refuses to make an object that is there: two writers need it.

    Raises:
        ConfigError: the store replaces it.
        OSError: the store cannot be asked.
    """
    probe = location / f"{_PROBES}/probe-{uuid.uuid4().hex}"
    try:
        probe.create(b"1")
        if probe.create(b"2"):
            raise ConfigError(
                f"the store of {location} replaces an object that a request was to create"
                " (If-None-Match: *), so two jobs could both commit: use one with conditional"
                " writes, such as Amazon S3, MinIO, Ceph or SeaweedFS in their newest versions"
            )
    finally:
        probe.remove()
