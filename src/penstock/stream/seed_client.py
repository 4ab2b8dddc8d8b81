"""Fetches a copy of another member's store from its stream service (``stream.seeds``).

A member of a cluster runs this module as a process of its own, so that neither fetching nor
examining the copy slows the broker; `penstock cluster reseed` calls it in its own process.

The process prints ``fetched BYTES TOTAL`` after each file, and ``whole SEQUENCE EPOCH`` when the
copy in DATA_DIR/seed.unfinished is complete and examined; SEQUENCE is the entry of the cluster's
log up to which the copy has applied it. Then it ends with exit code 0; after an error with exit
code 1 and a sentence on standard error. It also ends when its standard input ends.
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
from penstock.errors import HistoryMismatch, PenstockError, StoreCorrupt, StoreUnavailable
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
"""Longest time that the other member may take to make a copy of its store, in seconds."""

FILE_S_MAX: Final = 3600.0
"""Longest time in which a file is fetched, in seconds."""

SPARE_BYTES: Final = 268_435_456
"""Bytes that must stay free on the disk beside the copy."""

NICENESS: Final = 10
_NAME: Final = re.compile(r"(?:store/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")

ProgressCallback = Callable[[int, int], None]
"""A progress callback: called with the bytes received so far and the bytes of the whole copy."""


class FetchedCopy(NamedTuple):
    """A complete, examined copy of a store.

    Attributes:
        sequence: the entry of the cluster's log up to which the copy has applied it.
        epoch: epoch of the copy's log of messages.
    """

    sequence: int
    epoch: str


def fetch_copy(
    address: str, credentials: Credentials, data_dir: Path, node: str, progress: ProgressCallback
) -> FetchedCopy:
    """Fetch a copy of another member's store into DATA_DIR/seed.unfinished, and examine it.

    Args:
        address: HOST:PORT of the other member's stream service.
        credentials: token, TLS settings and certificates.
        data_dir: the data directory of this member.
        node: name of this member; the other member removes an earlier copy for this name.
        progress: called after each file.

    Raises:
        ConfigError: a file of the credentials cannot be used.
        StoreUnavailable: the other member refuses, the transfer fails, or the disk is full.
        StoreCorrupt: the copy is damaged.
        HistoryMismatch: the copy is no store of a cluster's member.
    """
    unfinished = new_unfinished_copy(data_dir)
    connections = Connections([address], credentials)
    try:
        connection = connections.get(address)
        _fetch_files(connection, unfinished, node, progress)
    except (flight.FlightError, pa.ArrowException) as error:
        why = first_sentence(error)
        if isinstance(error, flight.FlightUnavailableError):
            why += (
                "; is the member running, and is this its stream.bind? A moment after its start it"
                " is too early: try again"
            )
        raise StoreUnavailable(
            f"the member at {address} gives no copy of its store: {why}"
        ) from error
    except OSError as error:
        raise StoreUnavailable(
            f"the copy cannot be written: {with_remedy(error, data_dir)}"
        ) from error
    finally:
        connections.close_all()
    return _examine_copy(unfinished)


def _fetch_files(
    connection: Connection, unfinished: Path, node: str, progress: ProgressCallback
) -> None:
    client = connection.flight
    action = flight.Action("seed", msgspec.json.encode({"node": node}))
    (answer,) = client.do_action(action, connection.options(COPY_S_MAX))
    made = msgspec.json.decode(answer.body.to_pybytes(), type=SeedFiles)
    total = sum(size for _, size in made.files)
    try:
        free = shutil.disk_usage(unfinished).free
        if total + SPARE_BYTES > free:
            raise StoreUnavailable(
                f"the copy has {total:,} bytes, and {free:,} are free in {unfinished.parent}: make"
                " room"
            )
        done = 0
        for name, size in made.files:
            if _NAME.fullmatch(name) is None:
                raise StoreUnavailable(f"the copy has a file with the name {name!r}")
            _fetch_file(connection, SeedTicket(made.seed, name), unfinished / name, size)
            done += size
            progress(done, total)
    finally:
        body = msgspec.json.encode({"seed": made.seed})
        with contextlib.suppress(flight.FlightError, pa.ArrowException):  # removed when idle, too
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
                    raise StoreUnavailable(
                        f"the file {ticket.file} of the copy arrived damaged at byte {position:,}"
                    )
                file.write(data)
                position += len(data)
    if position != size:
        raise StoreUnavailable(
            f"the file {ticket.file} of the copy has {position:,} bytes, and should have {size:,}"
        )


def _examine_copy(unfinished: Path) -> FetchedCopy:
    """Examine the copy in ``unfinished``; return its position in the cluster's log and its epoch.

    Raises:
        StoreCorrupt: the copy is damaged.
        HistoryMismatch: the copy has no position in a cluster's log.
    """
    problems = examine(unfinished).problems
    if problems:
        raise StoreCorrupt(f"the copy is damaged: {'; '.join(problems)}")
    database = open_for_reading(unfinished)
    try:
        position = read_position(database)
        epoch = read_epoch(database)
    finally:
        database.close()
    if position.sequence == 0 or not epoch:
        raise HistoryMismatch("the copy is no view of a cluster's log: it has no position in it")
    return FetchedCopy(position.sequence, epoch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch a copy as the command line says; return the exit code."""
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
        copy = fetch_copy(options.source, credentials, options.data_dir, options.node, progress)
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
