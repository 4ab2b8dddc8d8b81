"""Settings: frozen groups, validated once, and one sentence for every mistake.

Each group has its file: `listener.py`, `durability.py`, `limits.py`, `access.py`, `stream.py` and
so on; `settings.py` holds them together, and the rules between them. The text under a field is
its documentation, with units and range. `values.py` has the kinds of values; `load.py` merges the
command line, the environment and the TOML file into one `Settings`; `mistakes.py` turns what
pydantic found wrong into a sentence; `memory.py` computes what the settings let clients hold;
`describe.py` prints all settings as commented TOML or as the tables of docs/configuration.md. To
add a setting, add a field to a group: the rest follows. Names end in their unit; a limit is named
after what it bounds.
"""

from penstock.config.access import Access
from penstock.config.address import Address, SocketFile
from penstock.config.durability import Durability
from penstock.config.limits import Limits
from penstock.config.listener import Listener, MainListener, OtherListener
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.config.status import Log, Status
from penstock.config.stream import Stream, StreamDefinition

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
