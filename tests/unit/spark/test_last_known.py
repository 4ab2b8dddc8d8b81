"""The newest row of each key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.derived import DerivedDefinition
from penstock.spark.derived.last_known import NewestRows, have_common_key

COLUMNS = ("epoch", "offset", "line", "machine", "measured_at")


def newest(**settings: Any) -> NewestRows:
    given = {"name": "last", "kind": "last_known", "source": "readings", **settings}
    return NewestRows(DerivedDefinition.model_validate({"keys": ("line", "machine"), **given}))


def rows(*values: tuple[int, str | None, int, int | None], epoch: str = "e") -> pa.Table:
    """(offset, line, machine, measured at) of each."""
    times = [None if at is None else datetime.fromtimestamp(at, UTC) for *_, at in values]
    return pa.table(
        {
            "epoch": pa.array([epoch] * len(values), pa.string()),
            "offset": pa.array([value[0] for value in values], pa.int64()),
            "line": pa.array([value[1] for value in values], pa.string()),
            "machine": pa.array([value[2] for value in values], pa.int64()),
            "measured_at": pa.array(times, pa.timestamp("us", "UTC")),
            "place": pa.array(range(len(values)), pa.int64()),
        }
    )


def offsets(found: pa.Table) -> list[int]:
    kept: list[int] = found.column("offset").to_pylist()
    return kept


def test_the_last_row_of_each_key_stays_and_null_is_a_key() -> None:
    found = newest()(rows((1, "a", 1, 0), (4, None, 1, 0), (2, "a", 1, 0), (3, "a", 2, 0)))
    assert offsets(found) == [2, 3, 4]


def test_of_the_rows_of_one_message_the_last_one_stays() -> None:
    found = newest()(rows((1, "a", 1, 0), (1, "a", 1, 0), (1, "a", 1, 0)))
    assert found.column("place").to_pylist() == [2]


def test_an_event_time_decides_before_the_offset() -> None:
    values = ((1, "a", 1, 50), (2, "a", 1, 40), (3, "a", 1, None), (4, "b", 1, 7), (5, "b", 1, 7))
    assert offsets(newest(event_time="measured_at")(rows(*values))) == [1, 5]
    assert offsets(newest()(rows(*values))) == [3, 5]


@pytest.mark.parametrize("epochs", [("2026-1", "2026-2"), ("2026-2", "2026-1")])
def test_a_row_that_comes_after_those_of_the_table_is_newer_whatever_its_epoch_is_named(
    epochs: tuple[str, str],
) -> None:
    """The log was put back, and its clock may be behind."""
    table = rows((900, "a", 1, 0), (5, "b", 1, 0), epoch=epochs[0])
    batch = rows((3, "a", 1, 0), epoch=epochs[1])
    assert offsets(newest().after(table, batch)) == [3, 5]


def test_of_no_rows_none_are_newest() -> None:
    assert newest()(rows()).num_rows == 0
    assert not have_common_key(rows(), rows((1, "a", 1, 0)), ("line", "machine"))


def test_files_are_touched_by_the_keys_they_have() -> None:
    keys = ("line", "machine")
    file = rows((1, "a", 1, 0), (2, None, 2, 0))
    assert have_common_key(file, rows((9, "a", 1, 0)), keys)
    assert have_common_key(file, rows((9, None, 2, 0)), keys)
    assert not have_common_key(file, rows((9, "a", 2, 0)), keys)
