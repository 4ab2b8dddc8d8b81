"""A set of filters answers as each of its filters would, with less work."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.auth.filter_set import FilterSet
from penstock.engine.values.topics import filter_covers, is_topic_filter, topic_matches

LEVEL = st.sampled_from(["a", "b", "", "$x", "+"])
FILTERS = st.builds(
    lambda levels, rest: "/".join([*levels, *(["#"] if rest else [])]) or "#",
    st.lists(LEVEL, max_size=4),
    st.booleans(),
)
TOPICS = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=5).map("/".join)


@given(st.lists(FILTERS, max_size=8), TOPICS)
def test_a_topic_matches_as_one_of_the_filters_does(filters: list[str], topic: str) -> None:
    known = FilterSet(filters)
    assert known.matches(topic) == any(topic_matches(wanted, topic) for wanted in filters)


@given(st.lists(FILTERS, max_size=8), FILTERS)
def test_a_filter_is_covered_as_by_one_of_the_filters(filters: list[str], wanted: str) -> None:
    assert is_topic_filter(wanted, 100)
    known = FilterSet(filters)
    assert known.covers(wanted) == any(filter_covers(wide, wanted) for wide in filters)


def test_the_work_does_not_grow_with_filters_that_are_different() -> None:
    known = FilterSet([f"site{number}/line/+/temperature" for number in range(10_000)])
    assert known.covers("site9999/line/7/temperature")
    assert known.matches("site0/line/7/temperature")
    assert not known.covers("elsewhere/#")
    assert known.visits <= 4 + 4 + 1


def test_a_thousand_levels_are_no_recursion() -> None:
    deep = "/".join(["a"] * 1000)
    known = FilterSet([deep, "a/" * 500 + "#"])
    assert known.matches(deep)
    assert known.covers(deep + "/a")
