"""The import from Mosquitto: its configuration, users, access list and database become Penstock's.

::

    mosquitto.conf ─ configuration ─▶ lines by listener and bridge
                                          │ broker_options, listeners, bridges
    password_file, acl_file ─ users ──────┤      each line: a setting, or advice
                                          ▼
                                     translation ─▶ penstock.toml, users, acl, report.txt
    mosquitto.db ─ database ─▶ snapshot ─ sessions ─▶ a new data directory, through the engine

Each line of the configuration results in one finding (``findings``): nothing is left out silently.
``importing`` runs the whole import, and writes nothing until every file was read.
"""
