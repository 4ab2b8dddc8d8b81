"""`penstock import mosquitto` is killed while it makes the store: there is none, or a whole one."""

from __future__ import annotations

from pathlib import Path

from penstock.mosquitto.database import QUEUED
from penstock.store.examination import examine
from tests.support.commands import run, running
from tests.support.deadline import wait_for
from tests.support.mosquitto_database import client, client_message, database, message

MESSAGES = 8000
CLIENTS = 20


def test_a_killed_import_leaves_no_half_and_the_next_one_is_whole(tmp_path: Path) -> None:
    chunks = [message(number, "plant/n", b"x" * 100, 1) for number in range(1, MESSAGES + 1)]
    for name in range(CLIENTS):
        chunks.append(client(f"client-{name}", 86_400))
        chunks += [
            client_message(f"client-{name}", number, 0, 1, QUEUED)
            for number in range(name + 1, MESSAGES + 1, CLIENTS)
        ]
    (tmp_path / "mosquitto.db").write_bytes(database(6, *chunks))
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(f"persistence true\npersistence_location {tmp_path}\n")
    to = tmp_path / "to"
    arguments = ("import", "mosquitto", str(configuration), "--to", str(to))
    with running(*arguments) as command:
        wait_for("the store to be begun", lambda: any(to.glob(".importing-*/store/*")))
        command.kill()
    assert not (to / "penstock.toml").exists()
    assert not (to / "data").exists()
    code, _, told = run(*arguments)
    assert code == 0, told.decode()
    found = examine(to / "data")
    assert (found.problems, found.sessions, found.queued) == ([], CLIENTS, MESSAGES)
