"""Origins of settings: a line of a file, an environment variable, or the command line.

`tomllib` gives no line numbers, and only error messages need them, so `line_of` finds a line by
bisection, parsing the first n lines of the text::

    first n lines ──▶ not TOML: line n is inside a statement; try another n
                  ├──▶ TOML without the setting ─╮ the statement that gives the setting
                  ╰──▶ TOML with the setting ────╯ is between two such n
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Final, final

SettingPath = Sequence[int | str]
"""Group, name and, inside a table, further names and indexes: `("listener", "others", 0,
"bind")`."""

_SETTING_PATH_LENGTH: Final = 2  # group and name


@final
class Origins:
    """The origin of each setting that was given a value."""

    def __init__(self) -> None:
        self._locations: dict[tuple[str, str], str] = {}
        self._texts: dict[str, str] = {}

    def add(self, group: str, name: str, location: str) -> None:
        """Record that a setting was given in `location`; a later location replaces an earlier
        one."""
        self._locations[group, name] = location

    def add_file(self, location: str, text: str) -> None:
        """Record the text of a file, which must be valid TOML, to find lines in it later."""
        self._texts[location] = text

    def location_of(self, group: str, name: str) -> str:
        """Return the file, variable or command line that gave a setting; empty for its default."""
        return self._locations.get((group, name), "")

    def of(self, path: SettingPath) -> str:
        """Return the origin of the setting at `path`, with its line; empty for a default."""
        if len(path) < _SETTING_PATH_LENGTH:
            return ""
        return self.with_line_in(self.location_of(str(path[0]), str(path[1])), path)

    def with_line_in(self, location: str, path: SettingPath) -> str:
        """Return `location`, with the line of `path` where it is a file."""
        text = self._texts.get(location)
        if text is None:
            return location
        return f"{location}, line {line_of(text, path)}"


def line_of(text: str, path: SettingPath) -> int:
    """Return the number, from 1, of the first line of the statement that gives the setting at
    `path`. Where the text lacks that setting, the longest part of the path that is present counts.

    Args:
        text: valid TOML.
        path: names of tables and settings, and indexes into lists.
    """
    lines = text.split("\n")
    whole = tomllib.loads(text)
    while path and not _has(whole, path):
        path = path[:-1]
    without, having = 0, len(lines)  # numbers of lines that lack and have the setting
    while having - without > 1:
        middle = (without + having) // 2
        found = _nearest_valid_start(lines, middle, without, having)
        if found is None:
            break  # one statement from `without` to `having`
        length, content = found
        if _has(content, path):
            having = length
        else:
            without = length
    return without + 1


def _nearest_valid_start(
    lines: list[str], middle: int, below: int, above: int
) -> tuple[int, dict[str, object]] | None:
    """Return the number n nearest to `middle` of which the first n lines are valid TOML, and their
    content; None where `below` and `above` enclose a single statement."""
    for length in (*range(middle, below, -1), *range(middle + 1, above)):
        try:
            return length, tomllib.loads("\n".join(lines[:length]))
        except tomllib.TOMLDecodeError:
            continue
    return None


def _has(content: object, path: SettingPath) -> bool:
    for part in path:
        match content, part:
            case dict(), str() if part in content:
                content = content[part]
            case list(), int() if part < len(content):
                content = content[part]
            case _:
                return False
    return True
