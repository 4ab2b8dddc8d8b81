"""Settings: frozen groups, validated once, and one sentence for every mistake.

Each group has its file: `listener.py`, `durability.py`, `limits.py`, `access.py`, `stream.py` and
so on; `settings.py` combines them into `Settings` and checks the rules between groups. The text
under a field is its documentation, with units and range. `values.py` defines the types of values;
`load.py` merges the command line, the environment and the TOML file into one `Settings`;
`mistakes.py` turns each validation error of pydantic into a sentence; `memory.py` computes how much
memory clients can make the broker use; `describe.py` prints all settings as commented TOML or as
the tables of docs/configuration.md. To add a setting, add a field to a group: the other modules
find it there. The name of a quantity has its unit, then `_max` or `_min` if it is a bound
(`connect_timeout_s`, `commit_bytes_max`); names that users know from MQTT 5 or from other brokers
stay as they are (`receive_maximum`, `max_inflight`). This file imports nothing, so that a client
need not load pydantic.
"""
