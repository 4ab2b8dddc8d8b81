"""Topic patterns: which topics they read, and what of a topic becomes a column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.config.topic_pattern import parse_levels
from penstock.decoding.topic_pattern import TopicPattern
from penstock.errors import ConfigError


def columns_of(pattern: str, *topics: str) -> tuple[list[dict[str, object]], dict[int, str]]:
    table, misfits, reasons = TopicPattern.parse(pattern).columns(pa.array(topics, pa.string()))
    assert table.num_rows == len(topics)
    assert table.schema == TopicPattern.parse(pattern).schema
    return table.to_pylist(), dict(zip(misfits.to_pylist(), reasons.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("pattern", "topic_filter"),
    [
        ("plant/{line}/{machine:int}/temp", "plant/+/+/temp"),
        ("{site}/{rest:#}", "+/#"),
        ("plant/+/{machine:string}/#", "plant/+/+/#"),
        ("plant", "plant"),
        ("#", "#"),
        ("a/{{b}}/c", "a/{b}/c"),
        ("/{x:float}/", "/+/"),
    ],
)
def test_the_filter_of_a_pattern(pattern: str, topic_filter: str) -> None:
    assert TopicPattern.parse(pattern).topic_filter == topic_filter


def test_named_levels_are_columns() -> None:
    rows, misfits = columns_of(
        "plant/{line}/{machine:int}/{rest:#}", "plant/a/7/x/y", "plant//-1/", "plant/b/+07"
    )
    assert rows == [
        {"line": "a", "machine": 7, "rest": "x/y"},
        {"line": "", "machine": -1, "rest": ""},
        {"line": "b", "machine": 7, "rest": None},
    ]
    assert misfits == {}


def test_levels_that_do_not_cast_are_told() -> None:
    rows, misfits = columns_of("{i:int}/{f:float}", "x/1", "1/1.5e3", "9" * 19 + "/nan", "1/1/1")
    assert rows[1] == {"i": 1, "f": 1500.0}
    assert rows[0] == {"i": None, "f": 1.0}
    assert misfits == {
        0: "The topic level i is 'x', which is no whole number of 64 bits.",
        2: "The topic level i is '9999999999999999999', which is no whole number of 64 bits.",
        3: "The topic '1/1/1' does not match {i:int}/{f:float}.",
    }


def test_a_pattern_without_names_has_a_row_for_each_topic() -> None:
    table, misfits, _ = TopicPattern.parse("plant/+/#").columns(pa.array(["plant/a", "plant/b"]))
    assert (table.num_rows, table.num_columns, len(misfits)) == (2, 0, 0)


def test_system_topics_are_not_read_by_a_leading_name() -> None:
    _, misfits = columns_of("{first}/#", "$SYS/broker", "a/b")
    assert list(misfits) == [0]


def test_no_topics() -> None:
    assert columns_of("{a}/{b:int}") == ([], {})


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "makes no MQTT topic filter"),
        ("a/#/b", "makes no MQTT topic filter"),
        ("{rest:#}/b", "makes no MQTT topic filter"),
        ("a/x+", "makes no MQTT topic filter"),
        ("$share/g/{a}", "is a shared subscription"),
        ("a/sensor-{id}", "a name such as {line} stands for a whole level"),
        ("a/{id", "has a single brace"),
        ("a/{}", "whose name must be letters"),
        ("a/{1x}", "whose name must be letters"),
        ("a/{x:date}", "whose type must be string, int or float"),
        ("{x}/{X}", "names 'x' twice"),
    ],
)
def test_a_text_that_is_no_pattern_is_told(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_levels(pattern)
    with pytest.raises(ConfigError, match=said) as told:
        TopicPattern.parse(pattern)
    assert str(told.value).endswith(".")
