r"""Files of rows that `penstock tail` and `penstock sql` write: Parquet, Arrow, CSV, JSON lines.

::

      out.parquet ─▶ .out.parquet.unfinished ── all rows are written ─▶ out.parquet
                                ╰── an error, kill -9 ─▶ there is no out.parquet

So a file with its final name is complete. The file is opened before anything is read from the log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final, final

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from penstock.errors import ConfigError, PenstockError

KINDS: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
}
"""The kind of a file by the suffix of its name."""

GROUP_ROWS_MAX: Final = 131_072
"""Most rows that are collected for one group of a Parquet file."""

GROUP_BYTES_MAX: Final = 32 * 2**20
"""Most bytes that are collected for one group, unless a single batch has more."""

_FORMULA_BEGINNINGS: Final = "=+-@\t\r"
_QUOTED_CHARACTERS: Final = frozenset(',"\r\n')


def kind_of(path: Path) -> str:
    """Return the kind of a file by the suffix of its name.

    Raises:
        ConfigError: the suffix is none of ``KINDS``.
    """
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"--output {path}: its name must end in {', '.join(KINDS)}")
    return kind


@final
class UnfinishedFile:
    """A file that gets its final name when it is complete.

    Args:
        path: the final name.
        force: replace an existing file of this name.

    Raises:
        ConfigError: the file exists already, or cannot be written.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        if path.exists() and not force:
            raise ConfigError(f"{path} exists already: give --force to write over it")
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            self.file: IO[bytes] = self._unfinished.open("wb")
        except OSError as error:
            raise ConfigError(f"--output {path}: {error.strerror}") from error

    def finish(self) -> None:
        """Sync the file to disk, and give it its final name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self._unfinished.replace(self._path)

    def discard(self) -> None:
        """Remove the file, unless it is finished."""
        with contextlib.suppress(OSError, ValueError):
            self.file.close()
        self._unfinished.unlink(missing_ok=True)


@final
class ArrowWriter:
    """Writes rows as Parquet or as an Arrow IPC file (Feather).

    Args:
        file: the file to write to.
        kind: "parquet" or "arrow".
        schema: the names and types of the columns.

    Raises:
        ConfigError: the format cannot have these columns.
    """

    def __init__(self, file: IO[bytes], kind: str, schema: pa.Schema) -> None:
        repeated = [name for name in dict.fromkeys(schema.names) if schema.names.count(name) > 1]
        if repeated:
            raise ConfigError(f"two columns are called {repeated[0]!r}: rename one with AS")
        self._schema = schema
        self._collected: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        try:
            if kind == "parquet":
                self._writer: Any = pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")
            else:
                self._writer = pyarrow.ipc.new_file(file, schema)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ConfigError(
                f"{kind} has no column of one of these types: {_types(schema)}; CAST it to VARCHAR"
            ) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, or collect it for a row group of useful size."""
        _refuse_infinite(batch)
        self._collected.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Write the collected rows, and the footer of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._collected:
            self._writer.write_table(pa.Table.from_batches(self._collected, self._schema))
        self._collected = []
        self._rows = self._bytes = 0


class InfiniteTime(PenstockError):
    """Raised for a time that is infinite, which neither Arrow nor Parquet can represent."""


def csv_line(fields: Iterable[str | None], *, escape_formulas: bool = False) -> bytes:
    """Return a line of CSV as RFC 4180 has it; None is an empty field, empty text is ``""``.

    Args:
        fields: the text of each field.
        escape_formulas: put ' before text that a spreadsheet takes for a formula: text that begins
            with = + - @ tab or carriage return, and is no number (OWASP, CSV Injection).
    """
    if escape_formulas:
        fields = [f"'{text}" if text and _is_formula(text) else text for text in fields]
    return (",".join(map(_csv_field, fields)) + "\r\n").encode(errors="surrogateescape")


def _is_formula(text: str) -> bool:
    if text[0] not in _FORMULA_BEGINNINGS:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _csv_field(text: str | None) -> str:
    if text is None:
        return ""
    if not text or text != text.strip() or _QUOTED_CHARACTERS.intersection(text):
        quoted = text.replace('"', '""')
        return f'"{quoted}"'
    return text


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _refuse_infinite(batch: pa.RecordBatch) -> None:
    """Raise InfiniteTime for the infinite times of DuckDB, which Arrow has as the largest and the
    smallest number."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not (pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type)):
            continue
        bits = 32 if pa.types.is_date32(field.type) else 64
        most = 2 ** (bits - 1) - 1
        numbers = column.cast(pa.int32() if bits == 32 else pa.int64())
        ends = pa.compute.min_max(numbers).as_py()
        if most in ends.values() or -most in ends.values():
            raise InfiniteTime(
                f"column {field.name} has an infinite time, which only CSV and JSON can have:"
                " CAST it to VARCHAR, or leave it out"
            )
