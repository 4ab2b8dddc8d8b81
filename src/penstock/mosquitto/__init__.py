"""Coming from Mosquitto: its configuration, users, access list and database become Penstock's.

::

    mosquitto.conf ─ configuration ─▶ lines by listener and bridge
                                          │ broker_options, listeners, bridges
    password_file, acl_file ─ users ──────┤      each line: a setting, or what to do about it
                                          ▼
                                     translation ─▶ penstock.toml, users, acl, report.txt
    mosquitto.db ─ database ─▶ snapshot ─ sessions ─▶ a new data directory, through the engine

Each line of the configuration ends up as one finding (``findings``): nothing is left out silently.
``importing`` does all of it, and writes nothing until everything was read.
"""
