"""Retained messages, against the definition of matching."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.session.retained import RetainedMessages
from penstock.engine.values.message import Message
from penstock.engine.values.topics import topic_matches

TOPICS = ["a", "a/b", "a/b/c", "/", "a/", "b", "b/a", "$x", "$x/a", "a/$x", "$x/a/b"]
FILTERS = ["#", "+", "+/+", "a/#", "a/+", "a/b", "a", "+/b/#", "$x/#", "$x/+", "/+", "+/", "+/#"]


@given(st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans()), max_size=30))
def test_against_brute_force(changes: list[tuple[str, bool]]) -> None:
    retained, kept = RetainedMessages(100), dict[str, bytes]()
    for number, (topic, keeps) in enumerate(changes):
        if keeps:
            kept[topic] = str(number).encode()
            assert retained.put(Message(topic, kept[topic], retain=True))
        else:
            assert retained.remove(topic) == (kept.pop(topic, None) is not None)
        assert len(retained) == len(kept)
    for topic_filter in FILTERS:
        matched = retained.match(topic_filter)
        expected = {topic for topic in kept if topic_matches(topic_filter, topic)}
        assert {message.topic for message in matched} == expected
        assert len(matched) == len(expected)
        assert all(kept[message.topic] == message.payload for message in matched)
    for topic in TOPICS:
        message = retained.get(topic)
        assert (message and message.payload) == kept.get(topic)


def test_the_limit_refuses_new_topics_only() -> None:
    retained = RetainedMessages(2)
    assert retained.put(Message("a", b"1"))
    assert retained.put(Message("b", b"1"))
    assert not retained.put(Message("c", b"1"))
    assert retained.put(Message("a", b"2"))
    assert retained.remove("b")
    assert retained.put(Message("c", b"1"))


def test_unused_branches_go() -> None:
    retained = RetainedMessages(10)
    retained.put(Message("a/b/c/d", b"1"))
    retained.put(Message("a/b", b"1"))
    retained.remove("a/b/c/d")
    assert retained.get("a/b") is not None
    retained.remove("a/b")
    assert retained._root.children == {}
