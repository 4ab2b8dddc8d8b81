"""The TOML file that is written: tables of settings, each with a comment on where it is from."""

from __future__ import annotations

import re
from typing import Final, final

from penstock.config.toml_values import toml_value
from penstock.mosquitto.findings import Line

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@final
class Table:
    """One table of the file.

    Args:
        heading: its line, such as ``[limits]`` or ``[[bridge.remotes]]``.
        why: a comment above it, such as the line it is from; empty for none.
    """

    def __init__(self, heading: str, why: str = "") -> None:
        self.heading = heading
        self.why = why
        self._values: dict[str, tuple[object, str]] = {}

    def set(self, name: str, value: object, why: Line | str) -> None:
        """Set ``name``; a later call replaces an earlier one.

        ``value`` is text, a number, a truth value, a list of these, or a table of these.
        """
        text = why if isinstance(why, str) else f"{why.place}: {why.text}"
        self._values[name] = (value, text)

    def get(self, name: str) -> object:
        """Return the value of ``name``; None where it is not set."""
        found = self._values.get(name)
        return None if found is None else found[0]

    def put_into(self, name: str, key: str, value: object, why: Line) -> None:
        """Set ``key`` in the inline table ``name``."""
        known = self._values.get(name)
        inner = dict(known[0]) if known is not None and isinstance(known[0], dict) else {}
        inner[key] = value
        said = f"{known[1]}; {why.place}: {why.text}" if known is not None else why
        self.set(name, inner, said)

    def __bool__(self) -> bool:
        return bool(self._values)

    def lines(self) -> list[str]:
        """Return the lines of the table in the file."""
        lines = [""]
        if self.why:
            lines.append(f"# {_one_line(self.why)}")
        lines.append(self.heading)
        for name, (value, why) in self._values.items():
            if why:
                lines.append(f"# {_one_line(why)}")
            lines.append(f"{name} = {_notation(value)}")
        return lines


def _one_line(text: str) -> str:
    """Return ``text`` without characters that would end a comment, or that TOML refuses in one."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _notation(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_key(str(key))} = {_notation(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return toml_value(value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)
