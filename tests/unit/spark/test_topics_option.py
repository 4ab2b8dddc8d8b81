"""The option `topics`: filters as one text."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.spark.tables.landed_table import Selection
from penstock.spark.topics import parse_topics, topics_text


@pytest.mark.parametrize(
    "topics",
    [
        (),
        ("#",),
        ("plant/+/temp", "alarms/#"),
        ("plant/a,b/+",),
        ("plant/a,b/+", "alarms/#"),
        (" plant/ ",),
        ('["a"]',),
        ("[a]/b",),
        ("a,", "ü/\"'"),
    ],
)
def test_filters_are_read_as_they_were_written(topics: tuple[str, ...]) -> None:
    assert parse_topics(topics_text(topics)) == topics


def test_a_list_is_json_or_has_commas() -> None:
    assert topics_text(["a/#", "b"]) == "a/#,b"
    assert parse_topics(" a/# , b,") == ("a/#", "b")
    assert parse_topics('["a,b", "c"]') == ("a,b", "c")
    assert parse_topics("[1]") == ("[1]",)
    with pytest.raises(ConfigError, match="option topics: 'a/#/b' is not an MQTT topic filter"):
        parse_topics('["a/#/b"]')


def test_a_table_of_a_topic_with_a_comma_is_not_one_of_two_topics() -> None:
    one, two = (Selection("e", "messages", topics) for topics in (("a,b",), ("a", "b")))
    assert one.description != two.description
    assert one.transaction_id != two.transaction_id
