"""Write docs/configuration.md from the settings; `make check` fails while it is out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.config.describe import value_as_toml
from penstock.config.group import effect_of, explanations
from penstock.config.load import environment_name
from penstock.config.mistakes import settings_of
from penstock.config.settings import Settings
from penstock.engine.values.change_effects import BY_PART, ChangeEffect

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
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
            default = value_as_toml(getattr(values, name))
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
        value = "" if inner.is_required() or inner.default is None else value_as_toml(inner.default)
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


def _on_one_line(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
