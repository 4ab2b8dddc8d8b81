"""The properties by which a producer names itself and numbers its message."""

import pytest

from penstock.engine.values.producer_properties import (
    NAME_CHARACTERS_MAX,
    PRODUCER,
    SEQUENCE,
    producer_of,
    sequence_of,
)
from penstock.protocol.properties import Properties

NAME = (PRODUCER, "p")


def given(*pairs: tuple[str, str]) -> Properties:
    return Properties(user_properties=list(pairs))


def test_a_name_and_a_number_are_taken_whatever_stands_beside_them() -> None:
    found = sequence_of(given(("other", "x"), (SEQUENCE, "0042"), NAME))
    assert found is not None
    assert (found.name, found.sequence, found.mistake) == ("p", 42, "")


@pytest.mark.parametrize("properties", [None, Properties(), given(("other", "x"))])
def test_without_the_properties_there_is_no_producer(properties: Properties | None) -> None:
    assert sequence_of(properties) is None
    assert producer_of(properties) == ""


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([NAME], "once each"),
        ([(SEQUENCE, "1")], "once each"),
        ([NAME, NAME, (SEQUENCE, "1")], "once each"),
        ([NAME, (SEQUENCE, "1"), (SEQUENCE, "1")], "once each"),
        ([(PRODUCER, ""), (SEQUENCE, "1")], "1 to 256 characters"),
        ([(PRODUCER, "x" * (NAME_CHARACTERS_MAX + 1)), (SEQUENCE, "1")], "1 to 256 characters"),
        ([NAME, (SEQUENCE, "")], "must be a number"),
        ([NAME, (SEQUENCE, "-1")], "must be a number"),
        ([NAME, (SEQUENCE, "1.0")], "must be a number"),
        ([NAME, (SEQUENCE, "٣")], "must be a number"),
        ([NAME, (SEQUENCE, "9" * 19)], "must be a number"),
    ],
)
def test_a_mistake_is_a_sentence(pairs: list[tuple[str, str]], said: str) -> None:
    found = sequence_of(given(*pairs))
    assert found is not None
    assert said in found.mistake


def test_the_longest_name_and_number_are_taken() -> None:
    name = "x" * NAME_CHARACTERS_MAX
    found = sequence_of(given((PRODUCER, name), (SEQUENCE, "9" * 18)))
    assert found is not None
    assert (found.name, found.sequence, found.mistake) == (name, 10**18 - 1, "")


def test_a_connect_names_one_producer_or_none() -> None:
    assert producer_of(given(NAME)) == "p"
    assert producer_of(given(NAME, NAME)) == ""
    assert producer_of(given((PRODUCER, ""))) == ""
