"""Takes a copy of another member's store over its stream service (``stream.seeds``).

A member of a cluster runs it as a process of its own, so that neither the bytes nor the examination
of the copy hold up the broker; `penstock cluster reseed` runs it itself.

Life of the process: it prints ``fetched BYTES TOTAL`` now and then, and ``whole SEQUENCE EPOCH``
when the copy in DATA_DIR/seed.unfinished is complete, examined, and has come to that sequence of
the log. It ends with exit code 0, or 1 and a sentence on standard error, and when its standard
input ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from penstock.cluster.view import read_position
from penstock.errors import PenstockError, StoreDamaged, StoreFailed
from penstock.store.database import open_for_reading
from penstock.store.examination import examine
from penstock.store.faults import with_remedy
from penstock.store.identity import read_epoch
from penstock.store.replacing import new_unfinished_copy
from penstock.stream.connections import Connection, Connections
from penstock.stream.credentials import Credentials
from penstock.stream.flight_errors import first_sentence
from penstock.stream.seeds import SeedFiles, SeedTicket
from penstock.telemetry.terminal import guard_terminals

COPY_S_MAX: Final = 600.0
"""Longest time in seconds that a member may take to make a copy of its store."""

FILE_S_MAX: Final = 3600.0
SPARE_BYTES: Final = 268_435_456
"""Bytes that are left free on the disk beside the copy."""

NICENESS: Final = 10
_NAME: Final = re.compile(r"(?:store/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")

Progress = Callable[[int, int], None]
"""Takes the bytes that have come, and those of the whole copy."""


class Copy(NamedTuple):
    """A copy that is complete and whole.

    Attributes:
        sequence: the entry of the log up to which it has come.
        epoch: the epoch of its log of messages.
    """

    sequence: int
    epoch: str


def fetch(
    address: str, credentials: Credentials, data_dir: Path, node: str, progress: Progress
) -> Copy:
    """Take a copy of the store of the member at ``address`` into DATA_DIR/seed.unfinished.

    Args:
        address: HOST:PORT of its stream service.
        credentials: token, TLS and certificates.
        data_dir: the data directory of this member.
        node: its name: an earlier copy for it is removed.
        progress: told how far it is.

    Raises:
        ConfigError: a file of the credentials cannot be used.
        StoreFailed: the other member does not give it, it does not arrive, or the disk is full.
        StoreDamaged: it is not whole.
    """
    unfinished = new_unfinished_copy(data_dir)
    connections = Connections([address], credentials)
    try:
        connection = connections.to(address)
        _fetch_files(connection, unfinished, node, progress)
    except (flight.FlightError, pa.ArrowException) as error:
        raise StoreFailed(
            f"the member at {address} gives no copy of its store: {first_sentence(error)}"
        ) from error
    except OSError as error:
        raise StoreFailed(f"the copy cannot be written: {with_remedy(error, data_dir)}") from error
    finally:
        connections.close_all()
    return _examined(unfinished)


def _fetch_files(connection: Connection, unfinished: Path, node: str, progress: Progress) -> None:
    client = connection.flight
    action = flight.Action("seed", msgspec.json.encode({"node": node}))
    (answer,) = client.do_action(action, connection.options(COPY_S_MAX))
    made = msgspec.json.decode(answer.body.to_pybytes(), type=SeedFiles)
    total = sum(size for _, size in made.files)
    try:
        free = shutil.disk_usage(unfinished).free
        if total + SPARE_BYTES > free:
            raise StoreFailed(
                f"the copy has {total:,} bytes, and {free:,} are free in {unfinished.parent}: make"
                " room"
            )
        done = 0
        for name, size in made.files:
            if _NAME.fullmatch(name) is None:
                raise StoreFailed(f"the copy has a file with the name {name!r}")
            _fetch_file(connection, SeedTicket(made.seed, name), unfinished / name, size)
            done += size
            progress(done, total)
    finally:
        body = msgspec.json.encode({"seed": made.seed})
        with contextlib.suppress(flight.FlightError, pa.ArrowException):  # else removed later
            list(client.do_action(flight.Action("seed_done", body), connection.options(10.0)))


def _fetch_file(connection: Connection, ticket: SeedTicket, path: Path, size: int) -> None:
    ticket_bytes = msgspec.json.encode(ticket)
    reader = connection.flight.do_get(flight.Ticket(ticket_bytes), connection.options(FILE_S_MAX))
    position = 0
    with path.open("wb") as file:
        for chunk in reader:
            for piece in chunk.data.to_pylist():
                data = piece["data"]
                if piece["offset"] != position or zlib.crc32(data) != piece["crc32"]:
                    raise StoreFailed(
                        f"the file {ticket.file} of the copy arrived damaged at byte {position:,}"
                    )
                file.write(data)
                position += len(data)
    if position != size:
        raise StoreFailed(
            f"the file {ticket.file} of the copy has {position:,} bytes, and should have {size:,}"
        )


def _examined(unfinished: Path) -> Copy:
    """Return how far the copy has come, when all of it was read.

    Raises:
        StoreDamaged: it is not whole, or is no view of a log.
    """
    problems = examine(unfinished).problems
    if problems:
        raise StoreDamaged(f"the copy is damaged: {'; '.join(problems)}")
    database = open_for_reading(unfinished)
    try:
        position = read_position(database)
        epoch = read_epoch(database)
    finally:
        database.close()
    if position.sequence == 0 or not epoch:
        raise StoreDamaged("the copy is no view of a cluster's log: it has no position in it")
    return Copy(position.sequence, epoch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Take a copy; return the exit code."""
    guard_terminals()
    parser = argparse.ArgumentParser(prog="penstock.stream.seed_client", description="Seeding")
    parser.add_argument("--data-dir", type=Path, required=True, help="this broker's data directory")
    parser.add_argument("--node", required=True, help="the name of this member")
    parser.add_argument("--source", required=True, help="HOST:PORT of the member's stream service")
    parser.add_argument("--tls", action="store_true", help="it speaks TLS")
    parser.add_argument("--ca-file", default="", help="PEM file of its authorities")
    parser.add_argument("--token-file", default="", help="file with a token of the role seed")
    parser.add_argument("--certificate", default="", help="PEM file of the certificate to show")
    parser.add_argument("--key", default="", help="PEM file of its private key")
    options = parser.parse_args(arguments)
    credentials = Credentials(
        options.tls,
        options.ca_file,
        token_file=options.token_file,
        certificate_file=options.certificate,
        key_file=options.key,
    )
    os.umask(0o077)
    os.nice(NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(done: int, total: int) -> None:
        print(f"fetched {done} {total}", flush=True)

    try:
        copy = fetch(options.source, credentials, options.data_dir, options.node, progress)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"whole {copy.sequence} {copy.epoch}", flush=True)
    return 0


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    os._exit(exit_code)  # the thread that waits for the parent
