"""Reads a file of HTTP headers for requests, such as a token; each line is NAME: VALUE."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from penstock.auth.lines import lines_of
from penstock.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_VALUE: Final = re.compile(r"[ -~]{1,8192}")


def read_headers(path: Path) -> dict[str, str]:
    """Return the headers in a file, by name in lower case.

    Raises:
        ConfigError: the file cannot be read, or a line is no header; the error does not quote the
            line.
    """
    headers: dict[str, str] = {}
    for location, line in lines_of(path, "headers file"):
        name, _, value = line.partition(":")
        value = value.strip()
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise ConfigError(f"{location} is no header; write NAME: VALUE, in ASCII.")
        headers[name.lower()] = value
    return headers
