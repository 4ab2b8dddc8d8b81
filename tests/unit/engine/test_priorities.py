"""Priorities of topics: the first filter that matches counts, however many topics there are."""

from penstock.engine.values.priorities import TopicPriorities


def test_the_first_filter_that_matches_counts() -> None:
    priorities = TopicPriorities({"alarm/#": 9, "+/heat": 5, "alarm/heat": 1})
    topics = ("alarm/heat", "oven/heat", "alarm", "oven/door", "$SYS/heat")
    assert [priorities.priority_of(topic) for topic in topics] == [9, 5, 9, 0, 0]


def test_a_topic_keeps_its_priority_when_it_is_asked_for_again() -> None:
    priorities = TopicPriorities({"odd/+": 7})
    for number in range(11_000):  # more than are remembered
        topic = f"odd/{number}" if number % 2 else f"even/{number}"
        for again in (topic, topic, "odd/1", "even/0"):
            assert priorities.priority_of(again) == (7 if again.startswith("odd") else 0)
