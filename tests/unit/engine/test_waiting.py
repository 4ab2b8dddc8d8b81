"""What waits for a later turn: each is resumed once in it, and never at once."""

from typing import final

from penstock.engine.values.clock import Now
from penstock.engine.waiting import Resumable, Waiting

NOW = Now(0.0, 0)


@final
class Noted(Resumable):
    """Notes its name when it is resumed, and may wait again."""

    def __init__(self, name: str, resumed: list[str], waits_again: Waiting | None = None) -> None:
        super().__init__()
        self._name = name
        self._resumed = resumed
        self._waits_again = waits_again

    def resume(self, now: Now) -> None:
        del now
        self._resumed.append(self._name)
        if self._waits_again is not None:
            self._waits_again.until_turn(self)


def test_a_connection_that_is_woken_often_is_resumed_once_in_a_turn() -> None:
    waiting, resumed = Waiting(), list[str]()
    one = Noted("a", resumed)
    for _ in range(3):
        waiting.until_turn(one)
    waiting.until_turn(None)
    assert (resumed, waiting.has_turn) == ([], True)
    assert waiting.resume(NOW) == [one]
    assert (resumed, waiting.has_turn) == (["a"], False)
    waiting.until_turn(one)
    waiting.resume(NOW)
    assert resumed == ["a", "a"]


def test_a_connection_that_waits_again_while_it_is_resumed_has_the_next_turn() -> None:
    waiting, resumed = Waiting(), list[str]()
    waiting.until_turn(Noted("a", resumed, waiting))
    for turn in range(1, 4):
        waiting.resume(NOW)
        assert (len(resumed), waiting.has_turn) == (turn, True)


def test_a_tick_wakes_those_that_wait_for_it_once() -> None:
    waiting, resumed = Waiting(), list[str]()
    one = Noted("a", resumed)
    waiting.until_tick(one)
    waiting.until_tick(one)
    assert not waiting.has_turn
    waiting.tick()
    waiting.resume(NOW)
    assert resumed == ["a"]
    waiting.tick()
    assert not waiting.has_turn


def test_a_seal_wakes_those_first_that_are_to_be_first() -> None:
    waiting, resumed = Waiting(), list[str]()
    waiting.until_sealed(Noted("a", resumed))
    waiting.first_until_sealed(Noted("b", resumed))
    waiting.until_sealed(Noted("c", resumed))
    waiting.tick()
    assert (waiting.has_seal, waiting.has_turn) == (True, False)
    waiting.sealed()
    assert (waiting.has_seal, resumed) == (False, [])
    waiting.resume(NOW)
    assert resumed == ["b", "a", "c"]
    waiting.sealed()
    assert not waiting.has_turn


def test_a_connection_that_found_room_is_told_of_in_the_next_turn_and_not_resumed_again() -> None:
    waiting, resumed = Waiting(), list[str]()
    found, woken = Noted("a", resumed), Noted("b", resumed)
    waiting.note_resumed(found)
    waiting.until_turn(woken)
    assert waiting.resume(NOW) == [woken, found]
    assert resumed == ["b"]
    assert waiting.resume(NOW) == []
