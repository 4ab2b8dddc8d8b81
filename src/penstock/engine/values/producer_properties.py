"""The user properties of a PUBLISH that name a producer and number its message (``producers``)."""

from __future__ import annotations

from typing import Final, final

from penstock.protocol.properties import Properties

PRODUCER: Final = "penstock-producer"
SEQUENCE: Final = "penstock-sequence"
NAME_CHARACTERS_MAX: Final = 256
_DIGITS_MAX: Final = 18


@final
class ProducerSequence:
    """The producer and number of a PUBLISH; ``mistake`` is one sentence if they are invalid, else
    empty; ``mark`` is stored with the number (``ProducerRecord``)."""

    def __init__(self, name: str, sequence: int, mistake: str = "", mark: str = "") -> None:
        self.name = name
        self.sequence = sequence
        self.mistake = mistake
        self.mark = mark


def sequence_of(properties: Properties | None) -> ProducerSequence | None:
    """Return the producer's name and number in the properties of a PUBLISH; None if it has
    none."""
    if properties is None or properties.user_properties is None:
        return None
    names = _values(properties.user_properties, PRODUCER)
    sequences = _values(properties.user_properties, SEQUENCE)
    if not names and not sequences:
        return None
    if len(names) != 1 or len(sequences) != 1:
        return ProducerSequence("", 0, f"{PRODUCER} and {SEQUENCE} must stand in it once each")
    name, digits = names[0], sequences[0]
    if not _is_name(name):
        return ProducerSequence(
            "", 0, f"{PRODUCER} must have 1 to {NAME_CHARACTERS_MAX} characters"
        )
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        return ProducerSequence(
            name, 0, f"{SEQUENCE} must be a number from 1 to 10^{_DIGITS_MAX} - 1"
        )
    return ProducerSequence(name, int(digits))


def producer_of(properties: Properties | None) -> str:
    """Return the name of the producer in the properties of a CONNECT; empty if it has none."""
    if properties is None or properties.user_properties is None:
        return ""
    names = _values(properties.user_properties, PRODUCER)
    return names[0] if len(names) == 1 and _is_name(names[0]) else ""


def _values(user_properties: list[tuple[str, str]], wanted: str) -> list[str]:
    found: list[str] = []
    for name, value in user_properties:
        if name == wanted:
            found.append(value)
    return found


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARACTERS_MAX
