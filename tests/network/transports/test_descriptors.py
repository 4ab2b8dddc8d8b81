"""The limit of open files: reached by clients, it must not stop the broker."""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.fixtures import Clients

LIMIT = 256


def limited(limit: int) -> tuple[str, ...]:
    """The command of a broker with this hard limit."""
    program = f'ulimit -n {limit} && exec "$@"'
    return ("sh", "-c", program, "sh", sys.executable, "-m", "penstock", "serve")


def test_more_idle_clients_than_files(tmp_path: Path, clients: Clients) -> None:
    """A broker that accepts them all has no file left for its log, and must stop."""
    broker = Broker(tmp_path, command=limited(LIMIT))
    try:
        broker.start()
        worker = clients.join(broker, "worker")
        worker.subscribe("t")
        with ExitStack() as stack:
            for _ in range(LIMIT + 50):
                stack.enter_context(socket.create_connection(broker.address, DEADLINE_S))
            for number in range(100):
                worker.publish("t", b"%d" % number, 1)
            assert worker.take_payloads(100) == [b"%d" % number for number in range(100)]
            clients.open(broker).expect_end()
            assert broker.log().count("as many as the limit of open files") == 1
        wait_for(
            "room for one more",
            lambda: not clients.open(broker).has_ended(0.1),
        )
        clients.join(broker, "late").publish("t", b"late", 1)
        wait_until_logged(broker, f"the limit of open files is {LIMIT}")
    finally:
        broker.close()
