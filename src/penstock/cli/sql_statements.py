"""Run statements of `penstock sql`, print or write their rows, and report what was read of the log.

On a terminal rows are a table of bounded length; in a pipe they are CSV, or JSON lines. Values are
the text that DuckDB makes of them, so that an infinite time, an interval or a time with its zone
keeps its value. In JSON numbers and truth values are not quoted, and a whole number has all its
digits.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self, final

from penstock.cli.log_positions import from_us
from penstock.cli.output import OutputFailed, count_text
from penstock.cli.row_files import ArrowWriter, UnfinishedFile, csv_line, kind_of
from penstock.cli.screen import print_table
from penstock.errors import ConfigError, PenstockError
from penstock.sql.log_dataset import Scan
from penstock.sql.session import SqlSession, Statement, TextRows, batches
from penstock.store.ranges import range_in_words
from penstock.telemetry.terminal import write_bytes

SHOWN_MAX: Final = 1000
"""Most rows that are shown on a terminal."""

SPANS_SHOWN: Final = 5
"""Most parts of the log that ``--explain`` names."""

_POLL_S: Final = 0.2
_INTERRUPT_S_MAX: Final = 10.0
_SPILL_NOTE: Final = "DuckDB's memory is full, and it now uses the disk; --memory gives it more"
_INTEGER_TYPES: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Interrupted(PenstockError):
    """Raised when Ctrl-C ended a statement."""


@final
class CtrlC:
    """Notes Ctrl-C while statements run.

    KeyboardInterrupt is no way to hear of it: raised where an object is destroyed, it is printed
    and lost.
    """

    def __init__(self) -> None:
        self.is_noted = False

    def __enter__(self) -> Self:
        self._former = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._former)

    def _note(self, *_: object) -> None:
        self.is_noted = True

    def check(self) -> None:
        """Raise ``Interrupted`` after Ctrl-C."""
        if self.is_noted:
            raise Interrupted("interrupted")


@final
class SqlOutput:
    """The output of rows: a terminal, a pipe, or a file.

    Args:
        path: the file; None for standard output.
        as_json: print JSON lines.
        force: write over an existing file.
        escape_formulas: as for ``csv_line``.

    Raises:
        ConfigError: the file cannot be written; nothing was read from the log yet.
    """

    def __init__(
        self, path: Path | None, *, as_json: bool, force: bool, escape_formulas: bool = False
    ) -> None:
        self._path = path
        self._as_json = as_json
        self._csv_line = partial(csv_line, escape_formulas=escape_formulas)
        self._kind = "" if path is None else kind_of(path)
        self._file = None if path is None else UnfinishedFile(path, force=force)

    @property
    def is_file(self) -> bool:
        """True if the rows of one query become a file."""
        return self._file is not None

    def write_result(self, session: SqlSession, statement: Statement) -> None:
        """Run a statement, and print or write its rows.

        Raises:
            PenstockError: the statement cannot be run, or its rows cannot be written.
        """
        if self._file is None:
            self._print(statement.rows())
            return
        try:
            count = self._write(session, statement, self._file)
            self._file.finish()
        except OSError as error:
            raise OutputFailed(f"{self._path} cannot be written: {error.strerror}") from error
        print(f"penstock: {self._path} has {count_text(count, 'row')}", file=sys.stderr)

    def discard(self) -> None:
        """Remove a file that is not complete."""
        if self._file is not None:
            self._file.discard()

    def _write(self, session: SqlSession, statement: Statement, target: UnfinishedFile) -> int:
        count = 0
        if self._kind in ("parquet", "arrow"):
            reader = statement.arrow()
            arrow = ArrowWriter(target.file, self._kind, reader.schema)
            for batch in batches(session, reader):
                arrow.write(batch)
                count += batch.num_rows
            arrow.close()
            return count
        if not statement.is_query:
            raise ConfigError("only a query has rows for a file: a SELECT, for example")
        for line in self._lines(statement.rows(), as_json=self._kind == "json"):
            target.file.write(line)
            count += 1
        return count - (self._kind == "csv")  # the heading is no row

    def _print(self, rows: TextRows) -> None:
        if not rows.names:
            return
        if sys.stdout.isatty() and not self._as_json:
            remaining = iter(rows)
            shown = [
                ["NULL" if text is None else text for text in row]
                for row in islice(remaining, SHOWN_MAX)
            ]
            print_table(rows.names, shown)
            if next(remaining, None) is not None:
                print(
                    f"penstock: there are more than {SHOWN_MAX:,} rows: add a LIMIT, or --output",
                    file=sys.stderr,
                )
            return
        for line in self._lines(rows, as_json=self._as_json):
            write_bytes(line)

    def _lines(self, rows: TextRows, *, as_json: bool) -> Iterator[bytes]:
        if not as_json:
            yield self._csv_line(rows.names)
            yield from map(self._csv_line, rows)
            return
        repeated = [name for name in dict.fromkeys(rows.names) if rows.names.count(name) > 1]
        if repeated:
            raise ConfigError(f"two columns are called {repeated[0]!r}: rename one with AS")
        kinds = rows.types or ("VARCHAR",) * len(rows.names)
        for row in rows:
            fields = zip(rows.names, row, kinds, strict=True)
            pairs = (f"{json.dumps(name)}:{_json(text, kind)}" for name, text, kind in fields)
            yield f"{{{','.join(pairs)}}}\n".encode(errors="surrogateescape")


def run_statements(session: SqlSession, text: str, output: SqlOutput, *, explain: bool) -> None:
    """Run the statements in ``text``, one after the other, until Ctrl-C.

    Raises:
        ConfigError: several statements cannot become one file.
        Interrupted: Ctrl-C ended it.
        PenstockError: a statement cannot be run.
    """
    with CtrlC() as ctrl_c:
        statements = session.statements(text)
        if output.is_file and len(statements) != 1:
            raise ConfigError(
                f"--output takes one query, and these are {len(statements)} statements"
            )
        for statement in statements:
            started_s = time.monotonic()
            try:
                write = partial(output.write_result, session, statement)
                _run_interruptibly(session, write, ctrl_c)
            finally:
                if explain:
                    took_s = time.monotonic() - started_s
                    for line in explain_lines(session.scans.found, took_s):
                        print(line, file=sys.stderr)
            for note in dict.fromkeys(_notes(session.scans.found)):
                print(f"penstock: {note}", file=sys.stderr)


def _notes(scans: list[Scan]) -> Iterator[str]:
    """Yield a sentence for each gap in the rows of a statement."""
    for scan in scans:
        for lost in scan.given_up:
            yield f"{range_in_words(*lost)} are lost: a repair has given them up (docs/store.md)"
        if scan.undecoded_messages:
            yield (
                f"{scan.undecoded_messages:,} messages are no rows of {scan.view}:"
                " 'penstock tables validate' says why"
            )


def explain_lines(scans: list[Scan], took_s: float) -> Iterator[str]:
    """Yield lines about the parts of the log that were read."""
    if not scans:
        yield f"nothing was read of the log; {took_s:.2f} s"
    for scan in scans:
        size = scan.log.latest - scan.log.earliest
        read = f"{scan.messages_read:,} of {size:,} messages were read"
        yield f"{scan.view}: {read}, {scan.rows:,} rows"
        spans = ", ".join(f"{start} to {end - 1}" for start, end in scan.spans[:SPANS_SHOWN])
        more = len(scan.spans) - SPANS_SHOWN
        yield f"  offsets: {spans or 'none'}{f' and {more:,} other parts' if more > 0 else ''}"
        since_us, until_us = scan.pushed.since_us, scan.pushed.until_us
        if since_us is not None:
            yield f"  received since: {from_us(since_us).isoformat()}"
        if until_us is not None:
            yield f"  received before: {from_us(until_us).isoformat()}"
        if scan.pushed.topics:
            yield f"  topics: {', '.join(scan.pushed.topics)}"
        yield f"  columns: {', '.join(scan.columns)}"
    if scans:
        yield f"  {took_s:.2f} s"


def _run_interruptibly(session: SqlSession, work: Callable[[], None], ctrl_c: CtrlC) -> None:
    """Run ``work`` in a thread, because DuckDB does not react to signals; Ctrl-C interrupts it.

    A note is printed once if DuckDB's memory is not enough.

    Raises:
        Interrupted: Ctrl-C ended the work.
        Exception: ``work`` raised it.
    """
    errors: list[BaseException] = []
    has_ended = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            has_ended.set()

    is_spill_noted = False
    ctrl_c.check()
    try:
        threading.Thread(target=run, name="penstock sql", daemon=True).start()
        while not has_ended.wait(_POLL_S):
            ctrl_c.check()
            if not is_spill_noted and session.has_spilled:
                is_spill_noted = True
                print(f"penstock: {_SPILL_NOTE}", file=sys.stderr)
    except BaseException:
        ends_s = time.monotonic() + _INTERRUPT_S_MAX
        session.interrupt()
        while not has_ended.wait(_POLL_S) and time.monotonic() < ends_s:
            session.interrupt()  # repeated: DuckDB ignores an interrupt before the statement runs
        raise
    if errors:
        raise errors[0]


def _json(text: str | None, kind: str) -> str:
    """Return a value as JSON; whole numbers of any size have all their digits."""
    if text is None:
        return "null"
    if kind == "BOOLEAN" or kind.removeprefix("U") in _INTEGER_TYPES:
        return text
    if kind in ("FLOAT", "DOUBLE"):
        return json.dumps(_NOT_FINITE[text]) if text in _NOT_FINITE else json.dumps(float(text))
    return json.dumps(text, ensure_ascii=False)
