"""Opens a DuckDB that can read only views of each stream of a broker and each declared table.

Statements may compute whatever DuckDB can, but open neither files nor connections: so a statement
of another program can read the log and nothing else. DuckDB writes intermediate results to a
directory of its own if its memory is not enough; the directory is removed at the end.

    statement ─▶ names and types of columns, and rows as text or in Arrow, streamed
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

from penstock.config.table import TableDefinition, Tables
from penstock.config.table_places import births_dir, table_place
from penstock.errors import PenstockError
from penstock.sql.declared_rows import DeclaredRows
from penstock.sql.log_dataset import Connect, LogDataset, Scans, Source
from penstock.stream.pushed_filters import PushedFilters

MEMORY_BYTES_MAX: Final = 1024 * 2**20
"""The default limit of DuckDB's memory, in bytes; beyond it DuckDB writes to its directory."""

SPILLED_BYTES_MAX: Final = 16 * 2**30
"""The default limit of that directory, in bytes; a statement that needs more fails."""

FETCHED_ROWS: Final = 1000
"""The number of rows as text that are fetched at once."""

ARROW_ROWS: Final = 32_768
"""Most rows of one batch of Arrow."""

_SANDBOX_SETTINGS: Final = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_OFFSET_HINT: Final = '; offset is a keyword of SQL: write "offset" for the column'


class SqlError(PenstockError):
    """Raised for a statement that cannot be run; the message is DuckDB's."""


@dataclass(frozen=True, slots=True)
class View:
    """A view that statements can read.

    Attributes:
        name: the name of the view.
        about: the origin of its rows, in words.
        schema: the columns of the view.
    """

    name: str
    about: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Limits of DuckDB's memory and disk.

    Attributes:
        memory_bytes: most bytes in memory; beyond them DuckDB writes to its directory.
        spilled_bytes: most bytes in that directory.
    """

    memory_bytes: int = MEMORY_BYTES_MAX
    spilled_bytes: int = SPILLED_BYTES_MAX


class SqlSession:
    """DuckDB over the log, for one thread; any thread may call `interrupt`.

    Args:
        connect: returns a new client of the stream service, one for each scan.
        tables: the declared tables.
        topics: topic filters: the views of streams have only messages that match one; empty for
            all.
        limits: limits of memory and disk.
        pushes: whether the log applies filters; without, each scan reads the whole stream.
        places: the settings of tables, for where births of Sparkplug nodes may be kept;
            None for those in the log alone.

    Attributes:
        database: the connection to DuckDB.
        scans: reports of the scans of the last statement.
        views: the views, by name.

    Raises:
        ConfigError: a declaration cannot be used.
        PenstockError: the stream service does not answer.
    """

    def __init__(
        self,
        connect: Connect,
        tables: Sequence[TableDefinition] = (),
        topics: Sequence[str] = (),
        limits: SqlLimits = SqlLimits(),
        *,
        pushes: bool = True,
        places: Tables | None = None,
    ) -> None:
        self._places = places
        self.scans = Scans()
        self.views: dict[str, View] = {}
        self._spill_directory = tempfile.TemporaryDirectory(prefix="penstock-sql-")
        try:
            self.database = duckdb.connect(
                ":memory:", config=_config(limits, self._spill_directory.name)
            )
        except duckdb.Error as error:
            self._spill_directory.cleanup()
            raise SqlError(_error_message(error)) from error
        try:
            self._add_views(connect, tables, PushedFilters(topics=tuple(topics)), pushes=pushes)
            self.database.execute(
                "SET enable_progress_bar = false"
            )  # DuckDB would print it between rows
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
        """Close DuckDB and remove its directory."""
        self.database.close()
        self._spill_directory.cleanup()

    def interrupt(self) -> None:
        """Interrupt the statement that another thread runs: there PenstockError is raised."""
        self.database.interrupt()
        self.scans.cancel()

    def statements(self, text: str) -> list[Statement]:
        """Parse a text; return its statements, which have not run yet.

        Raises:
            SqlError: the text is not SQL.
        """
        try:
            found = self.database.extract_statements(text)
        except duckdb.Error as error:
            raise SqlError(_error_message(error)) from error
        return [
            Statement(self, one.query.strip().rstrip(";"), one.type == duckdb.StatementType.SELECT)
            for one in found
        ]

    def start_statement(self) -> None:
        """Prepare for a new statement: cancel the previous one, and remove its scans."""
        self.database.abort()  # its unread rows
        self.scans.clear()

    @property
    def has_spilled(self) -> bool:
        """True if DuckDB has files in its directory now, because its memory is not enough."""
        return any(Path(self._spill_directory.name).iterdir())

    def _add_views(
        self,
        connect: Connect,
        tables: Sequence[TableDefinition],
        base_filters: PushedFilters,
        *,
        pushes: bool,
    ) -> None:
        with connect() as client:
            streams = client.streams()
        for name, filters in streams.items():
            dataset = LogDataset(Source(name, name, connect, base_filters, pushes), self.scans)
            self._register(View(name, f"the log: {', '.join(filters)}", dataset.schema), dataset)
        for table in tables:
            name = table.name if table.name not in self.views else f"{table.name}_rows"
            directory = self._births_dir(table)
            declared = DeclaredRows(table, directory)
            table_filters = replace(base_filters, topics=(declared.topic_filter,))
            source = Source(name, table.stream, connect, table_filters, pushes)
            dataset = LogDataset(source, self.scans, declared)
            about = f"the declared table {table.name}: {table.topics}"
            self._register(View(name, about, dataset.schema), dataset)

    def _births_dir(self, table: TableDefinition) -> Path | None:
        if self._places is None:
            return None
        place = table_place(self._places.dir, table.name, table.path)
        return births_dir(place, table.name, self._places.jobs_dir)

    def _register(self, view: View, dataset: LogDataset) -> None:
        self.views[view.name] = view
        self.database.register(view.name, dataset)


class Statement:
    """One statement of a session.

    Attributes:
        text: the text of the statement, without the semicolon.
        is_query: whether the statement is a query, whose rows can be written to a file.
    """

    def __init__(self, session: SqlSession, text: str, is_query: bool) -> None:
        self._session = session
        self.text = text
        self.is_query = is_query

    def rows(self) -> TextRows:
        """Run the statement; return its rows with each value as text, as DuckDB formats it.

        Raises:
            SqlError: the statement cannot be run.
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
        """Run the statement; return a reader of its rows in Arrow, for `batches`.

        Raises:
            SqlError: the statement cannot be run, or is no query.
        """
        if not self.is_query:
            raise SqlError("only a query has rows for a file: a SELECT, for example")
        self._session.start_statement()
        with _translating_errors(self._session):
            return self._session.database.sql(self.text).to_arrow_reader(ARROW_ROWS)


class TextRows:
    """The rows of a statement, each a tuple of text or None.

    Attributes:
        names: the names of the columns.
        types: the types of the columns, as DuckDB names them; empty if the statement is no query.
    """

    def __init__(
        self,
        session: SqlSession,
        text: str,
        names: Sequence[str] | None = None,
        types: Sequence[str] = (),
    ) -> None:
        self._session = session
        session.start_statement()
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
    """Raise errors of DuckDB and Arrow as ``SqlError``, or as the error of a scan that caused
    them."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        if session.scans.error is not None:
            raise session.scans.error from error
        raise SqlError(_error_message(error)) from error


def batches(session: SqlSession, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader from `Statement.arrow`.

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


def _config(limits: SqlLimits, directory: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        **_SANDBOX_SETTINGS,
        "memory_limit": f"{limits.memory_bytes}B",
        "temp_directory": directory,
        "max_temp_directory_size": f"{limits.spilled_bytes}B",
    }


def _error_message(error: Exception) -> str:
    """Return the message of DuckDB's error, with a hint if the column offset may be the cause."""
    text = str(error).strip()
    if isinstance(error, duckdb.ParserException) and "offset" in text.lower():
        return text.partition("\n")[0] + _OFFSET_HINT
    return text
