"""Files that a decoder is made from: descriptors and schemas."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ConfigError


def content_of(file: str, what: str) -> bytes:
    """What a file holds.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(file).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The {what} {file} cannot be read: {reason}.") from None
