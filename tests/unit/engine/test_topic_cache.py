"""Answers by topic: remembered within bounds."""

from penstock.engine.values.topic_cache import LONG_TOPIC_CHARACTERS, TopicCache


def test_an_answer_is_remembered() -> None:
    answers = TopicCache(10)
    answers.put("a", 1)
    answers.put("b", 0)
    assert answers.numbers == {"a": 1, "b": 0}


def test_the_cache_is_bounded_by_topics() -> None:
    answers = TopicCache(10)
    for number in range(100):
        answers.put(str(number), number)
        assert answers.numbers[str(number)] == number
        assert len(answers.numbers) <= 10


def test_the_cache_is_bounded_by_characters() -> None:
    answers = TopicCache(1000, 5000)
    for number in range(1000):
        answers.put(f"{number:0900}", number)
        assert sum(map(len, answers.numbers)) <= 5000


def test_a_long_topic_is_not_remembered() -> None:
    answers = TopicCache(10)
    answers.put("x" * LONG_TOPIC_CHARACTERS, 1)
    assert answers.numbers == {}


def test_nothing_is_left_when_it_is_cleared() -> None:
    answers = TopicCache(10, 100)
    for _ in range(5):
        answers.put("x" * 60, 1)
        answers.clear()
    answers.put("y" * 60, 1)
    assert answers.numbers == {"y" * 60: 1}
