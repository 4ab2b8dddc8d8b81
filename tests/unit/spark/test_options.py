"""What a user may say to `format("penstock")`."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError, EpochMismatch
from penstock.spark.offsets import Position, WantedPosition, split_range
from penstock.spark.options import SourceOptions, parse_options


def test_everything_has_a_default() -> None:
    found = parse_options({"minPartitions": "1"})
    assert found == SourceOptions()
    assert parse_options({}).partitions_max >= 1


def test_the_case_of_names_does_not_matter() -> None:
    options = {
        "SERVER": "grpc://broker:8815/",
        "topics": "a/#, b/+",
        "startingoffsets": "Latest",
        "endingOffsets": '{"0": 7}',
        "MAXOFFSETSPERTRIGGER": "100",
        "failOnDataLoss": "False",
        "connectTimeoutSeconds": "0.5",
    }
    found = parse_options(options)
    assert (found.server, found.topics, found.starting) == ("broker:8815", ("a/#", "b/+"), "latest")
    assert found.ending == WantedPosition(7)
    assert (found.offsets_per_trigger_max, found.fail_on_data_loss) == (100, False)
    assert found.connect_timeout_s == 0.5


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("startingOffset", "earliest", "has no option 'startingoffset'; did you mean startingOff"),
        ("colour", "red", "has no option 'colour'; there is server, stream, topics"),
        ("groupId", "a b", "option groupId: a group must be 1 to 64 letters, digits and . _ - "),
        ("groupLeaseSeconds", "0", "option groupLeaseSeconds must be a number of seconds from 1"),
        ("server", "broker", "option server must be HOST:PORT"),
        ("server", "broker:0", "option server needs the port"),
        ("topics", "a/#/b", "option topics: 'a/#/b' is not an MQTT topic filter"),
        ("startingOffsets", "first", "option startingOffsets must be earliest, latest or a positi"),
        ("startingOffsets", "{", "option startingOffsets must be a position such as"),
        ("startingOffsets", '{"1": 5}', "option startingOffsets must be a position such as"),
        ("endingOffsets", '{"0": -1}', "option endingOffsets must be a position such as"),
        ("endingOffsets", '{"0": 1, "epoch": 2}', "option endingOffsets must be a position such"),
        ("maxOffsetsPerTrigger", "0", "must be a whole number from 1 to"),
        ("maxOffsetsPerTrigger", "many", "must be a whole number from 1 to"),
        ("minPartitions", "1.5", "option minPartitions must be a whole number from 1 to 100000"),
        ("connectTimeoutSeconds", "nan", "must be a number of seconds from 0 to 86400, not 'nan'"),
        ("failOnDataLoss", "maybe", "option failOnDataLoss must be true or false, not 'maybe'"),
    ],
)
def test_a_mistake_is_one_sentence(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({name: value})
    assert sentence in str(caught.value)


def test_spark_keeps_positions_as_json_with_sorted_keys() -> None:
    position = Position("e1", 5)
    assert position.to_json() == '{"0": 5, "epoch": "e1"}'
    assert list(position.to_spark()) == ["0", "epoch"]
    assert Position.from_spark({"epoch": "e1", "0": 5}) == position
    with pytest.raises(ConfigError, match="is no position in a penstock stream"):
        Position.from_spark({"offset": 5})


def test_a_position_of_another_epoch_is_refused() -> None:
    assert WantedPosition(5).resolve("e1") == Position("e1", 5)
    with pytest.raises(EpochMismatch, match="stands at offset 5 of epoch e0, and the log is now o"):
        WantedPosition(5, "e0").resolve("e1")


@pytest.mark.parametrize(
    ("start", "end", "parts", "expected"),
    [
        (0, 10, 3, [(0, 3), (3, 6), (6, 10)]),
        (5, 7, 8, [(5, 6), (6, 7)]),
        (5, 5, 8, []),
        (0, 1, 1, [(0, 1)]),
    ],
)
def test_a_range_is_split_evenly(
    start: int, end: int, parts: int, expected: list[tuple[int, int]]
) -> None:
    assert split_range(start, end, parts) == expected
