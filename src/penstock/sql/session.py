"""A DuckDB with a view for each stream of a broker and each declared table, and nothing else.

Statements may compute whatever DuckDB can, in memory, but neither open files nor the network: where
a statement comes from another program, it reads the log and no more. DuckDB itself writes to a
directory of its own where its memory is not enough, which is removed at the end.

    statement ─▶ Result: names, and rows as text or in Arrow, as they come
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import duckdb
import pyarrow as pa

from penstock.config.table import TableDefinition
from penstock.errors import PenstockError
from penstock.sql.declared_rows import DeclaredRows
from penstock.sql.log_dataset import Connect, LogDataset, Scans, Source
from penstock.stream.pushed_filters import PushedFilters

MEMORY_BYTES_MAX: Final = 1024 * 2**20
"""Memory of DuckDB, unless told otherwise; beyond that it writes to its directory."""

SPILLED_BYTES_MAX: Final = 16 * 2**30
"""Most bytes of that directory; a statement that needs more fails."""

FETCHED_ROWS: Final = 1000
"""Rows as text that are fetched at a time."""

ARROW_ROWS: Final = 32_768
"""Most rows of one batch of Arrow."""

_CLOSED: Final = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_OFFSET_HINT: Final = '; offset is a word of SQL: write "offset" for the column'


class SqlError(PenstockError):
    """Raised for a statement that cannot be run; the text is DuckDB's."""


@dataclass(frozen=True, slots=True)
class View:
    """A view, and what it shows.

    Attributes:
        name: its name.
        about: a sentence.
        schema: the columns.
    """

    name: str
    about: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of DuckDB's memory and disk.

    Attributes:
        memory_bytes: memory; beyond that it writes to its directory.
        spilled_bytes: most bytes there.
    """

    memory_bytes: int = MEMORY_BYTES_MAX
    spilled_bytes: int = SPILLED_BYTES_MAX


class SqlSession:
    """DuckDB over the log. It is made for one thread; `interrupt` is for any.

    Args:
        connect: returns a client of the stream service, for each scan one.
        tables: the declared tables.
        topics: topic filters; rows of all others are not there.
        limits: bounds of memory and disk.
        pushes: hand filters to the log; without it all of it is read, with the same result.

    Attributes:
        scans: reports of the last statement's reads.
        views: the views, by name.

    Raises:
        ConfigError: a declaration cannot be used.
        PenstockError: the stream service cannot be asked.
    """

    def __init__(
        self,
        connect: Connect,
        tables: Sequence[TableDefinition] = (),
        topics: Sequence[str] = (),
        limits: Limits = Limits(),
        *,
        pushes: bool = True,
    ) -> None:
        self.scans = Scans()
        self.views: dict[str, View] = {}
        self._spilled = tempfile.TemporaryDirectory(prefix="penstock-sql-")
        try:
            self.database = duckdb.connect(":memory:", config=_config(limits, self._spilled.name))
        except duckdb.Error as error:
            self._spilled.cleanup()
            raise SqlError(_sentence(error)) from error
        try:
            self._add_views(connect, tables, PushedFilters(topics=tuple(topics)), pushes=pushes)
            self.database.execute("SET enable_progress_bar = false")  # it would be among the rows
            self.database.execute("SET lock_configuration = true")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close DuckDB, and remove its directory."""
        self.database.close()
        self._spilled.cleanup()

    def interrupt(self) -> None:
        """End the statement that another thread runs; it raises PenstockError."""
        self.database.interrupt()
        self.scans.cancel()

    def statements(self, text: str) -> list[Statement]:
        """Return the statements of a text, not run yet.

        Raises:
            SqlError: it is not SQL.
        """
        try:
            found = self.database.extract_statements(text)
        except duckdb.Error as error:
            raise SqlError(_sentence(error)) from error
        return [
            Statement(self, one.query.strip().rstrip(";"), one.type == duckdb.StatementType.SELECT)
            for one in found
        ]

    def begin(self) -> None:
        """End the statement before, and forget its scans."""
        self.database.abort()  # the rest of its rows
        self.scans.clear()

    @property
    def has_spilled(self) -> bool:
        """True if DuckDB's memory is not enough for the statement at this moment."""
        return any(Path(self._spilled.name).iterdir())

    def _add_views(
        self,
        connect: Connect,
        tables: Sequence[TableDefinition],
        chosen: PushedFilters,
        *,
        pushes: bool,
    ) -> None:
        with connect() as client:
            streams = client.streams()
        for name, filters in streams.items():
            dataset = LogDataset(Source(name, name, connect, chosen, pushes), self.scans)
            self._register(View(name, f"the log: {', '.join(filters)}", dataset.schema), dataset)
        for table in tables:
            name = table.name if table.name not in self.views else f"{table.name}_rows"
            declared = DeclaredRows(table)
            of_table = replace(chosen, topics=(declared.topic_filter,))
            source = Source(name, table.stream, connect, of_table, pushes)
            dataset = LogDataset(source, self.scans, declared)
            about = f"the declared table {table.name}: {table.topics}"
            self._register(View(name, about, dataset.schema), dataset)

    def _register(self, view: View, dataset: LogDataset) -> None:
        self.views[view.name] = view
        self.database.register(view.name, dataset)


class Statement:
    """One statement of a session.

    Attributes:
        text: as it was given, without its end.
        is_query: whether it has rows that can be written to a file.
    """

    def __init__(self, session: SqlSession, text: str, is_query: bool) -> None:
        self._session = session
        self.text = text
        self.is_query = is_query

    def rows(self) -> TextRows:
        """Run the statement; return its rows as text, as DuckDB writes each value.

        Raises:
            SqlError: it cannot be run.
            PenstockError: the log cannot be read.
        """
        if not self.is_query:
            return TextRows(self._session, self.text)
        with _translating_errors(self._session):
            relation = self._session.database.sql(self.text)
            names, types = list(relation.columns), [str(kind) for kind in relation.types]
        aliases = [f"c{n}" for n in range(len(names))]  # two columns may have one name
        columns = ", ".join(f"CAST({alias} AS VARCHAR)" for alias in aliases)
        text = f"SELECT {columns} FROM (\n{self.text}\n) AS q({', '.join(aliases)})"  # noqa: S608  # the user's own
        return TextRows(self._session, text, names, types)

    def arrow(self) -> pa.RecordBatchReader:
        """Run the statement; return its rows in Arrow, as they come.

        Raises:
            SqlError: it cannot be run, or has no rows.
        """
        if not self.is_query:
            raise SqlError("only a query has rows for a file: a SELECT, for example")
        self._session.begin()
        with _translating_errors(self._session):
            return self._session.database.sql(self.text).to_arrow_reader(ARROW_ROWS)


class TextRows:
    """The rows of a statement, each a tuple of text or None.

    Attributes:
        names: the columns.
        types: their types, as DuckDB names them; empty for what is no query.
    """

    def __init__(
        self,
        session: SqlSession,
        text: str,
        names: Sequence[str] | None = None,
        types: Sequence[str] = (),
    ) -> None:
        self._session = session
        session.begin()
        with _translating_errors(session):
            self._cursor = session.database.execute(text)
            described = [column[0] for column in self._cursor.description or ()]
        self.names = tuple(described if names is None else names)
        self.types = types

    def __iter__(self) -> Iterator[tuple[str | None, ...]]:
        while True:
            with _translating_errors(self._session):
                found = self._cursor.fetchmany(FETCHED_ROWS)
            if not found:
                return
            for row in found:
                yield tuple(None if value is None else str(value) for value in row)


@contextmanager
def _translating_errors(session: SqlSession) -> Iterator[None]:
    """Raise an error of DuckDB or Arrow as ``SqlError``, or as the error of the log behind it."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        if session.scans.error is not None:
            raise session.scans.error from error
        raise SqlError(_sentence(error)) from error


def batches(session: SqlSession, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `Statement.arrow`.

    Raises:
        SqlError: DuckDB failed, for example because its directory is full.
        PenstockError: the log cannot be read.
    """
    while True:
        with _translating_errors(session):
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


def _config(limits: Limits, directory: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        **_CLOSED,
        "memory_limit": f"{limits.memory_bytes}B",
        "temp_directory": directory,
        "max_temp_directory_size": f"{limits.spilled_bytes}B",
    }


def _sentence(error: Exception) -> str:
    """Return DuckDB's words, with a hint where the column offset was meant."""
    text = str(error).strip()
    if isinstance(error, duckdb.ParserException) and "offset" in text.lower():
        return text.partition("\n")[0] + _OFFSET_HINT
    return text
