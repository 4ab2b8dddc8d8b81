"""The write side of the log, as small as it can be: chunks and the committed watermark.

The broker does the same through `penstock.store`; here a test decides what is in each chunk, what
is synced and what is trimmed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rocksdict import Options, Rdict, WriteBatch

from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.store.chunk import encode_key
from penstock.store.database import COLUMN_FAMILIES, FORMAT, FORMAT_KEY
from penstock.store.identity import GIVEN_UP, LINEAGE
from penstock.store.log import chunk_from_columns
from penstock.store.watermark import Watermark

FIRST_RECEIVED_AT_US = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
TOPICS = ("plant/1/temperature", "plant/2/temperature", "plant/1/pressure")


def _number(n: int) -> bytes:
    return str(n).encode()


class LogWriter:
    """A log in `data_dir`; `end` is the offset after the last row written."""

    def __init__(
        self,
        data_dir: Path,
        epoch: str = "20261121T000000-00000001",
    ) -> None:
        self.data_dir = data_dir
        self.epoch = epoch
        data_dir.mkdir(parents=True, exist_ok=True)
        self._open()
        meta = self._database.get_column_family("meta")
        meta[FORMAT_KEY] = FORMAT
        meta[b"epoch"] = epoch.encode()
        self.earliest = 0
        self.end = 0
        self.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def append(
        self,
        count: int,
        *,
        commit: bool = True,
        properties: bytes = b"",
        topics: tuple[str, ...] = TOPICS,
        step_us: int = 1_000_000,
        internal: bool = False,
        retain: bool = False,
        payload: Callable[[int], bytes] = _number,
    ) -> None:
        """Write one chunk of `count` rows; offset n carries the payload `b"n"` unless told."""
        offsets = range(self.end, self.end + count)
        rows = [
            Message(
                topics[n % len(topics)],
                payload(n),
                n % 3,
                retain,
                client_id=f"device-{n % 2}",
                received_at_us=FIRST_RECEIVED_AT_US + n * step_us,
                properties=properties if n % 2 else b"",
                internal=internal,
            )
            for n in offsets
        ]
        chunk = b"".join(chunk_from_columns(columns_of(rows)))
        batch = WriteBatch(raw_mode=True)
        batch.put(encode_key(self.end), chunk, self._log)
        self._database.write(batch)
        self.end += count
        if commit:
            self.commit()

    def commit(self, end: int | None = None) -> None:
        """Move the committed watermark."""
        committed = Watermark(self.end if end is None else end, self.earliest, 0, self.epoch)
        unfinished = self.data_dir / "committed.new"
        unfinished.write_bytes(committed.encode())
        unfinished.replace(self.data_dir / "committed")

    def trim(self, end: int, *, announce: bool = True) -> None:
        """Remove the chunks before `end`, where one begins, as retention does."""
        log = self._database.get_column_family("log")
        log.delete_range(encode_key(0), encode_key(end))
        log.flush()
        if announce:
            self.earliest = end
            self.commit()

    def give_up(self, begin: int, end: int) -> None:
        """Lose the one chunk from `begin` up to `end`, as a repair notes it."""
        self._database.get_column_family("log").delete(encode_key(begin))
        meta = self._database.get_column_family("meta")
        meta[GIVEN_UP] = msgspec.msgpack.encode([(begin, end)])

    def follow(self, epoch: str, end: int) -> None:
        """Go on with the log of another epoch from `end` on, as a restore notes it."""
        meta = self._database.get_column_family("meta")
        meta[LINEAGE] = msgspec.msgpack.encode([(epoch, end)])

    def begin_run(self) -> None:
        """Begin a run, as a broker that opens the log does: then marks outlive their messages."""
        runs = msgspec.msgpack.encode([(self.end, f"{1:012x}")])
        self._database.get_column_family("meta")[b"runs"] = runs
        self.commit()

    def reopen(self) -> None:
        """Close and open the store, as a broker that is restarted does."""
        self.close()
        self._open()

    def close(self) -> None:
        del self._log
        self._database.close()
        del self._database

    def _open(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        self._database = Rdict(
            str(self.data_dir / "store"),
            options,
            column_families={name: Options(raw_mode=True) for name in COLUMN_FAMILIES},
        )
        self._log = self._database.get_column_family_handle("log")
