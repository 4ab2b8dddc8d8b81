"""New topics of replayed messages, and whether all of them are new."""

from __future__ import annotations

import pytest

from penstock.cli.topic_map import parse_topic_map
from penstock.errors import ConfigError


def test_a_prefix_comes_in_front_and_levels_are_replaced_whole() -> None:
    mapped = parse_topic_map("again/", ["plant/1=test/a", "plant/1/x=never"])
    assert mapped("plant/1/temp") == "again/test/a/temp"
    assert mapped("plant/1") == "again/test/a"
    assert mapped("plant/10/temp") == "again/plant/10/temp"


@pytest.mark.parametrize(
    ("prefix", "pairs", "filters", "changes"),
    [
        ("x/", [], [], True),
        (None, [], ["a/#"], False),
        ("", [], ["a/#"], False),
        (None, ["a=b"], ["a/#"], True),
        (None, ["a=b"], ["a/+/c", "a"], True),
        (None, ["a=b"], [], False),
        (None, ["a=b"], ["a/#", "c"], False),
        (None, ["a=b"], ["+/c"], False),
        (None, ["a/b=c", "a=d"], ["a/#"], True),
    ],
)
def test_a_topic_map_tells_before_whether_every_topic_changes(
    prefix: str | None, pairs: list[str], filters: list[str], changes: bool
) -> None:
    assert parse_topic_map(prefix, pairs).changes_all(filters) is changes


@pytest.mark.parametrize(
    ("prefix", "pairs"),
    [
        ("a/#/", []),
        ("$SYS/", []),
        (None, ["a"]),
        (None, ["a=+"]),
        (None, ["=b"]),
        (None, ["a="]),
        (None, ["a=a"]),
        ("x/", ["x/a=a"]),
    ],
)
def test_a_topic_map_that_makes_no_topics_is_a_mistake(
    prefix: str | None, pairs: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"--prefix|--topic-map"):
        parse_topic_map(prefix, pairs)
