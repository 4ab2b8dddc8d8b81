"""Topic names and filters: the specification's own examples, and its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.topics import is_shared, is_topic_filter, is_topic_name, topic_matches

LEVELS_MAX = 128


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        # MQTT 5 §4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("#", "sport/tennis", True),
        # MQTT 5 §4.7.1.3
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player2", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # MQTT 5 §4.7.2 [MQTT-4.7.2-1]
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        # MQTT 5 §4.7.3
        ("ACCOUNTS", "Accounts", False),
        ("Accounts payable", "Accounts payable", True),
        ("/finance", "finance", False),
        ("a//b", "a//b", True),
        ("a/+/b", "a//b", True),
        # beyond the examples
        ("+/#", "a", True),
        ("+/#", "$SYS/a", False),
        ("a/+/#", "a", False),
        ("a/+/#", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False),
        ("a/$b/#", "a/$b", True),
        ("a/+", "a/$b", True),
        ("#", "/", True),
        ("/#", "/", True),
        ("+/+", "/", True),
    ],
)
def test_examples(topic_filter: str, topic: str, matches: bool) -> None:
    assert topic_matches(topic_filter, topic) is matches


@pytest.mark.parametrize(
    ("topic_filter", "well_formed"),
    [
        ("#", True),
        ("sport/tennis/#", True),
        ("sport/tennis#", False),
        ("sport/tennis/#/ranking", False),
        ("##", False),
        ("+", True),
        ("+/tennis/#", True),
        ("sport+", False),
        ("sport/+/player1", True),
        ("sport/+a/player1", False),
        ("/", True),
        ("", False),
    ],
)
def test_filters_are_judged(topic_filter: str, well_formed: bool) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]"""
    assert is_topic_filter(topic_filter, LEVELS_MAX) is well_formed


@pytest.mark.parametrize(
    ("topic", "well_formed"),
    [("a", True), ("/", True), ("a b/ü", True), ("", False), ("a/+", False), ("a/#", False)],
)
def test_names_are_judged(topic: str, well_formed: bool) -> None:
    """[MQTT-3.3.2-2] [MQTT-4.7.3-1]"""
    assert is_topic_name(topic, LEVELS_MAX) is well_formed


def test_the_number_of_levels_is_limited() -> None:
    assert is_topic_name("/".join("a" * 8), 8)
    assert not is_topic_name("/".join("a" * 9), 8)
    assert is_topic_filter("/".join("+" * 8), 8)
    assert not is_topic_filter("/".join("+" * 9), 8)


def test_shared_subscriptions_are_recognised() -> None:
    assert is_shared("$share/group/a/#")
    assert not is_shared("$shared/a")


def recursive_match(wanted: list[str], levels: list[str]) -> bool:
    """The definition, word for word: one level of the filter at a time."""
    if not wanted:
        return not levels
    if wanted == ["#"]:
        return True
    if not levels:
        return False
    return wanted[0] in ("+", levels[0]) and recursive_match(wanted[1:], levels[1:])


LEVEL = st.sampled_from(["a", "b", "", "$x"])


@given(
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4),
    st.booleans(),
    st.lists(LEVEL, min_size=1, max_size=4),
)
def test_against_the_definition(wanted: list[str], ends_with_all: bool, levels: list[str]) -> None:
    wanted = [*wanted, "#"] if ends_with_all else wanted
    topic_filter, topic = "/".join(wanted), "/".join(levels)
    if not topic or not topic_filter:
        return
    hidden = topic.startswith("$") and wanted[0] in ("+", "#")
    assert topic_matches(topic_filter, topic) is (recursive_match(wanted, levels) and not hidden)
