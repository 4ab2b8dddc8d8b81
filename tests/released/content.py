"""What a broker is asked to keep, so that each kind of record is in its store.

::

      a broker that trims its log ─▶ an archive ─ backup, restore ─▶ a log of a second epoch
         ─ a broker with clients ─▶ sessions, queues, retained messages, wills, producers, readers
         ─ SIGTERM ─▶ the store; ``found.py`` asks for all of it again
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from penstock.auth.files import write_passwords
from penstock.control.landed_requests import ReportProgress
from penstock.control.reader_requests import Lease
from penstock.protocol.kinds import V311
from penstock.protocol.packets import Connack, Connect, Publish, Pubrec, Pubrel, Will
from penstock.protocol.properties import Properties
from penstock.stream.client import StreamClient
from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients
from tests.support.raw_client import RawClient

NEVER: Final = 0xFFFF_FFFF
LONG_S: Final = 4_000_000_000  # a message that expires after all who read this
PRODUCER: Final = "plant-7/press-3"
OWNER: Final = "alice"
PASSWORD: Final = b"not-a-secret"
WILL_DELAY_S: Final = 5
WITH_WILL: Final = 0x04  # DISCONNECT with will
TIME_IS_OVER: Final = 27
HALF: Final = Publish("half/1", b"once", 2, packet_id=9)
CREW: Final = "$share/crew/jobs/#"
LARGE_BYTES: Final = 5 << 20  # above 4 MiB the store keeps it in parts
SETTINGS: Final = {
    "durability.retention_s": 0,
    "events.enabled": True,
    "limits.max_packet_size_bytes": 2 * LARGE_BYTES,
    "listener.allow_anonymous": True,
    "stream.allow_anonymous": True,
    "stream.streams": json.dumps(
        [
            {"name": "messages", "topic_filters": ["#"]},
            {"name": "events", "topic_filters": ["$events/#"]},
            {"name": "alarms", "topic_filters": ["plant/+/alarm"], "retention_s": 0},
        ]
    ),
}
TRIMS: Final = {"durability.retention_bytes_max": 50_000}
TRIMMING: Final = (sys.executable, "-m", "tests.support.trimming_broker", "serve")


@contextmanager
def released_broker(
    directory: Path, settings: Mapping[str, object] | None = None, command: tuple[str, ...] = SERVE
) -> Iterator[Broker]:
    """Start a broker as every release's content asks for; it is stopped in order at the end."""
    passwords = directory / "passwords"
    write_passwords(passwords, {OWNER: PasswordHasher(1, 64, 1).hash(PASSWORD)})
    given = {**SETTINGS, "access.password_file": passwords, **(settings or {})}
    broker = Broker(directory, given, command=command, stream=True)
    try:
        broker.start()
        yield broker
        assert broker.stop() == 0
    finally:
        broker.close()


@contextmanager
def streams_of(broker: Broker) -> Iterator[StreamClient]:
    """Connect to the broker's stream service."""
    host, port = broker.stream_address
    with StreamClient(f"{host}:{port}", connect_timeout_s=DEADLINE_S) as client:
        yield client


def penstock(*words: str | Path, given: str = "") -> int:
    """Run a command of Penstock's, with this on its standard input; return its exit code."""
    command = [sys.executable, "-m", "penstock", *map(str, words)]
    done = subprocess.run(
        command, env=environment(), input=given, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode


def write_content(directory: Path) -> None:
    """Make ``data`` and ``box`` in ``directory``, which is empty."""
    (directory / "former").mkdir()
    with released_broker(directory / "former", TRIMS, TRIMMING) as broker:
        _archive(broker)
    backup = directory / "backup"
    assert penstock("store", "backup", backup, "--data-dir", directory / "former" / "data") == 0
    assert penstock("store", "restore", backup, "--data-dir", directory / "data") == 0
    clients = Clients()
    try:
        with released_broker(directory) as broker:
            _retained(broker, clients)
            _session(broker, clients)
            _older_session(broker, clients)
            _owned_session(broker, clients)
            _shared_subscription(broker, clients)
            _half_received(broker, clients)
            _producer(broker, clients)
            _readers(broker)
            _will(broker, clients)
        _outbox(directory / "box", broker.port)
    finally:
        clients.close()


def _archive(broker: Broker) -> None:
    """Let messages leave the log; those of `alarms` stay in its archive."""
    clients = Clients()
    publisher = clients.join(broker, "plant")
    for number in range(12):
        kind = "temp" if number % 2 else "alarm"
        publisher.publish(f"plant/{number}/{kind}", b"%04d" % number + b"." * 10_000)
    publisher.disconnect()
    with streams_of(broker) as streams:
        wait_for("the log to begin later", lambda: streams.offsets("messages").earliest > 4)
        assert streams.offsets("alarms").earliest < 4
    clients.close()


def _retained(broker: Broker, clients: Clients) -> None:
    publisher = clients.join(broker, "keeper")
    about = Properties(
        content_type="text/plain",
        payload_format_indicator=1,
        message_expiry_interval=LONG_S,
        response_topic="answers/keeper",
        correlation_data=b"\0\xff",
        user_properties=[("site", "north"), ("site", "säule 7")],
    )
    publisher.publish("keep/described", "grüße".encode(), 1, True, about)
    publisher.publish("keep/twice", b"first", 2, True)
    publisher.publish("keep/twice", b"second", 2, True)
    publisher.publish("keep/gone", b"first", 1, True)
    publisher.publish("keep/gone", b"", 1, True)
    publisher.publish("keep/large", b"z" * LARGE_BYTES, 1, True)
    publisher.disconnect()


def _session(broker: Broker, clients: Clients) -> None:
    """In flight in each state there is; in the queue at both QoS, one with expiry, one expired."""
    away = clients.join(broker, "waits", expiry_s=NEVER)
    away.subscribe("waits/#", identifier=7)
    publisher = clients.join(broker, "publisher")
    for number, qos in enumerate((1, 2, 2), start=1):
        publisher.publish(f"waits/{number}", b"in flight", qos)
    sent = [away.expect(Publish) for _ in range(3)]
    away.send(Pubrec(sent[1].packet_id))
    away.expect(Pubrel)
    away.disconnect()
    for number, expiry_s in enumerate((None, None, LONG_S, None, 1), start=4):
        properties = Properties(message_expiry_interval=expiry_s)
        publisher.publish(f"waits/{number}", b"queued", 1 + number % 2, properties=properties)
    publisher.disconnect()
    time.sleep(1.1)  # the last one is over before the store is closed


def _older_session(broker: Broker, clients: Clients) -> None:
    away = clients.join(broker, "older", V311, clean_start=False)
    away.subscribe("older/+", qos=1)
    away.disconnect()
    publisher = clients.join(broker, "publisher")
    for number in range(3):
        publisher.publish(f"older/{number}", b"queued", 2)
    publisher.disconnect()


def _owned_session(broker: Broker, clients: Clients) -> None:
    owner = clients.open(broker)
    assert log_in(owner, OWNER).reason_code == 0
    owner.subscribe("owned/#", qos=1)
    owner.disconnect()


def log_in(client: RawClient, username: str | None, clean_start: bool = True) -> Connack:
    """Connect as "owned", with the name of a user or without; return the answer."""
    client.client_id = "owned"
    password = None if username is None else PASSWORD
    properties = Properties(session_expiry_interval=NEVER)
    client.send(
        Connect(
            "owned",
            clean_start=clean_start,
            username=username,
            password=password,
            properties=properties,
        )
    )
    return client.expect(Connack)


def _shared_subscription(broker: Broker, clients: Clients) -> None:
    """One message in flight at a member, more in the group's queue."""
    member = clients.join(broker, "crew-1", expiry_s=NEVER)
    member.subscribe(CREW)
    publisher = clients.join(broker, "publisher")
    publisher.publish("jobs/0", b"in flight", 1)
    member.expect(Publish)
    member.disconnect()
    for number in range(1, 5):
        publisher.publish(f"jobs/{number}", b"queued", 1 + number % 2)
    publisher.disconnect()


def _half_received(broker: Broker, clients: Clients) -> None:
    """A message of QoS 2 whose PUBREL did not come."""
    sender = clients.join(broker, "sends", expiry_s=NEVER)
    sender.send(HALF)
    sender.expect(Pubrec)
    sender.disconnect()


def _producer(broker: Broker, clients: Clients) -> None:
    publisher = clients.join(broker, "press")
    for number in range(1, 4):
        names = [("penstock-producer", PRODUCER), ("penstock-sequence", str(number))]
        properties = Properties(user_properties=names)
        assert publisher.publish("press/3", b"%d" % number, 1, properties=properties) == 0
    publisher.disconnect()


def _readers(broker: Broker) -> None:
    """A registered reader of the log, and a table that says how far it is."""
    with streams_of(broker) as streams:
        log = streams.offsets("messages")
        at = log.latest - 4
        streams.lease(Lease("etl", "messages", ("press/#",), log.epoch, at, 3600.0, about="a job"))
        streams.report_progress(
            ReportProgress("readings", "messages", (), log.epoch, log.earliest, at)
        )


def _will(broker: Broker, clients: Clients) -> None:
    """A will whose delay is not over when the broker ends."""
    delay = Properties(will_delay_interval=WILL_DELAY_S)
    will = Will("wills/late", b"gone", 1, True, delay)
    clients.join(broker, "willed", expiry_s=NEVER, will=will).disconnect(WITH_WILL)


def _outbox(box: Path, port: int) -> None:
    """Messages that a client accepted while there was no broker."""
    lines = "".join(f"{number}\n" for number in range(3))
    words = ("pub", "--outbox", box, "-i", "boxed", "-t", "outbox/lines", "-l", "--quiet")
    code = penstock(*words, "-p", str(port), "-W", "2", given=lines)
    assert code == TIME_IS_OVER
