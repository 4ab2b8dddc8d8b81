"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import ConfigError

TOPIC_LEVELS_MAX: Final = 65_535

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the broker's log and state.")
]
EscapeFormulas = Annotated[
    bool,
    typer.Option(
        "--escape-formulas",
        help="In CSV put ' before text that a spreadsheet takes for a formula: = + - @.",
    ),
]


def check_topic(topic: str) -> None:
    """Raise ConfigError unless `topic` is a valid topic name, or empty."""
    from penstock.engine.values.topics import is_topic_name

    if topic and not is_topic_name(topic, TOPIC_LEVELS_MAX):
        raise ConfigError(f"{topic!r} is no topic: give a topic name, without + and #")
