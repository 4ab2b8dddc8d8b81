"""Copies of this machine's store for other members of its cluster, which are too far behind.

::

      action "seed" {"node"} ─▶ the broker writes a backup to DATA_DIR/seeds/ID: hard links
                             ◀─ the names of its files
      do_get {"seed", "file", "offset"} ─▶ pieces of a file, each with its checksum
      action "seed_done" ─▶ the directory is removed; so is one that nobody reads for SEED_S_MAX

The backup is the broker's own, in either role, so it is a whole store at one moment. It holds the
sessions and messages of all clients: only a member may have it, which shows a token with the role
seed, or a certificate, or comes from this machine.
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
from penstock.errors import StoreError, StoreFailed
from penstock.stream.requests import Refusal, RequestError

SEEDS_DIRECTORY: Final = "seeds"
SEEDS_MAX: Final = 2
"""Copies at a time: each keeps table files on disk that the store has done with."""

SEED_S_MAX: Final = 300.0
"""Time in seconds after which a copy that nobody reads is removed."""

PIECE_BYTES: Final = 1_048_576

SCHEMA: Final = pa.schema(
    [("offset", pa.uint64()), ("crc32", pa.uint32()), ("data", pa.large_binary())]
)

DESCRIPTIONS: Final = (
    ("seed", "makes a copy of the store for another member of the cluster; its files, as JSON"),
    ("seed_done", "removes that copy"),
)


class SeedTicket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a copy from an offset on.

    Attributes:
        seed: name of the copy.
        file: name of the file in it.
        offset: the first byte wanted.
    """

    seed: str
    file: str
    offset: int = 0


class SeedFiles(msgspec.Struct, frozen=True):
    """The files of a copy.

    Attributes:
        seed: name of the copy.
        files: name and size in bytes of each.
    """

    seed: str
    files: list[tuple[str, int]]


def read_ticket(ticket: bytes) -> SeedTicket | None:
    """Return the ticket of a file; None if it is another ticket."""
    try:
        return msgspec.json.decode(ticket, type=SeedTicket)
    except msgspec.MsgspecError:
        return None


@final
class Seeds:
    """The copies that one service gives.

    Args:
        data_dir: the broker's data directory.
        is_open: whether callers without a token are members of the cluster: they come from this
            machine, or have shown a certificate.
    """

    def __init__(self, data_dir: Path, is_open: bool) -> None:
        self._data_dir = data_dir
        self._directory = data_dir / SEEDS_DIRECTORY
        self._is_open = is_open
        self._lock = threading.Lock()
        self._read_s: dict[str, float] = {}  # when each copy was last read
        self._made_for: dict[str, str] = {}  # the copy of a member, by its name
        self.actions = {"seed": self._seed, "seed_done": self._done}
        shutil.rmtree(self._directory, ignore_errors=True)  # of a service that was killed

    def check(self, has_token: bool) -> None:
        """Refuse a caller that may be no member of the cluster.

        Raises:
            RequestError: it has no token, and need not have shown a certificate.
        """
        if not (has_token or self._is_open):
            raise RequestError(
                Refusal.NOT_ALLOWED,
                "this service gives copies of its store to nobody: other machines reach it, and it"
                " asks for neither tokens nor certificates; give cluster.seed_token_file",
            )

    def pieces(self, ticket: SeedTicket) -> Iterator[pa.RecordBatch]:
        """Yield a file's pieces from an offset on, in their order.

        Raises:
            RequestError: there is no such copy or file.
            StoreFailed: it cannot be read.
        """
        path = self._path(ticket)
        position = ticket.offset
        try:
            with path.open("rb") as file:
                file.seek(position)
                while data := file.read(PIECE_BYTES):
                    self._touch(ticket.seed)
                    values: list[list[Any]] = [[position], [zlib.crc32(data)], [data]]
                    yield pa.record_batch(values, schema=SCHEMA)
                    position += len(data)
        except OSError as error:
            raise StoreFailed(f"the copy cannot be read: {error.strerror or error}") from error

    def _path(self, ticket: SeedTicket) -> Path:
        directory = self._directory / ticket.seed
        with self._lock:
            known = ticket.seed in self._read_s
        if known:
            for path in directory.rglob("*"):
                if path.is_file() and str(path.relative_to(directory)) == ticket.file:
                    return path
        raise RequestError(
            Refusal.BAD_REQUEST, f"there is no file {ticket.file!r} of a copy {ticket.seed!r}"
        )

    def _touch(self, seed: str) -> None:
        with self._lock:
            if seed not in self._read_s:
                raise RequestError(Refusal.BAD_REQUEST, f"the copy {seed!r} was removed")
            self._read_s[seed] = time.monotonic()

    def _seed(self, fields: dict[str, Any], grant: Grant) -> SeedFiles:
        del grant
        seed = secrets.token_hex(8)
        node = str(fields.get("node", seed))
        self._remove(self._made_for.pop(node, ""))  # it was killed, and asks again
        with self._lock:
            if len(self._read_s) >= SEEDS_MAX:
                raise RequestError(
                    Refusal.NOT_READY, f"{SEEDS_MAX} members take a copy of this store now"
                )
            self._read_s[seed] = math.inf  # while it is made
            self._made_for[node] = seed
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
            self._touch(seed)
        except RequestError:  # the member has asked again meanwhile
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._look_again()
        return SeedFiles(seed, files)

    def _done(self, fields: dict[str, Any], grant: Grant) -> bool:
        del grant
        seed = fields.get("seed")
        return isinstance(seed, str) and self._remove(seed)

    def _remove(self, seed: str) -> bool:
        with self._lock:
            known = self._read_s.pop(seed, None) is not None
        if known:
            shutil.rmtree(self._directory / seed, ignore_errors=True)
        return known

    def remove_all(self) -> None:
        """Remove all copies: the service ends."""
        for seed in list(self._read_s):
            self._remove(seed)

    def remove_idle(self) -> None:
        """Remove copies that nobody reads any more, and look again where others are left."""
        now_s = time.monotonic()
        with self._lock:
            idle = [seed for seed, at_s in self._read_s.items() if now_s - at_s >= SEED_S_MAX]
            are_left = len(idle) < len(self._read_s)
        for seed in idle:
            self._remove(seed)
        if are_left:
            self._look_again()

    def _look_again(self) -> None:
        timer = threading.Timer(SEED_S_MAX, self.remove_idle)
        timer.daemon = True
        timer.start()
