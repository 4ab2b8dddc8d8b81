"""Tables that are derived from declared ones: docs/derived_tables.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.upkeep import UpkeepDefinition, refuse_former_settings
from penstock.config.values import GroupName, TableLocation, TableName

DerivedKind = Literal["windowed", "last_known", "sessions", "silent"]
Function = Literal["count", "min", "max", "mean", "sum", "first", "last"]

RECEIVED_AT: Final = "received_at"
"""The column with the time when the broker received a row: the event time unless one is
declared."""

_AGGREGATE: Final = re.compile(
    r"(count|min|max|mean|sum|first|last)(?:\(([^,;{}()\s=`]{1,255})\))?"
)

_KINDS_BY_SETTING: Final[dict[str, frozenset[DerivedKind]]] = {
    "window_s": frozenset({"windowed"}),
    "slide_s": frozenset({"windowed"}),
    "aggregates": frozenset({"windowed", "sessions"}),
    "gap_s": frozenset({"sessions"}),
    "limit_s": frozenset({"silent"}),
    "retained_only": frozenset({"last_known"}),
    "event_time": frozenset({"windowed", "sessions", "last_known"}),
    "watermark_s": frozenset({"windowed", "sessions"}),
    "idle_s": frozenset({"windowed", "sessions"}),
    "commit_offsets_max": frozenset({"windowed", "sessions", "last_known"}),
}
"""The kinds of derived tables that have a setting, for each setting that not all kinds have."""

_REQUIRED_SETTING: Final[dict[DerivedKind, str]] = {
    "windowed": "window_s",
    "sessions": "gap_s",
    "silent": "limit_s",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the values of a column, or over rows where the column is empty."""

    function: Function
    column: str = ""

    @classmethod
    def parse(cls, text: str) -> Aggregate:
        """Read `mean(celsius)`, or `count` of rows; raises ValueError for anything else."""
        found = _AGGREGATE.fullmatch(text)
        if found is None or (found[2] is None and found[1] != "count"):
            raise ValueError(
                "count, or one of count, min, max, mean, sum, first and last of a column, such as"
                " mean(celsius)"
            )
        return cls(cast(Function, found[1]), found[2] or "")


def _checked_aggregate(value: str) -> str:
    Aggregate.parse(value)
    return value


class DerivedDefinition(SettingsGroup):
    """A table that is computed from the rows of a declared one."""

    name: TableName
    """Name of the table: 1 to 64 letters, digits and . _ - that start with a letter or digit."""

    kind: DerivedKind
    """windowed: aggregates over windows of time; last_known: the last good row of each topic;
    sessions: times of activity between times of silence; silent: devices that fell silent or came
    back."""

    source: TableName
    """The declared table whose rows this table is computed from; the rows are read from the log."""

    keys: tuple[str, ...] = Field(default=("topic",), min_length=1, max_length=16)
    """Columns by whose values rows are grouped: columns of the source, such as its topic levels, or
    any of topic, client_id, qos and retain. 1 to 16."""

    event_time: str = RECEIVED_AT
    """The column with the time of a row, a timestamp; or received_at, when the broker got it."""

    watermark_s: float = Field(default=10.0, ge=0, le=2_592_000)
    """How late a row may be, in seconds; a window is written when no more rows of it can come. With
    an event_time, lateness counts from the newest time of the row's keys; rows that are later, or
    whose time is that far in the future, are counted in the column late. 0 to 2592000."""

    idle_s: float = Field(default=2_678_400.0, ge=1, le=31_536_000)
    """With an event_time: time in seconds without rows of a key after which its windows are written
    as they are, and the key is forgotten. 1 to 31536000."""

    window_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    """Length of a window, in seconds. 0.001 to 31536000."""

    slide_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    """Time from the start of one window to that of the next, in seconds; window_s unless said
    otherwise. 0.001 to 31536000."""

    aggregates: dict[str, Annotated[str, AfterValidator(_checked_aggregate)]] = Field(
        default={"count": "count"}, min_length=1, max_length=1000
    )
    """Columns by name, each count (of rows) or a function of a column: count, min, max, mean, sum,
    first or last, as in { hottest = "max(celsius)" }."""

    gap_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    """Time without rows after which a session ends, in seconds. 0.001 to 31536000."""

    limit_s: float | None = Field(default=None, ge=1, le=31_536_000)
    """Time without messages after which a device is silent, in seconds. 1 to 31536000."""

    retained_only: bool = False
    """Take only messages that were published to be retained; one without payload removes the
    row."""

    path: TableLocation = ""
    """Directory of the table, or a URL as in tables.dir; empty for its name below tables.dir."""

    format: Literal["delta", "iceberg", "parquet"] = "delta"
    """delta, iceberg or parquet, as for declared tables; last_known is delta."""

    starting_offsets: str = "earliest"
    """Position in the log at which a new table begins: earliest, latest, or offsets as JSON, such
    as {"0": 3000}."""

    group: GroupName | None = None
    """Name of the registered reader that the table's query is, as for declared tables. Without it
    the table's name; empty for none."""

    group_lease_s: float = Field(default=259_200.0, ge=1, le=10**8)
    """How long the broker keeps unread messages when the query does not report, in seconds. 1 to
    100000000."""

    commit_s_min: float = Field(default=5.0, ge=0, le=86_400)
    """Shortest time from one batch to the next, in seconds. 0 to 86400."""

    commit_offsets_max: int = Field(default=1_000_000, ge=1, le=2**62)
    """Most offsets of one batch. 1 to 4611686018427387904."""

    upkeep: UpkeepDefinition = UpkeepDefinition()
    """Upkeep of the table, such as { share = 0.1, versions_max = 100 }."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_former_settings(cls, values: Any) -> Any:
        return refuse_former_settings(values)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> DerivedDefinition:
        subject = f"table {self.name!r} is {self.kind}, which"
        for name, kinds in _KINDS_BY_SETTING.items():
            if name in self.model_fields_set and self.kind not in kinds:
                raise ValueError(
                    f"{subject} has no setting {name}, that is for {' and '.join(sorted(kinds))}"
                )
        if "idle_s" in self.model_fields_set and self.event_time == RECEIVED_AT:
            raise ValueError(
                f"table {self.name!r} has idle_s, which is for tables with an event_time"
            )
        required = _REQUIRED_SETTING.get(self.kind)
        if required is not None and getattr(self, required) is None:
            raise ValueError(f"{subject} needs {required}")
        if self.window_s is not None and (self.slide_s or 0) > self.window_s:
            raise ValueError(
                f"table {self.name!r} has slide_s {self.slide_s:g} and window_s"
                f" {self.window_s:g}: rows between two windows would be in none"
            )
        if self.kind == "last_known" and self.format != "delta":
            raise ValueError(f"{subject} replaces rows: its format is delta")
        if self.retained_only and self.keys != ("topic",):
            raise ValueError(
                f"{subject} with retained_only has the keys topic, as retained messages"
            )
        repeated = {key for key in self.keys if self.keys.count(key) > 1}
        if repeated:
            raise ValueError(f"table {self.name!r} has the key {min(repeated)!r} twice")
        return self
