"""Reasons to drop a message: each has its words and its name."""

from penstock.engine.values import drop_reasons
from penstock.engine.values.drop_reasons import REASONS, SLUGS


def test_every_reason_has_its_words_and_its_name() -> None:
    numbers = [value for value in vars(drop_reasons).values() if isinstance(value, int)]
    assert sorted(numbers) == list(range(len(REASONS)))
    assert len(set(REASONS)) == len(REASONS)
    assert [words.lower().replace(" ", "_") for words in REASONS] == list(SLUGS)
