"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the log and the state.")
]
