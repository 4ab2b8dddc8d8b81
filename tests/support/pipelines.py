"""Pipelines to be tortured: what goes in, the program on the cluster, and what came out.

::

    log → table           devices ─▶ broker ─▶ penstock tables run ─▶ table, on disk or in a store
    rows → sink           files   ─▶ Spark ─▶ broker's log
    source → sink         devices ─▶ broker ─▶ Spark ─▶ the same broker's log
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

from penstock.config.load import load_settings
from penstock.errors import PenstockError
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import ROWS
from penstock.spark.tables.places import TablePlaces
from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.object_store import KEYS
from tests.support.pipeline_loads import Devices, Load, Rows, count
from tests.support.s3_server import DiskStore
from tests.support.table_readers import read_by_its_own

TABLE: Final = "readings"
TO_TABLE: Final = "log-to-table"
BATCHES_A_ROUND: Final = 4

_DECLARATION: Final = """\
[[tables.declared]]
name = "{name}"
format = "{format}"
topics = "ledger/{{qos:int}}/{{publisher}}"
decoder = {{ kind = "json", columns = {{ number = {{ type = "int", path = "$" }} }} }}
commit_s_min = 0
commit_offsets_max = {offsets_max}
upkeep = {{ merge_files = 5, share = 0.9 }}

[tables]
"""
_IN_A_STORE: Final = """\
dir = "s3://{bucket}/bronze"
jobs_dir = "{directory}/jobs"
iceberg.properties = {{ type = "sql", uri = "sqlite:///{directory}/catalog.db?timeout=60" }}

[tables.object_store]
endpoint = "{endpoint}"
credentials_file = "{directory}/credentials"
timeout_s = 5
retry_s = 20
"""
BUCKET: Final = "lake"


class Outcome(NamedTuple):
    """What came out of a pipeline, beside what had gone in."""

    acknowledged: int
    rows: int
    lost: int  # acknowledged, and not there
    duplicated: int  # there more than once
    unknown: int  # there, and never acknowledged

    @property
    def is_kept(self) -> bool:
        """Rows equal acknowledgements."""
        return self.rows == self.acknowledged and not (self.lost or self.duplicated or self.unknown)


def compare(acknowledged: dict[str, set[int]], found: Iterable[tuple[str, int]]) -> Outcome:
    """The ledger and the rows, (source, number) each."""
    numbers: dict[str, list[int]] = {source: [] for source in acknowledged}
    for source, number in found:
        numbers.setdefault(source, []).append(number)
    distinct = {source: set(each) for source, each in numbers.items()}
    rows = sum(len(each) for each in numbers.values())
    return Outcome(
        acknowledged=sum(len(each) for each in acknowledged.values()),
        rows=rows,
        lost=sum(len(each - distinct[source]) for source, each in acknowledged.items()),
        duplicated=rows - sum(len(each) for each in distinct.values()),
        unknown=sum(len(each - acknowledged.get(src, set())) for src, each in distinct.items()),
    )


class Pipeline(Protocol):
    """One of the three."""

    load: Load

    def command(self, master: str, is_last: bool) -> list[str]:
        """The driver; the last one ends when it has done all there is."""

    def arrived(self) -> int:
        """How many rows have come out, about."""

    def outcome(self) -> Outcome:
        """The ledger and what came out."""


@final
class LogToTable:
    """The log, landed in a table by the command line.

    Args:
        directory: an empty directory; the table is in it, unless there is a store.
        broker: of the log.
        seed: of the devices.
        a_round: how many messages there are between two faults.
        kind: the format of the table.
        store: an object store for the table; None for none.
    """

    def __init__(
        self,
        directory: Path,
        broker: Broker,
        seed: int,
        a_round: int,
        kind: str = "delta",
        store: DiskStore | None = None,
    ) -> None:
        self.load: Load = Devices(broker, seed)
        self._broker = broker
        self._config = directory / "tables.toml"
        declaration = _DECLARATION.format(
            name=TABLE, format=kind, offsets_max=max(1, a_round // BATCHES_A_ROUND)
        )
        if store is None:
            where = at = f'dir = "{directory / "tables"}"\n'
        else:
            keys = (f"{name.lower()} = {value}" for name, value in KEYS.items())
            (directory / "credentials").write_text("\n".join(["[default]", *keys]))
            place = partial(_IN_A_STORE.format, bucket=BUCKET, directory=directory)
            where, at = place(endpoint=store.proxy.endpoint), place(endpoint=store.server.url)
        judged = directory / "judged.toml"
        judged.write_text(declaration + at)  # whoever looks at the table passes the proxy by
        self._config.write_text(declaration + where)
        tables = load_settings(judged, environ={}).tables
        self.table = DeclaredTable(tables.declared[0], TablePlaces.of(tables))
        if store is not None:
            store.make_bucket(BUCKET)
        self._opened = self.table.open()[ROWS]
        self._rows = 0

    def command(self, master: str, is_last: bool) -> list[str]:
        """``penstock tables run``."""
        command = [sys.executable, "-m", "penstock", "tables", "run", "--config", str(self._config)]
        command += ["--server", server_of(self._broker), "--master", master]
        return [*command, "--available-now" if is_last else "--continuous"]

    def arrived(self) -> int:
        """Rows of the table."""
        with suppress(OSError, PenstockError):  # a store may be away
            contents = self._opened.contents()
            self._rows = 0 if contents is None else contents.rows
        return self._rows

    def outcome(self) -> Outcome:
        """What the format's own reader finds in the table."""
        return compare(self.load.acknowledged, self.rows())

    def rows(self) -> Iterator[tuple[str, int]]:
        """The rows that it finds: publisher and number."""
        found = read_by_its_own(self.table)
        columns = (found.column(name).to_pylist() for name in ("publisher", "number"))
        return zip(*columns, strict=True)


@final
class ToSink:
    """A query that publishes to the broker, of files or of what devices publish there."""

    def __init__(
        self, directory: Path, broker: Broker, what: str, load: Load, options: list[str]
    ) -> None:
        self.load = load
        self._broker = broker
        self._arguments = [what, "--checkpoint", str(directory / "checkpoint"), *options]
        self._arrived = 0
        self._topics = "out/#" if what == "messages" else "sink/#"

    def command(self, master: str, is_last: bool) -> list[str]:
        """``tests.support.sink_program``."""
        command = [sys.executable, "-m", "tests.support.sink_program", *self._arguments]
        command += ["--server", server_of(self._broker), "--master", master]
        return [*command, "--available-now"] if is_last else command

    def arrived(self) -> int:
        """What the log has, but for what devices have put there."""
        own = count(self.load) if isinstance(self.load, Devices) else 0
        try:
            with StreamClient(server_of(self._broker), 0) as client:
                self._arrived = client.offsets("messages").latest - own
        except PenstockError:
            pass  # the broker was killed just now
        return self._arrived

    def outcome(self) -> Outcome:
        """What the stream service has of the topics that the query publishes to."""
        return compare(self.load.acknowledged, self._published())

    def _published(self) -> Iterator[tuple[str, int]]:
        with StreamClient(server_of(self._broker)) as client:
            log = client.offsets("messages")
            topics = (self._topics,)
            for batch in client.read("messages", log.epoch, 0, log.latest, topic_filters=topics):
                for payload in batch.column("payload").to_pylist():
                    number, source = payload.decode().split()
                    yield source, int(number)


def rows_to_sink(directory: Path, broker: Broker, _seed: int, _a_round: int) -> Pipeline:
    """Rows of files, published."""
    rows = directory / "rows"
    return ToSink(directory, broker, "rows", Rows(rows), ["--rows", str(rows)])


def source_to_sink(directory: Path, broker: Broker, seed: int, a_round: int) -> Pipeline:
    """What devices publish, published again on other topics."""
    offsets = ["--offsets-max", str(max(1, 2 * a_round // BATCHES_A_ROUND))]  # half are its own
    return ToSink(directory, broker, "messages", Devices(broker, seed), offsets)


def server_of(broker: Broker) -> str:
    """Its stream service."""
    return "{}:{}".format(*broker.stream_address)


PIPELINES: Final[dict[str, Callable[[Path, Broker, int, int], Pipeline]]] = {
    TO_TABLE: LogToTable,
    "rows-to-sink": rows_to_sink,
    "source-to-sink": source_to_sink,
}
