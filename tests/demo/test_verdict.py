"""The demonstration's verdict can fail: known losses, repetitions and strangers, each by itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from examples.temperatures import table
from examples.temperatures.fleet import Device, fleet
from examples.temperatures.ledger import Ledger
from examples.temperatures.readings import CITIES, Reading
from examples.temperatures.verdict import Row, Verdict, judge

READINGS = {
    city: [Reading(f"2010-01-{day:02}T00:00:00", 40.0 + day) for day in range(1, 29)]
    for city in CITIES
}
DEVICES = fleet(4, 20)
SENT = 20


def ledger_of(device: Device) -> Ledger:
    """Everything sent and acknowledged."""
    ledger = Ledger(device.qos)
    for number in range(SENT):
        ledger.acknowledged(ledger.sent(float(number)), number + 0.5, 0)
    return ledger


def row(device: Device, sequence: int) -> Row:
    payload = device.payload(sequence, READINGS[device.city])
    return Row(device.name, device.topic, device.qos, payload)


def first(qos: int) -> Device:
    return next(device for device in DEVICES if device.qos == qos)


@pytest.fixture
def ledgers() -> dict[str, Ledger]:
    return {device.name: ledger_of(device) for device in DEVICES}


@pytest.fixture
def rows() -> list[Row]:
    return [row(device, number) for number in range(SENT) for device in DEVICES]


def judged(ledgers: dict[str, Ledger], rows: list[Row], sessions_forgotten: int = 0) -> Verdict:
    return judge(DEVICES, ledgers, READINGS, rows, sessions_forgotten)


def test_everything_once_is_no_complaint(ledgers: dict[str, Ledger], rows: list[Row]) -> None:
    verdict = judged(ledgers, rows)
    assert verdict.complaints() == []
    for qos in (1, 2):
        tally = verdict.tallies[qos]
        assert (tally.devices, tally.sent, tally.acknowledged) == (2, 40, 40)
        assert (tally.rows, tally.distinct, tally.lost, tally.duplicated) == (40, 40, 0, 0)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_missing_row_of_an_acknowledged_reading_is_lost(
    qos: int, ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    rows.remove(row(first(qos), 7))
    verdict = judged(ledgers, rows)
    assert verdict.tallies[qos].lost == 1
    assert verdict.lost == [(first(qos).name, 7)]
    assert verdict.complaints() == [f"1 acknowledged readings are not in the table at QoS {qos}."]


def test_a_repeated_row_at_qos_2_is_a_complaint(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    rows += [row(first(2), 7)] * 3
    verdict = judged(ledgers, rows)
    assert verdict.tallies[2].duplicated == 3
    assert verdict.doubled == [(first(2).name, 7)]
    assert verdict.complaints() == ["3 rows repeat a reading at QoS 2."]


def test_a_repeated_row_at_qos_1_is_counted_and_no_complaint(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    rows.append(row(first(1), 7))
    verdict = judged(ledgers, rows)
    assert verdict.tallies[1].duplicated == 1
    assert verdict.complaints() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_repeated_row_does_not_make_up_for_a_lost_one(
    qos: int, ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    rows.remove(row(first(qos), 7))
    rows.append(row(first(qos), 8))
    tally = judged(ledgers, rows).tallies[qos]
    assert (tally.rows, tally.lost, tally.duplicated) == (40, 1, 1)


def test_a_reading_of_another_device_does_not_make_up_for_a_lost_one(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    one, other = (device for device in DEVICES if device.qos == 1)
    rows.remove(row(one, 7))
    rows.append(row(other, 7))
    assert judged(ledgers, rows).lost == [(one.name, 7)]


def test_an_empty_table_has_lost_everything(ledgers: dict[str, Ledger]) -> None:
    verdict = judged(ledgers, [])
    assert [tally.lost for tally in verdict.tallies.values()] == [40, 40]
    assert len(verdict.complaints()) == 2


def test_a_reading_that_was_never_acknowledged_is_not_lost_but_a_complaint(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    ledgers[first(2).name].sent(99.0)
    verdict = judged(ledgers, rows)
    assert verdict.tallies[2].lost == 0
    assert verdict.complaints() == ["1 readings were never acknowledged at QoS 2."]


def test_a_row_of_a_reading_not_yet_acknowledged_is_welcome(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    ledgers[first(1).name].sent(99.0)
    verdict = judged(ledgers, [*rows, row(first(1), SENT)])
    assert (verdict.foreign, verdict.tallies[1].distinct) == (0, 41)


def test_a_refused_reading_is_a_complaint_of_its_own(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    ledger = ledgers[first(1).name]
    ledger.acknowledged(ledger.sent(99.0), 99.5, 0x97)
    assert judged(ledgers, rows).complaints() == ["1 readings were refused at QoS 1."]


def test_pubcomp_that_does_not_know_the_identifier_any_more_is_an_acknowledgement(
    ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    """MQTT 5 §3.7.2.1: 0x92 is no error during recovery; the message must be in the table."""
    ledger = ledgers[first(2).name]
    ledger.acknowledged(ledger.sent(99.0), 99.5, 0x92)
    assert judged(ledgers, rows).lost == [(first(2).name, SENT)]


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(lambda a, _: Row(a.client_id, a.topic, a.qos, b"{}"), id="payload"),
        pytest.param(lambda a, b: Row(b.client_id, a.topic, a.qos, a.payload), id="sender"),
        pytest.param(lambda a, b: Row(a.client_id, b.topic, a.qos, a.payload), id="topic"),
        pytest.param(lambda a, b: Row(a.client_id, a.topic, b.qos, a.payload), id="qos"),
        pytest.param(lambda a, _: Row("nobody", a.topic, a.qos, a.payload), id="unknown"),
    ],
)
def test_a_row_that_is_not_what_was_sent_counts_for_nothing(
    stranger: object, ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    assert callable(stranger)
    one, other = row(first(1), 7), row(first(2), 7)
    rows.remove(one)
    verdict = judged(ledgers, [*rows, stranger(one, other)])
    assert verdict.foreign == 1
    assert verdict.lost == [(first(1).name, 7)]
    assert "1 rows of the table are not what a device sent." in verdict.complaints()


def test_a_forgotten_session_is_a_complaint(ledgers: dict[str, Ledger], rows: list[Row]) -> None:
    verdict = judged(ledgers, rows, sessions_forgotten=1)
    assert verdict.complaints() == ["The broker forgot 1 sessions it had confirmed."]


def test_the_table_is_read_from_its_own_log(
    tmp_path: Path, ledgers: dict[str, Ledger], rows: list[Row]
) -> None:
    """A file that no commit names, as a killed job leaves it, is not part of the table."""
    assert table.rows(tmp_path / "t") == []
    assert table.next_offset(tmp_path / "t") == 0
    columns = {
        "offset": pa.array(range(len(rows)), pa.int64()),
        "client_id": [row.client_id for row in rows],
        "topic": [row.topic for row in rows],
        "qos": pa.array([row.qos for row in rows], pa.int8()),
        "payload": [row.payload for row in rows],
    }
    whole = pa.table(columns)
    write_deltalake(tmp_path / "t", whole.slice(0, 30))
    write_deltalake(tmp_path / "t", whole.slice(30), mode="append")
    written = next(path for path in (tmp_path / "t").glob("*.parquet"))
    (tmp_path / "t" / "orphan.parquet").write_bytes(written.read_bytes())
    assert table.commit_count(tmp_path / "t") == 2
    assert table.row_count(tmp_path / "t") == table.next_offset(tmp_path / "t") == len(rows)
    assert judged(ledgers, table.rows(tmp_path / "t")).complaints() == []
