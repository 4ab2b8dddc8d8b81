"""Tables that messages land in, declared: docs/tables.md."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from penstock.config.decoder import DecoderDefinition
from penstock.config.derived import DerivedDefinition
from penstock.config.group import SettingsGroup
from penstock.config.object_store import ObjectStoreSettings
from penstock.config.topic_pattern import TopicPatternText
from penstock.config.upkeep import UpkeepDefinition, refuse_former_settings
from penstock.config.values import (
    CatalogName,
    GroupName,
    LocalDirectory,
    StreamName,
    TableLocation,
    TableName,
)
from penstock.engine.values.change_effects import TABLE_JOBS, takes_effect

Metadata = Literal["received_at", "topic", "client_id", "qos", "retain"]


class RepeatsDefinition(SettingsGroup):
    """Deduplication of messages that publishers sent again, so that each is landed once."""

    column: str = ""
    """The decoded column with the message's id: text or a whole number, the same in all rows of a
    message."""

    user_property: str = ""
    """The MQTT 5 user property with the id, instead of a column; the table gets it as the column
    message_id."""

    within_s: int = Field(default=3600, ge=1, le=31_536_000)
    """Longest time between a message and a repeat of it, in seconds, by the broker's clock; a later
    message with its id is a new one. 1 to 31536000."""

    @model_validator(mode="after")
    def _has_one_id(self) -> RepeatsDefinition:
        if bool(self.column) == bool(self.user_property):
            raise ValueError("repeats needs either column or user_property")
        return self


class TableDefinition(SettingsGroup):
    """A declared table: which messages land in it, how they become rows, and where the rows are
    kept."""

    name: TableName
    """Name of the table: 1 to 64 letters, digits and . _ - that start with a letter or digit."""

    topics: TopicPatternText
    """The messages: an MQTT topic filter in which a level may have a name, and so become a column:
    plant/{line}/{machine:int}/temp."""

    decoder: DecoderDefinition = DecoderDefinition(kind="raw")
    """Decoder of payloads into columns, see docs/decoders.md; without one, the column value has the
    payload unchanged."""

    stream: StreamName = "messages"
    """The stream from which the messages are read, see stream.streams."""

    path: TableLocation = ""
    """Directory of the table, or a URL as in tables.dir; empty for its name below tables.dir.
    Messages that do not become rows go to a table beside it whose name ends in _dead_letters."""

    format: Literal["delta", "iceberg", "parquet"] = "delta"
    """delta, iceberg (with the catalog of tables.iceberg), or parquet: a plain directory."""

    metadata: tuple[Metadata, ...] = ("received_at", "topic")
    """Columns of a message beside its epoch and offset: any of received_at, topic, client_id, qos
    and retain."""

    partition_by: tuple[str, ...] = Field(default=("date",), max_length=4)
    """Columns with a directory for each value: date (of received_at, UTC), or columns of text,
    whole numbers or dates; none for no partitions. With format iceberg also year, month, day or
    hour of a time, such as "hour(received_at)", and buckets, see docs/tables.md. At most 4."""

    partitions_max: int = Field(default=1000, ge=1, le=100_000)
    """Most partitions that one commit may have files in; a commit to more is refused. 1 to
    100000."""

    repeats: RepeatsDefinition | None = None
    """Drop messages that were sent again, such as { column = "id", within_s = 600 }."""

    evolve: Literal["none", "add"] = "none"
    """Handling of a newer schema of registry.subject. none: a job reads it when it starts, and
    refuses one in which a column has another type. add: its new fields become columns with the next
    batch; present columns become wider in Iceberg tables, and keep their types elsewhere."""

    starting_offsets: str = "earliest"
    """Position in the log at which a new table begins: earliest, latest, or offsets as JSON, such
    as {"0": 3000}; backfill adds earlier messages."""

    group: GroupName | None = None
    """Name of the registered reader that the table's job is (docs/spark.md, Readers): the broker
    then keeps messages that have not landed, whatever its retention says. Without it the table's
    name; empty for none. Every table of a broker has its own."""

    group_lease_s: float = Field(default=259_200.0, ge=1, le=10**8)
    """How long the broker keeps messages that have not landed when the job does not report, in
    seconds: longer than the job is ever stopped. At most stream.reader_lease_s_max of the broker. 1
    to 100000000."""

    commit_s_min: float = Field(default=0.5, ge=0, le=86_400)
    """Shortest time from one commit to the next, in seconds; longer makes fewer, larger files. 0 to
    86400."""

    commit_offsets_max: int = Field(default=1_000_000, ge=1, le=2**62)
    """Most offsets of one commit. 1 to 4611686018427387904."""

    upkeep: UpkeepDefinition = UpkeepDefinition()
    """Upkeep of the table, such as { share = 0.1, versions_max = 100 }."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_former_settings(cls, values: Any) -> Any:
        return refuse_former_settings(values)

    @model_validator(mode="after")
    def _has_what_evolving_needs(self) -> TableDefinition:
        decoder = self.decoder
        registry = decoder.registry
        has_subject = registry is not None and registry.subject and not registry.version
        if self.evolve == "add" and (not has_subject or decoder.columns):
            raise ValueError(
                f"table {self.name!r} evolves with registry.subject: name it, and neither a version"
                " of it nor columns"
            )
        return self

    @model_validator(mode="after")
    def _has_what_repeats_need(self) -> TableDefinition:
        if self.repeats is not None and "received_at" not in self.metadata:
            raise ValueError(
                f"table {self.name!r} looks for repeats, and so needs received_at in its metadata"
            )
        return self


class IcebergNames(SettingsGroup):
    """The catalog and namespace of tables of format iceberg."""

    catalog: CatalogName = "penstock"
    """Name of the catalog, under which pyiceberg and other programs open it."""

    namespace: CatalogName = "penstock"
    """Namespace of the tables in the catalog, such as bronze."""

    properties: dict[str, str] = Field(default={}, max_length=100)
    """Properties by which pyiceberg opens the catalog, such as { type = "rest", uri =
    "https://catalog.plant" }. Empty for a SQLite file, tables.dir/iceberg.db, where tables.dir is a
    directory. Secrets belong into its own file (~/.pyiceberg.yaml) or environment
    (PYICEBERG_CATALOG__NAME__CREDENTIAL)."""


@takes_effect(TABLE_JOBS)
class Tables(SettingsGroup):
    """Tables that messages land in, by 'penstock tables run'; see docs/tables.md."""

    dir: TableLocation = "tables"
    """Directory of tables without a path of their own, or a URL (s3://BUCKET/PATH, gs://…,
    abfss://…); a relative path starts at the working directory of the command, not at this file."""

    jobs_dir: LocalDirectory = ""
    """Directory of this machine for the jobs' locks, output and checkpoints, below the names of the
    tables. Empty for _checkpoint in each table's directory, and for table-jobs where that is no
    directory of this machine."""

    object_store: ObjectStoreSettings = ObjectStoreSettings()
    """How tables in object stores are reached."""

    iceberg: IcebergNames = IcebergNames()
    """Names in the Iceberg catalog."""

    declared: tuple[TableDefinition, ...] = Field(default=(), max_length=1000)
    """The tables, 0 to 1000."""

    derived: tuple[DerivedDefinition, ...] = Field(default=(), max_length=1000)
    """Tables that are computed from the rows of declared tables, 0 to 1000; see
    docs/derived_tables.md."""

    @model_validator(mode="after")
    def _names_differ(self) -> Tables:
        declared = [table.name for table in self.declared]
        derived = [table.name for table in self.derived]
        for name in derived:
            if name in declared:
                raise ValueError(
                    f"tables.declared and tables.derived both name {name!r}; give each its own name"
                )
        for group, names in (("declared", declared), ("derived", derived)):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"tables.{group} names {name!r} twice; give each its own name")
        return self

    @model_validator(mode="after")
    def _sources_are_declared(self) -> Tables:
        declared = [table.name for table in self.declared]
        for table in self.derived:
            if table.source not in declared:
                there = f"declared are {', '.join(declared)}" if declared else "none is declared"
                raise ValueError(
                    f"table {table.name!r} has the source {table.source!r}, which is no declared"
                    f" table; {there}"
                )
        return self
