"""Settings: frozen groups, validated once, and one sentence for every mistake.

Each group has its file: `listener.py`, `durability.py`, `limits.py`, `access.py`, `stream.py` and
so on; `settings.py` combines them into `Settings` and checks the rules between groups. The text
under a field is its documentation, with units and range. `values.py` defines the types of values;
`load.py` merges the command line, the environment and the TOML file into one `Settings`;
`mistakes.py` turns each validation error of pydantic into a sentence; `memory.py` computes how much
memory clients can make the broker use; `describe.py` prints all settings as commented TOML or as
the tables of docs/configuration.md. To add a setting, add a field to a group: the other modules
find it there. The name of a duration or size has its unit, and a bound then ends in `_max` or
`_min` (`connect_timeout_s`, `commit_bytes_max`). Names that users know from MQTT 5 or from other
brokers are kept (`receive_maximum`, `max_inflight`), with the unit of a duration or of bytes added
(`retry_interval_s`, `max_packet_size_bytes`); a few bounds are called without `_max` what they are
(`budget_bytes`, `recorded_clients`). This file imports nothing, so that a client need not load
pydantic.
"""
