"""Settings: frozen groups, validated once, and one sentence for every mistake.

`groups.py` holds the settings themselves, each with its unit and range; `load.py` merges the
command line, the environment and the TOML file into one `Settings`; `mistakes.py` turns what
pydantic found wrong into a sentence; `describe.py` prints all settings as commented TOML or as
the table in docs/configuration.md. To add a setting, add a field to a group: the rest follows.
"""

from penstock.config.address import Address, SocketFile
from penstock.config.groups import (
    Access,
    Durability,
    Limits,
    Listener,
    Log,
    MainListener,
    OtherListener,
    Settings,
    Status,
    Stream,
    StreamDefinition,
)
from penstock.config.load import load_settings

__all__ = [
    "Access",
    "Address",
    "Durability",
    "Limits",
    "Listener",
    "Log",
    "MainListener",
    "OtherListener",
    "Settings",
    "SocketFile",
    "Status",
    "Stream",
    "StreamDefinition",
    "load_settings",
]
