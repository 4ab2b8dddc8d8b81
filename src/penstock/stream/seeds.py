"""Gives copies of this machine's store to members of its cluster that are too far behind the log.

::

      action "seed" {"node"} ─▶ the broker writes a backup to DATA_DIR/seeds/ID: hard links
                             ◀─ the names of its files
      do_get {"seed", "file", "offset"} ─▶ pieces of a file, each with its checksum
      action "seed_done" ─▶ the directory is removed; so is a directory unread for SEED_S_MAX

The broker makes the backup, as a primary or a standby, so it is a consistent store. It contains the
sessions and messages of all clients. So only a member may fetch it: a caller that has a token with
the role seed, or a client certificate, or is on this machine.
"""

from __future__ import annotations

import math
import secrets
import shutil
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import msgspec
import pyarrow as pa

from penstock.auth.tokens import Grant
from penstock.control.client import BrokerUnreachable, RequestRefused, ask_for_backup
from penstock.errors import StoreError, StoreUnavailable
from penstock.stream.requests import Refusal, RequestError

SEEDS_DIRECTORY: Final = "seeds"
SEEDS_MAX: Final = 2
"""Greatest number of copies at a time: each keeps table files on disk that the store has
replaced."""

SEED_S_MAX: Final = 300.0
"""Time in seconds after which an unread copy is removed."""

PIECE_BYTES: Final = 1_048_576
"""Size of each piece of a file but the last, which may be smaller."""

SCHEMA: Final = pa.schema(
    [("offset", pa.uint64()), ("crc32", pa.uint32()), ("data", pa.large_binary())]
)
"""The columns of the pieces of a file: position in the file, CRC-32 of the bytes, the bytes."""

DESCRIPTIONS: Final = (
    ("seed", "makes a copy of the store for another member of the cluster; its files, as JSON"),
    ("seed_done", "removes that copy"),
)


class SeedTicket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ticket for the bytes of a file of a copy, from a position on.

    Attributes:
        seed: name of the copy.
        file: name of the file in the copy.
        offset: position of the first byte to return.
    """

    seed: str
    file: str
    offset: int = 0


class SeedFiles(msgspec.Struct, frozen=True):
    """The files of a copy.

    Attributes:
        seed: name of the copy.
        files: name and size in bytes of each file.
    """

    seed: str
    files: list[tuple[str, int]]


def read_ticket(ticket: bytes) -> SeedTicket | None:
    """Return the ticket for a file of a copy; None if ``ticket`` is for something else."""
    try:
        return msgspec.json.decode(ticket, type=SeedTicket)
    except msgspec.MsgspecError:
        return None


@final
class Seeds:
    """The copies of the store that a stream service gives to other members of the cluster.

    Args:
        data_dir: the broker's data directory.
        trusts_anonymous: whether callers without a token count as members of the cluster, because
            they must be on this machine or have a client certificate.
    """

    def __init__(self, data_dir: Path, trusts_anonymous: bool) -> None:
        self._data_dir = data_dir
        self._directory = data_dir / SEEDS_DIRECTORY
        self._trusts_anonymous = trusts_anonymous
        self._lock = threading.Lock()
        self._last_read_s: dict[str, float] = {}  # by copy: the time of the last read, monotonic
        self._seed_by_node: dict[str, str] = {}  # by name of the member: its copy
        self.actions = {"seed": self._make_copy, "seed_done": self._remove_copy}
        shutil.rmtree(self._directory, ignore_errors=True)  # left by a service that was killed

    def check_caller(self, has_token: bool) -> None:
        """Raise if a caller may not be a member of the cluster.

        Args:
            has_token: whether the caller has shown a token.

        Raises:
            RequestError: it has no token, and callers without a token are not trusted.
        """
        if not (has_token or self._trusts_anonymous):
            raise RequestError(
                Refusal.NOT_ALLOWED,
                "this service gives copies of its store to nobody: other machines reach it, and it"
                " asks for neither tokens nor certificates; give cluster.seed_token_file",
            )

    def read_pieces(self, ticket: SeedTicket) -> Iterator[pa.RecordBatch]:
        """Yield the pieces of a file from a position on, in order, in the columns of ``SCHEMA``.

        Raises:
            RequestError: there is no such copy or file.
            StoreUnavailable: the file cannot be read.
        """
        path = self._path(ticket)
        position = ticket.offset
        try:
            with path.open("rb") as file:
                file.seek(position)
                while data := file.read(PIECE_BYTES):
                    self._record_read(ticket.seed)
                    values: list[list[Any]] = [[position], [zlib.crc32(data)], [data]]
                    yield pa.record_batch(values, schema=SCHEMA)
                    position += len(data)
        except OSError as error:
            raise StoreUnavailable(f"the copy cannot be read: {error.strerror or error}") from error

    def _path(self, ticket: SeedTicket) -> Path:
        directory = self._directory / ticket.seed
        with self._lock:
            known = ticket.seed in self._last_read_s
        if known:
            for path in directory.rglob("*"):
                if path.is_file() and str(path.relative_to(directory)) == ticket.file:
                    return path
        raise RequestError(
            Refusal.BAD_REQUEST, f"there is no file {ticket.file!r} of a copy {ticket.seed!r}"
        )

    def _record_read(self, seed: str) -> None:
        with self._lock:
            if seed not in self._last_read_s:
                raise RequestError(Refusal.BAD_REQUEST, f"the copy {seed!r} was removed")
            self._last_read_s[seed] = time.monotonic()

    def _make_copy(self, fields: dict[str, Any], grant: Grant) -> SeedFiles:
        del grant
        seed = secrets.token_hex(8)
        node = str(fields.get("node", seed))
        self._remove(self._seed_by_node.pop(node, ""))  # left by an interrupted attempt
        with self._lock:
            if len(self._last_read_s) >= SEEDS_MAX:
                raise RequestError(
                    Refusal.NOT_READY, f"{SEEDS_MAX} members take a copy of this store now"
                )
            self._last_read_s[seed] = math.inf  # not idle while the backup is made
            self._seed_by_node[node] = seed
        directory = self._directory / seed
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            ask_for_backup(self._data_dir, directory)
        except (OSError, StoreError, BrokerUnreachable, RequestRefused) as error:
            self._remove(seed)
            raise RequestError(Refusal.NOT_READY, f"no copy of the store: {error}") from error
        files = [
            (str(path.relative_to(directory)), path.stat().st_size)
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        ]
        try:
            self._record_read(seed)
        except RequestError:  # the same member has requested another copy meanwhile
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._schedule_removal()
        return SeedFiles(seed, files)

    def _remove_copy(self, fields: dict[str, Any], grant: Grant) -> bool:
        del grant
        seed = fields.get("seed")
        return isinstance(seed, str) and self._remove(seed)

    def _remove(self, seed: str) -> bool:
        with self._lock:
            known = self._last_read_s.pop(seed, None) is not None
        if known:
            shutil.rmtree(self._directory / seed, ignore_errors=True)
        return known

    def remove_all(self) -> None:
        """Remove all copies, before the service ends."""
        for seed in list(self._last_read_s):
            self._remove(seed)

    def remove_idle(self) -> None:
        """Remove copies unread for ``SEED_S_MAX``; if others remain, schedule the next removal."""
        now_s = time.monotonic()
        with self._lock:
            idle = [seed for seed, at_s in self._last_read_s.items() if now_s - at_s >= SEED_S_MAX]
            others_remain = len(idle) < len(self._last_read_s)
        for seed in idle:
            self._remove(seed)
        if others_remain:
            self._schedule_removal()

    def _schedule_removal(self) -> None:
        timer = threading.Timer(SEED_S_MAX, self.remove_idle)
        timer.daemon = True
        timer.start()
