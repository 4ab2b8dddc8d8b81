"""The lines of a text file that a person wrote, each with its file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
BLANKS: Final = " \t"


def lines_of(path: Path, what: str) -> Iterator[tuple[str, str]]:
    """Yield location ("FILE line N") and text of every line that is not empty and no comment.

    Raises:
        ConfigError: the file cannot be read, is too large, is no text, or has a line that an
            editor shows as two: what is behind a comment there would never be read.
    """
    for number, raw in enumerate(_text(path, what).split("\n"), start=1):
        line = raw.strip(f"{BLANKS}\r")
        if not line:
            continue
        location = f"{path} line {number}"
        first = line.splitlines()[0]
        if first != line:
            raise ConfigError(
                f"{location} has U+{ord(line[len(first)]):04X} in it, which many programs show as"
                " the end of a line, and which is none here; end lines with a line feed."
            )
        if not line.startswith("#"):
            yield location, line


def _text(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"The {what} {path} is larger than {FILE_BYTES_MAX} bytes.")
        return content.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The {what} {path} cannot be read: {reason}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The {what} {path} is not UTF-8 text.") from None
