"""A server of the log is judged by what it has, not by whether its process lives."""

from __future__ import annotations

import pytest

from penstock.cluster.server_health import (
    CRASHES_MAX,
    REFILL_S,
    RESTART_S,
    Judgement,
    Remedy,
    ServerJudge,
    ServerLook,
)

STEP_S = 2.0
GOOD = ServerLook(answers=True, has_log=True, first=90, last=100, log_goes_on=True)
END = 100


class Judged:
    """A judge with a clock."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.judge = ServerJudge(self.now_s)

    def look(self, look: ServerLook, end: int = END) -> Judgement:
        """The judgement, two seconds later."""
        self.now_s += STEP_S
        return self.judge.judge(look, end, self.now_s)

    def until(self, remedy: Remedy, look: ServerLook, end: int = END) -> float:
        """The seconds until this is the remedy."""
        began_s = self.now_s
        while self.now_s < began_s + 10_000:
            if self.look(look, end).remedy is remedy:
                return self.now_s - began_s
        raise AssertionError(f"never {remedy}")


def test_a_server_that_has_what_the_view_had_at_the_look_before_is_whole() -> None:
    judged = Judged()
    assert judged.look(GOOD).health == "whole"
    assert judged.look(GOOD, end=130).health == "whole"
    assert judged.look(GOOD, end=130) == Judgement(
        "behind", "its copy ends at 100, and the log at 130 or behind"
    )
    assert judged.look(GOOD._replace(last=130), end=150).health == "whole"


def test_a_server_that_is_to_keep_no_copy_is_left_alone() -> None:
    """One of four machines: the log has three copies."""
    judged = Judged()
    spare = ServerLook(answers=True, is_spare=True, log_goes_on=True)
    for _ in range(100):
        assert judged.look(spare) == Judgement("spare")


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (GOOD._replace(missing=119), "119 entries are missing in the middle of its copy"),
        (GOOD._replace(first=95, first_elsewhere=90), "its copy begins at 95, and that of others"),
        (GOOD._replace(changed="entry 93 of its copy is another"), "entry 93 of its copy"),
    ],
)
def test_damage_that_two_looks_find_is_damage_and_not_time_decides(
    look: ServerLook, why: str
) -> None:
    judged = Judged()
    assert judged.look(look).remedy is Remedy.NONE
    assert judged.look(GOOD).health == "whole"
    assert judged.look(look).health == "behind"
    found = judged.look(look)
    assert (found.health, found.remedy) == ("damaged", Remedy.REFILL)
    assert why in found.why


@pytest.mark.parametrize(
    "look",
    [
        ServerLook(log_goes_on=True),
        ServerLook(answers=True, log_goes_on=True),
        GOOD._replace(last=60),
    ],
    ids=["silent", "without-the-log", "behind"],
)
def test_a_living_server_without_progress_is_restarted_once_and_then_filled_anew(
    look: ServerLook,
) -> None:
    judged = Judged()
    assert judged.look(GOOD).health == "whole"
    assert judged.until(Remedy.RESTART, look) >= RESTART_S
    judged.judge.note_restart()
    assert judged.until(Remedy.REFILL, look) >= REFILL_S
    assert judged.look(look).health == "lost"
    judged.judge.note_refill(0)
    assert judged.look(look).remedy is Remedy.NONE
    assert judged.look(GOOD).health == "whole"


def test_a_server_that_catches_up_is_left_alone_however_long_it_takes() -> None:
    judged = Judged()
    for last in range(0, 10_000, 10):
        assert judged.look(GOOD._replace(last=last), end=20_000).remedy is Remedy.NONE


def test_nothing_is_done_while_the_log_has_no_majority() -> None:
    judged = Judged()
    for _ in range(200):
        look = ServerLook(crashes=9, log_goes_on=False)
        assert judged.look(look).remedy is Remedy.NONE


def test_a_machine_that_was_paused_is_not_judged_by_the_time_that_it_missed() -> None:
    judged = Judged()
    judged.look(ServerLook(log_goes_on=True))
    judged.now_s += 3600
    assert judged.look(ServerLook(log_goes_on=True)).remedy is Remedy.NONE


def test_a_server_that_ends_over_its_data_again_and_again_is_filled_anew() -> None:
    judged = Judged()
    judged.look(GOOD._replace(crashes=5))
    look = ServerLook(log_goes_on=True)
    assert judged.look(look._replace(crashes=5 + CRASHES_MAX - 1)).remedy is Remedy.NONE
    found = judged.look(look._replace(crashes=5 + CRASHES_MAX))
    assert found == Judgement("lost", "it ended 3 times over its data", Remedy.REFILL)


def test_a_login_that_may_not_ask_leaves_the_health_unknown() -> None:
    assert Judged().look(ServerLook(is_told=False)) == Judgement("unknown")
