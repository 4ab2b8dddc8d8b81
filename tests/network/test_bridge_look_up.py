"""A bridge whose remote broker's name is never found holds up no other bridge, and no exit."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import penstock
from tests.support.bridged import bridge, client, connected, status, with_bridges
from tests.support.broker import Broker
from tests.support.deadline import wait_for

HANGING: Final = "hangs.invalid"

_HANGS: Final = """
import pathlib, socket, threading
_ask = socket.getaddrinfo
def _hang(host, *rest, **named):
    if str(host).endswith("{name}"):
        pathlib.Path("{asked}").touch()
        threading.Event().wait()
    return _ask(host, *rest, **named)
socket.getaddrinfo = _hang
"""


def test_a_name_that_hangs_holds_up_no_other_bridge_and_no_exit(
    tmp_path: Path, shared_broker: Broker, name: str
) -> None:
    """The system's resolver is replaced: one that hangs cannot be started without being root."""
    asked = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(_HANGS.format(name=HANGING, asked=asked))
    hanging = [bridge((f"{number}.{HANGING}", 1883), name=f"hangs{number}") for number in range(40)]
    works = bridge(("localhost", shared_broker.port), name="works", client_id=name)
    directory = tmp_path / "local"
    directory.mkdir()
    local = Broker(directory, with_bridges(*hanging, works))
    local.set_environment("PYTHONPATH", f"{tmp_path}:{Path(penstock.__file__).parents[1]}")
    try:
        local.start()
        connected(local, "works")
        wait_for("the look-ups", asked.exists)
        with client(local, "near") as near:
            near.publish("out/a", b"1", 1)
            near.settle()
        status(local, "state", b"dialling", "hangs39")
        assert local.stop() == 0
    finally:
        local.close()
