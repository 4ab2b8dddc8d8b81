"""Settings: frozen groups, validated once, and one sentence for every mistake.

Each group has its file: `listener.py`, `durability.py`, `limits.py`, `access.py`, `stream.py` and
so on; `settings.py` holds them together, and the rules between them. The text under a field is
its documentation, with units and range. `values.py` has the kinds of values; `load.py` merges the
command line, the environment and the TOML file into one `Settings`; `mistakes.py` turns what
pydantic found wrong into a sentence; `memory.py` computes what the settings let clients hold;
`describe.py` prints all settings as commented TOML or as the tables of docs/configuration.md. To
add a setting, add a field to a group: the rest follows. Names end in their unit; a limit is named
after what it bounds. Nothing is imported here, so that a client need not load pydantic.
"""
