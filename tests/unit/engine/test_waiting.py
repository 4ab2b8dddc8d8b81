"""What waits for a later turn: each is resumed once in it, and never at once."""

from typing import final

import pytest

from penstock.engine.values.clock import Now
from penstock.engine.waiting import Resumable, Waiting
from penstock.version import build_kind

NOW = Now(0.0, 0)


def test_a_connection_that_is_woken_often_is_resumed_once_in_a_turn() -> None:
    waiting, one = Waiting(), Resumable()
    for _ in range(3):
        waiting.until_turn(one)
    waiting.until_turn(None)
    for _ in range(2):
        assert waiting.resume(NOW) == [one]
        assert waiting.resume(NOW) == []
        waiting.until_turn(one)


def test_a_tick_wakes_those_that_wait_for_it_once() -> None:
    waiting, one, other = Waiting(), Resumable(), Resumable()
    for _ in range(2):
        waiting.until_tick(one)
    waiting.until_tick(other)
    assert waiting.resume(NOW) == []
    waiting.tick()
    assert waiting.resume(NOW) == [one, other]
    waiting.tick()
    assert waiting.resume(NOW) == []


def test_a_seal_wakes_those_first_that_are_to_be_first() -> None:
    waiting = Waiting()
    one, first, other = Resumable(), Resumable(), Resumable()
    waiting.until_sealed(one)
    waiting.first_until_sealed(first)
    waiting.until_sealed(other)
    waiting.tick()
    assert waiting.resume(NOW) == []
    waiting.sealed()
    assert not waiting.has_seal
    assert waiting.resume(NOW) == [first, one, other]
    waiting.sealed()
    assert waiting.resume(NOW) == []


def test_somebody_waits_for_the_seal_whoever_it_is() -> None:
    waiting = Waiting()
    for wait in (waiting.until_sealed, waiting.first_until_sealed):
        before = waiting.has_seal
        wait(Resumable())
        assert (before, waiting.has_seal) == (False, True)
        waiting.sealed()


def test_a_connection_that_found_room_is_told_of_in_the_next_turn() -> None:
    waiting, found, woken = Waiting(), Resumable(), Resumable()
    waiting.note_resumed(found)
    assert not waiting.has_turn
    waiting.until_turn(woken)
    assert waiting.resume(NOW) == [woken, found]
    assert waiting.resume(NOW) == []


@pytest.mark.skipif(build_kind() == "compiled", reason="compiled ports have no other bodies")
def test_a_connection_that_waits_again_while_it_is_resumed_has_the_next_turn() -> None:
    @final
    class Again(Resumable):
        """Waits for the next turn whenever it has one."""

        turns = 0

        def resume(self, now: Now) -> None:
            del now
            self.turns += 1
            waiting.until_turn(self)

    waiting, one = Waiting(), Again()
    waiting.until_turn(one)
    for turn in range(1, 4):
        assert waiting.resume(NOW) == [one]
        assert (one.turns, waiting.has_turn) == (turn, True)
