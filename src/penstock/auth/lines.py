"""Reads the lines of a hand-written text file, each with its location for errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.regular_file import read_regular

BLANKS: Final = " \t"


def lines_of(path: Path, kind: str) -> Iterator[tuple[str, str]]:
    """Yield location ("FILE line N") and text of every line that is not empty and no comment.

    Args:
        path: the path of the file.
        kind: the kind of file for errors, such as "password file".

    Raises:
        ConfigError: the file cannot be read, is too large, is no UTF-8, or has a line that an
            editor shows as two lines: text after a comment would be ignored without notice.
    """
    for number, raw in enumerate(_text(path, kind).split("\n"), start=1):
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


def _text(path: Path, kind: str) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The {kind} {path} cannot be read: {reason}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The {kind} {path} is not UTF-8 text.") from None
