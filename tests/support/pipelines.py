"""Pipelines to be tortured: what goes in, the program on the cluster, and what came out.

::

    log → table           devices ─▶ broker ─▶ penstock tables run ─▶ Delta table
    rows → sink           files   ─▶ Spark ─▶ broker's log
    source → sink         devices ─▶ broker ─▶ Spark ─▶ the same broker's log
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

import pyarrow as pa
from deltalake import DeltaTable

from penstock.config.table import TableDefinition
from penstock.errors import PenstockError
from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.pipeline_loads import Devices, Load, Rows, count
from tests.support.places import path_of, places_in

TABLE: Final = "readings"
BATCHES_A_ROUND: Final = 4

_DECLARATION: Final = """\
[tables]
dir = "{tables}"

[[tables.declared]]
name = "{name}"
topics = "{topics}"
decoder = {{ kind = "json", columns = {{ number = {{ type = "int", path = "$" }} }} }}
commit_s_min = 0
commit_offsets_max = {offsets_max}
upkeep = {{ merge_files = 5, share = 0.9 }}
"""
_TOPICS: Final = "ledger/{qos:int}/{publisher}"


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
    """The log, landed in a Delta table by the command line."""

    def __init__(self, directory: Path, broker: Broker, seed: int, a_round: int) -> None:
        self.load: Load = Devices(broker, seed)
        self._broker = broker
        self._config = directory / "tables.toml"
        tables = directory / "tables"
        self._config.write_text(
            _DECLARATION.format(
                tables=tables,
                name=TABLE,
                topics=_TOPICS,
                offsets_max=max(1, a_round // BATCHES_A_ROUND),
            )
        )
        decoder = {"kind": "json", "columns": {"number": {"type": "int", "path": "$"}}}
        definition = {"name": TABLE, "topics": _TOPICS, "decoder": decoder}
        self.table = DeclaredTable(TableDefinition.model_validate(definition), places_in(tables))

    def command(self, master: str, is_last: bool) -> list[str]:
        """``penstock tables run``."""
        command = [sys.executable, "-m", "penstock", "tables", "run", "--config", str(self._config)]
        command += ["--server", server_of(self._broker), "--master", master]
        return [*command, "--available-now" if is_last else "--continuous"]

    def arrived(self) -> int:
        """Rows of the table."""
        if not any((path_of(self.table) / "_delta_log").glob("*.json")):
            return 0
        files = pa.table(DeltaTable(path_of(self.table)).get_add_actions())
        return sum(files.column("num_records").to_pylist())

    def outcome(self) -> Outcome:
        """What delta-rs finds in the table."""
        found = DeltaTable(path_of(self.table)).to_pyarrow_table(columns=["publisher", "number"])
        columns = (found.column(name).to_pylist() for name in ("publisher", "number"))
        return compare(self.load.acknowledged, zip(*columns, strict=True))


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
    "log-to-table": LogToTable,
    "rows-to-sink": rows_to_sink,
    "source-to-sink": source_to_sink,
}
