"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import ConfigError

LEVELS_MAX: Final = 65_535

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the log and the state.")
]


def check_topic(topic: str) -> None:
    """Raise ConfigError if `topic` is neither empty nor a topic that a message may have."""
    from penstock.engine.topics import is_topic_name

    if topic and not is_topic_name(topic, LEVELS_MAX):
        raise ConfigError(f"{topic!r} is no topic: name one that messages have, without + and #")
