"""Settings in words: as a commented TOML file, and as the tables of docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.config.address import Address, SocketFile
from penstock.config.group import effect_of, explanations
from penstock.config.load import environment_name
from penstock.config.mistakes import settings_of
from penstock.config.settings import Settings
from penstock.config.toml_values import toml_value
from penstock.engine.change_effects import BY_PART, ChangeEffect
from penstock.masking import MASK, is_secret, mask_secrets

_COMMENT_WIDTH: Final = 96

_INTRODUCTION: Final = """\
# Configuration

<!-- Written by `make docs` from the settings in src/penstock/config; change it there. -->

`penstock serve` needs no configuration. Where you want another value, give it in one of three
places; the first that has it wins:

1. the command line, for the few settings that have an option (`penstock serve --help`);
2. an environment variable, `PENSTOCK_<GROUP>__<NAME>` with two underscores between group and
   name, such as `PENSTOCK_LIMITS__MAX_INFLIGHT=64`; a list or table is written as JSON;
3. a TOML file, given as `--config FILE`.

`penstock config` prints all settings in effect as such a file, each with its explanation. A
mistake in a setting is one sentence on standard error and exit code 2.

`penstock reload`, or SIGHUP, has a running broker read all of it again, with the files that
settings name: [deploying.md](deploying.md#change-settings-while-it-runs). The column *Change* says
what a change of a setting needs: **reload** is enough; **new**: a reload is enough, and it counts
for connections that are made from then on; **restart** of the broker; **job**: the broker does not
use it, and table jobs read it when they start.

```toml
[listener]
bind = "127.0.0.1:1883"

[[listener.others]]            # docs/listeners.md
name = "services"
bind = "127.0.0.1:1884"
limits = { max_inflight = 128, max_mqueue_len = 10000 }

[[stream.streams]]
name = "readings"
topic_filters = ["plant/+/temperature", "plant/+/pressure"]

[[stream.streams]]
name = "alarms"
topic_filters = ["plant/+/alarm"]
retention_s = 31536000         # a year; the log, and "readings", durability.retention_s
```

The groups:
"""


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
                lines += ["", *comment, f"{name} = {_toml_value(value)}"]
        lines += tables
    return "\n".join(lines).lstrip("\n") + "\n"


def as_markdown() -> str:
    """Return the whole of docs/configuration.md."""
    lines = [_INTRODUCTION, "| | |", "|---|---|"]
    lines += [
        f"| [{group}](#{group}) | {_on_one_line(getattr(Settings(), group).__doc__)} |"
        for group in Settings.model_fields
    ]
    lines.append("")
    for group in Settings.model_fields:
        values = getattr(Settings(), group)
        lines += [f"## {group}", "", _on_one_line(values.__doc__), ""]
        lines += ["| Setting | Default | Change | Meaning |", "|---|---|---|---|"]
        texts = explanations(type(values))
        for name in settings_of(group):
            default = _toml_value(getattr(values, name))
            change = effect_of(type(values), name).name
            text = _cell(texts.get(name, ""))
            lines.append(f"| `{group}.{name}` | `{default}` | {change} | {text} |")
        for name, field in settings_of(group).items():
            table = _table_of(field)
            if table is not None and not _repeats_group(table, type(values)):
                effect = effect_of(type(values), name)
                lines += _definitions(f"{group}.{name}", field, table, effect)
        first = next(iter(settings_of(group)))
        lines += ["", f"In the environment: `{environment_name(group, first)}` and so on.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _definitions(
    path: str, field: FieldInfo, table: type[BaseModel], effect: ChangeEffect
) -> Iterator[str]:
    """Yield the lines that explain a table of settings inside a group; a change of any of them
    takes effect as `effect` says for the setting with the table."""
    headings: dict[object, str] = {tuple: f"each `[[{path}]]`", dict: f"each of `{path}`"}
    yield from (
        "",
        f"In {headings.get(get_origin(field.annotation), f'`{path}`')}:",
        "",
        "| Setting | Default | Change | Meaning |",
        "|---|---|---|---|",
    )
    texts = explanations(table)
    for name, inner in table.model_fields.items():
        value = "" if inner.is_required() or inner.default is None else _toml_value(inner.default)
        default, text = f"`{value}`" if value else "", _cell(texts.get(name, ""))
        change = (effect_of(table, name) if effect is BY_PART else effect).name
        yield f"| `{name}` | {default} | {change} | {text} |"
    for name, inner in table.model_fields.items():
        kind = _table_of(inner)
        if kind is not None and kind is not table:  # the fields of a column are columns
            yield from _definitions(f"{path}.{name}", inner, kind, effect)


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the class of the settings inside a field; None without any, or if it is a group of its
    own."""
    groups = [group.annotation for group in Settings.model_fields.values()]
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in groups:
            return kind
    return None


def _repeats_group(table: type[BaseModel], group: type[BaseModel]) -> bool:
    """Return whether a table repeats the settings of its group, as `[[listener.others]]` does."""
    return len(set(group.model_fields) & set(table.model_fields)) > 1


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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
    return _toml_value(value)


def _toml_value(value: object) -> str:
    """Return any value in TOML's notation, with secrets masked that are known by their form."""
    if isinstance(value, BaseModel):
        pairs = (
            f"{name} = {masked_toml(name, getattr(value, name))}" for name in _set_fields(value)
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, dict):
        entries = (f"{toml_value(key)} = {_toml_value(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
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
