"""Writes settings as a commented TOML file; masks secrets in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from penstock.config.address import Address, SocketFile
from penstock.config.group import explanations
from penstock.config.mistakes import settings_of
from penstock.config.settings import Settings
from penstock.config.toml_values import toml_value
from penstock.masking import MASK, is_secret, mask_secrets

_COMMENT_WIDTH: Final = 96


def as_toml(settings: Settings) -> str:
    """Return all settings with their values as a TOML file, each under its explanation."""
    lines: list[str] = []
    for group in Settings.model_fields:
        values = getattr(settings, group)
        lines += ["", f"# {_on_one_line(values.__doc__)}", f"[{group}]"]
        tables: list[str] = []
        texts = explanations(type(values))
        for name in settings_of(group):
            comment = [f"# {line}" for line in _wrapped(texts.get(name, ""))]
            value = getattr(values, name)
            if _is_table_list(value):
                tables += _table_lines(f"{group}.{name}", comment, value)
            else:
                lines += ["", *comment, f"{name} = {value_as_toml(value)}"]
        lines += tables
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_table_list(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], BaseModel)


def _table_lines(path: str, comment: list[str], tables: tuple[BaseModel, ...]) -> Iterator[str]:
    yield ""
    yield from comment
    for table in tables:
        yield f"[[{path}]]"
        for name in _set_fields(table):
            yield f"{name} = {masked_toml(name, getattr(table, name))}"


def _set_fields(value: BaseModel) -> list[str]:
    """Return the names of the fields of a table that were set; the others have their defaults.

    TOML has no null: a field that was set to None is left out.
    """
    names = [name for name in type(value).model_fields if name in value.model_fields_set]
    return [name for name in names if getattr(value, name) is not None]


def masked_toml(name: str, value: object) -> str:
    """Return the value of the setting `name` in TOML's notation, with secrets masked."""
    if value and isinstance(value, str) and is_secret(name):
        return toml_value(MASK)
    if name == "user_properties" and isinstance(value, dict):
        value = {key: MASK if is_secret(key) else text for key, text in value.items()}
    return value_as_toml(value)


def value_as_toml(value: object) -> str:
    """Return any value in TOML's notation, with secrets masked that are known by their form."""
    if isinstance(value, BaseModel):
        pairs = (
            f"{name} = {masked_toml(name, getattr(value, name))}" for name in _set_fields(value)
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, dict):
        entries = (f"{toml_value(key)} = {value_as_toml(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(value_as_toml(item) for item in value) + "]"
    if isinstance(value, (Path, Address, SocketFile)):
        value = str(value)
    if isinstance(value, str):
        value = mask_secrets(value)
    return toml_value(value)


def _on_one_line(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > _COMMENT_WIDTH:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line
