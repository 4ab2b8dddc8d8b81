"""The settings of a job that fills one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.config.table_places import job_dir
from penstock.spark.groups import LEASE_S
from penstock.spark.option_values import SERVER
from penstock.spark.options import service_options
from penstock.spark.session import LOCAL_MASTER
from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import PathOrUrl, location_of
from penstock.spark.tables.landed_table import Selection
from penstock.spark.topics import topics_text
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import PLAIN, Credentials

LOG_NAME: Final = "spark.log"
"""The file in the job's directory with the output of Java and of Spark's Python workers."""

TRIGGER_S: Final = 0.5
"""The default of the shortest time between two batches, in seconds: a message is usually in the
table within a second, and a table gets at most two commits a second."""


@dataclass(frozen=True)
class LandingSettings:
    """The settings of a landing job.

    Attributes:
        table: directory of the table (a path or a URL), which is created when the job first runs.
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        stream: name of the stream.
        topics: MQTT topic filters; empty for every message of the stream.
        checkpoint: the job's directory, with its lock and its output, and the checkpoint of a query
            that has state; None for the one of `penstock.config.table_places`.
        available_now: whether the job ends when the messages present at its start have landed.
        trigger_s: shortest time from the start of one batch to the next, in seconds.
        starting_offsets: the start of a new table: earliest, latest or a position.
        starting_timestamp: the time of receipt of the first message, instead of `starting_offsets`.
        offsets_per_batch_max: most offsets of one batch; None for no limit.
        fail_on_data_loss: whether the job ends if the log loses messages before they land.
        connect_timeout_s: seconds for which the stream service may be unreachable.
        credentials: the credentials for the stream service; a token only by its file.
        master: Spark's master URL.
        group: the name of the job as a registered reader, or None.
        group_lease_s: seconds for which the broker keeps messages after the last renewal.
        derivation: the computation on the messages, in words; empty if they land unchanged, and
            only then are landed offsets reported for receipts.
        is_endless: whether Spark never ends the query by itself, because it has timers.
        log: file with the output of a Spark that several jobs share; None for a Spark and file of
            its own.
    """

    table: PathOrUrl
    server: str = SERVER
    stream: str = "messages"
    topics: tuple[str, ...] = ()
    checkpoint: Path | None = None
    available_now: bool = False
    trigger_s: float = TRIGGER_S
    starting_offsets: str = "earliest"
    starting_timestamp: str | None = None
    offsets_per_batch_max: int | None = None
    fail_on_data_loss: bool = True
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    credentials: Credentials = PLAIN
    master: str = LOCAL_MASTER
    group: str | None = None
    group_lease_s: float = LEASE_S
    derivation: str = ""
    is_endless: bool = False
    log: Path | None = None

    @property
    def location(self) -> Location:
        """The directory of the table."""
        return location_of(self.table)

    @property
    def checkpoint_dir(self) -> Path:
        """The job's directory."""
        found = self.checkpoint or job_dir(self.location.uri, self.location.name)
        return found.absolute()

    @property
    def log_file(self) -> Path:
        """The file with Spark's output."""
        return self.log or self.checkpoint_dir / LOG_NAME

    def selection(self, epoch: str) -> Selection:
        """Return the messages of the log with this epoch that land."""
        return Selection(epoch, self.stream, self.topics, self.derivation)

    def source_options(self) -> dict[str, str]:
        """Return the options of the source by which all of these messages are read."""
        return {
            **service_options(self.server, self.credentials),
            "stream": self.stream,
            "topics": topics_text(self.topics),
            "failOnDataLoss": str(self.fail_on_data_loss),
            "connectTimeoutSeconds": str(self.connect_timeout_s),
        }

    def starting_options(self) -> dict[str, str]:
        """Return the options of the source for the start of a new table."""
        if self.starting_timestamp is not None:
            return {"startingTimestamp": self.starting_timestamp}
        return {"startingOffsets": self.starting_offsets}
