"""The options for the payload to publish: text, a file, or all of standard input."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import ConfigError

PAYLOAD_BYTES_MAX: Final = 268_435_455 - 65_537 - 2  # in a packet with the longest topic
_STDIN_PATH: Final = "/dev/stdin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The options for the payload; at most one may be given."""

    message: Annotated[
        str | None, typer.Option("-m", "--message", metavar="TEXT", help="The payload.")
    ] = None
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="A file with the payload.")
    ] = None
    null_message: Annotated[
        bool, typer.Option("-n", "--null-message", help="An empty payload.")
    ] = False
    stdin_file: Annotated[
        bool, typer.Option("-s", "--stdin-file", help="All of standard input is the payload.")
    ] = False

    @property
    def count(self) -> int:
        """The number of payload options that were given."""
        has_value = (self.message is not None, self.file is not None)
        return sum((*has_value, self.null_message, self.stdin_file))

    def read(self) -> bytes:
        """Return the payload.

        Raises:
            ConfigError: the file cannot be read, or the payload is too large.
        """
        if self.message is not None:
            payload = os.fsencode(self.message)
        elif self.file is not None or self.stdin_file:
            try:
                with Path(self.file or _STDIN_PATH).open("rb") as source:
                    payload = source.read(PAYLOAD_BYTES_MAX + 1)
            except OSError as error:
                name = "standard input" if self.file is None else f"-f {self.file}"
                raise ConfigError(f"{name}: {error.strerror}") from error
        else:
            payload = b""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ConfigError(f"a payload has at most {PAYLOAD_BYTES_MAX} bytes")
        return payload
