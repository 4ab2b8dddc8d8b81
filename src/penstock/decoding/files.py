"""Reads the files from which decoders are made: descriptors and schemas."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.regular_file import read_regular


def read_file(file: str, what: str) -> bytes:
    """Return the contents of a file.

    Raises:
        ConfigError: the file cannot be read; ``what`` is its kind in the message: "Avro schema".
    """
    try:
        return read_regular(file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The {what} {file} cannot be read: {reason}.") from None
