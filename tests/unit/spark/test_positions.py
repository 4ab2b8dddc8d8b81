"""Positions as Spark keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.spark.offsets import LogPosition, Position
from penstock.store.mark import Mark, Run


def test_spark_keeps_positions_as_json_with_sorted_keys() -> None:
    position = Position.of_single_log("e1", 5)
    assert position.to_json() == '{"0": 5, "epoch": "e1"}'
    assert list(position.to_spark()) == ["0", "epoch"]
    assert Position.from_spark({"epoch": "e1", "0": 5}) == position


def test_a_mark_comes_behind_the_epoch_and_positions_without_one_are_read() -> None:
    mark = Mark((Run(0, "4be1d0c7a2f9"),), "ab" * 32)
    position = Position({"": LogPosition("e1", 5, mark)}, selection="stream messages")
    assert list(position.to_spark()) == ["0", "epoch", "mark", "selection"]
    assert Position.from_spark(position.to_spark()) == position
    assert Position.from_spark({"0": 5, "epoch": "e1"}).single_log.mark.is_empty


def test_the_position_in_several_logs_is_one_by_server() -> None:
    position = Position({"two:2": LogPosition("e2", 7), "one:1": LogPosition("e1", 5)})
    text = '{"one:1": {"0": 5, "epoch": "e1"}, "two:2": {"0": 7, "epoch": "e2"}}'
    assert position.to_json() == text
    assert Position.from_spark(json.loads(text)) == position
    with pytest.raises(ConfigError, match=r"was made for several brokers: \{.one:1"):
        _ = position.single_log


@pytest.mark.parametrize("logs", [{"": LogPosition("e", 5)}, {"one:1": LogPosition("e", 5)}])
def test_starts_that_are_counted_stand_in_the_position(logs: dict[str, LogPosition]) -> None:
    position = Position(logs, starts=3, selection="stream messages, topics a/#")
    assert list(position.to_spark())[-2:] == ["selection", "starts"]
    assert Position.from_spark(position.to_spark()) == position
    assert Position.from_spark(Position(logs).to_spark()).starts == 0
    assert position.with_server_key({"two:2": ["e"]}).starts == 3
    assert Position.from_spark(Position(logs).to_spark()).selection == ""


@pytest.mark.parametrize(
    "kept",
    [
        {"offset": 5},
        {"0": "x", "epoch": "e"},
        {"0": 5},
        {"one:1": 5},
        {"one:1": {"0": 5}},
        {"0": 5, "epoch": "e", "starts": "x"},
        {"0": 5, "epoch": "e", "mark": "x"},
    ],
)
def test_a_value_that_is_no_position_is_told(kept: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is no position in a penstock stream"):
        Position.from_spark(kept)


def test_a_position_of_one_broker_is_known_by_its_epoch_among_several() -> None:
    one = Position.of_single_log("e2", 7)
    assert one.with_server_key({"one:1": ["e1"], "two:2": ["e3", "e2"]}) == Position(
        {"two:2": LogPosition("e2", 7)}
    )
    assert one.with_server_key({"one:1": ["e1"]}) == one
    assert one.with_server_key({"": ["e3"]}) == one
