"""The TOML file of an import: tables of settings, each value with a comment on its origin."""

from __future__ import annotations

import re
from typing import Final, final

from penstock.config.toml_values import toml_value
from penstock.mosquitto.findings import Line

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@final
class Table:
    """A table of the TOML file.

    Args:
        heading: its header line, such as ``[limits]`` or ``[[bridge.remotes]]``.
        comment: a comment above it, such as the line that it is made from; empty for none.
    """

    def __init__(self, heading: str, comment: str = "") -> None:
        self.heading = heading
        self.comment = comment
        self._values: dict[str, tuple[object, str]] = {}

    def set(self, name: str, value: object, origin: Line | str) -> None:
        """Set ``name``, with its origin as the comment; a later call replaces an earlier one.

        ``value`` is text, a number, a truth value, a list of these, or a table of these.
        """
        comment = origin if isinstance(origin, str) else f"{origin.place}: {origin.text}"
        self._values[name] = (value, comment)

    def get(self, name: str) -> object:
        """Return the value of ``name``; None if it is not set."""
        entry = self._values.get(name)
        return None if entry is None else entry[0]

    def set_in(self, name: str, key: str, value: object, line: Line) -> None:
        """Set ``key`` in the inline table ``name``; add ``line`` to the comment of the table."""
        entry = self._values.get(name)
        inner = dict(entry[0]) if entry is not None and isinstance(entry[0], dict) else {}
        inner[key] = value
        origin = f"{entry[1]}; {line.place}: {line.text}" if entry is not None else line
        self.set(name, inner, origin)

    def __bool__(self) -> bool:
        return bool(self._values)

    def lines(self) -> list[str]:
        """Return the lines of the table in the file."""
        lines = [""]
        if self.comment:
            lines.append(f"# {_one_line(self.comment)}")
        lines.append(self.heading)
        for name, (value, comment) in self._values.items():
            if comment:
                lines.append(f"# {_one_line(comment)}")
            lines.append(f"{name} = {_toml(value)}")
        return lines


def _one_line(text: str) -> str:
    """Return ``text`` without characters that would end a comment, or that TOML refuses in one."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml_key(str(key))} = {_toml(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return toml_value(value)


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)
