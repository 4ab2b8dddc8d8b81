"""Tells whether two URIs of files or directories of an Iceberg table are those of one place.

Engines write the same place in several ways: s3a:// and s3:// of one bucket, file:/ and file:// and
a path, a path through a symbolic link.
"""

from __future__ import annotations

import os.path
import re
from typing import Final

from penstock.config.values import table_location

_FILE: Final = re.compile(r"file:(//)?")


def one_uri(uri: str) -> str:
    """Return the URI of a file or directory in the spelling that all of its URIs have in common.

    It is a path without symbolic links, or the URL of an object.
    """
    scheme, separator, place = uri.partition("://")
    if not separator or scheme == "file":
        return os.path.realpath(_FILE.sub("", uri, count=1))
    bucket, slash, key = place.partition("/")
    return f"{_bucket(scheme, bucket)}{slash}{key.rstrip('/')}"


def _bucket(scheme: str, bucket: str) -> str:
    url = f"{scheme}://{bucket}"
    try:
        return table_location(url)
    except ValueError:
        return url  # of a store that Penstock does not know
