"""One member at a time fills its server anew, and only while the others have everything."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.cluster.beats import Beat
from penstock.cluster.log import Bounds, LogNode, LogState
from penstock.cluster.refilling import (
    STOPPED_S_MAX,
    Grant,
    Refill,
    Step,
    decode_grant,
    encode_grant,
    next_grant,
)
from penstock.cluster.server_health import Judgement, Remedy

CLAIMED = 40
WHOLE = Judgement("whole")
DAMAGED = Judgement("damaged", "a hole", Remedy.REFILL)


def beat(node: str, health: str = "whole", refill: str = "", number: int = 0) -> Beat:
    return Beat(
        node=node,
        role="standby",
        term=3,
        applied=50,
        synced=50,
        log_server=f"n-{node}",
        server_health=health,
        refill=refill,
        refill_number=number,
    )


def heard(*beats: Beat) -> dict[str, Beat]:
    return {one.node: one for one in beats}


def state(leader: str = "n-a", behind: str = "", servers: str = "abc") -> LogState:
    nodes = tuple(
        LogNode(f"n-{one}", f"n-{one}" == leader, f"n-{one}" != behind, 0, 0.1) for one in servers
    )
    return LogState("nats", "", leader, nodes, Bounds(1, 50), 0, True)


A, B, WANTS = beat("a"), beat("b"), beat("c", "damaged", "wanted")


def test_a_wish_is_granted_while_all_others_are_whole() -> None:
    assert next_grant(Grant(), heard(A, B, WANTS), state(), CLAIMED) == Grant(1, "c")
    assert next_grant(Grant(), heard(A, B), state(), CLAIMED) is None


@pytest.mark.parametrize(
    ("beats", "seen"),
    [
        (heard(A, WANTS), state()),
        (heard(A, beat("b", "behind"), WANTS), state()),
        (heard(A, beat("b", "unknown"), WANTS), state()),
        (heard(A, B, WANTS), state(behind="n-b")),
        (heard(A, B, WANTS), state(leader="n-c")),
        (heard(A, B, WANTS), state()._replace(has_quorum=False)),
        (heard(A, replace(B, applied=CLAIMED - 1), WANTS), state()),
        (heard(A, B, replace(WANTS, applied=CLAIMED - 1)), state()),
        (heard(A, B, WANTS), state(servers="abcde")),
    ],
    ids=[
        "another-is-silent",
        "another-is-behind",
        "of-another-nothing-is-known",
        "another-is-not-current",
        "it-leads-itself",
        "no-majority",
        "another-has-not-read-the-claim",
        "it-has-not-read-the-claim",
        "of-five-only-two-are-known",
    ],
)
def test_a_wish_is_not_granted_otherwise(beats: dict[str, Beat], seen: LogState) -> None:
    assert next_grant(Grant(), beats, seen, CLAIMED) is None


def test_two_that_wish_at_once_have_to_wait_for_each_other() -> None:
    five = state(servers="abcde")
    others = heard(A, B, WANTS, beat("d", "damaged", "wanted"), beat("e"))
    assert next_grant(Grant(), others, five, CLAIMED) == Grant(1, "c")
    for stage in ("stopping", "refilling"):
        under_way = others | heard(beat("c", "behind", stage, 1))
        assert next_grant(Grant(1, "c"), under_way, five, CLAIMED) is None
        assert next_grant(Grant(1, "c", True), under_way, five, CLAIMED) is None
    done = others | heard(beat("c", "whole", "", 1))
    assert next_grant(Grant(1, "c", True), done, five, CLAIMED) == Grant(2, "d")


def test_a_grant_that_its_holder_has_not_read_holds_up_all_others() -> None:
    assert next_grant(Grant(7, "b"), heard(A, B, WANTS), state(), CLAIMED) is None
    assert next_grant(Grant(7, "b"), heard(A, replace(B, refill_number=7), WANTS), state(), 40)


def test_a_refill_begins_only_when_its_member_has_stopped_and_the_others_are_still_whole() -> None:
    last, stopped = Grant(4, "c"), beat("c", "silent", "stopped", 4)
    assert next_grant(last, heard(A, B, stopped), state(), CLAIMED) == Grant(4, "c", True)
    assert next_grant(Grant(4, "c", True), heard(A, B, stopped), state(), CLAIMED) is None
    lame = heard(A, beat("b", "behind"), stopped)
    assert next_grant(last, lame, state(), CLAIMED) is None


def test_the_whole_way_of_a_member() -> None:
    refill = Refill("c")
    assert refill.step(DAMAGED, Grant(3, "b"), 0) is Step.NOTHING
    assert (refill.stage, refill.number) == ("wanted", 0)
    assert refill.step(DAMAGED, Grant(4, "c"), 1) is Step.STOP
    refill.note_stopped(2)
    assert refill.step(WHOLE, Grant(4, "c"), 3) is Step.NOTHING
    assert refill.stage == "stopped"
    assert refill.step(WHOLE, Grant(4, "c", True), 4) is Step.BEGIN
    assert refill.step(Judgement("behind"), Grant(4, "c", True), 5) is Step.NOTHING
    assert (refill.stage, refill.number) == ("refilling", 4)
    assert refill.step(WHOLE, Grant(4, "c", True), 6) is Step.NOTHING
    assert (refill.stage, refill.number) == ("", 4)


def test_a_server_that_is_whole_by_itself_gives_its_wish_up_and_a_late_grant_is_void() -> None:
    refill = Refill("c")
    refill.step(DAMAGED, Grant(), 0)
    refill.step(WHOLE, Grant(), 1)
    assert refill.step(WHOLE, Grant(1, "c"), 2) is Step.NOTHING
    assert (refill.stage, refill.number) == ("", 1)
    assert refill.step(WHOLE, Grant(1, "c", True), 3) is Step.NOTHING


def test_a_grant_from_before_the_members_start_is_void() -> None:
    refill = Refill("c")
    assert refill.step(DAMAGED, Grant(9, "c", True), 0) is Step.NOTHING
    assert (refill.stage, refill.number) == ("wanted", 9)
    assert refill.step(DAMAGED, Grant(9, "c", True), 1) is Step.NOTHING
    assert refill.step(DAMAGED, Grant(10, "c"), 2) is Step.STOP


def test_a_stopped_server_starts_again_as_it_is_if_the_second_grant_does_not_come() -> None:
    refill = Refill("c")
    refill.step(DAMAGED, Grant(), 0)
    refill.step(DAMAGED, Grant(1, "c"), 1)
    refill.note_stopped(10)
    assert refill.step(WHOLE, Grant(1, "c"), 10 + STOPPED_S_MAX - 1) is Step.NOTHING
    assert refill.step(WHOLE, Grant(1, "c"), 10 + STOPPED_S_MAX) is Step.START
    assert refill.step(WHOLE, Grant(1, "c", True), 50) is Step.NOTHING


@pytest.mark.parametrize("grant", [Grant(), Grant(12, "machine-c"), Grant(12, "c", True)])
def test_a_grant_is_what_it_was_before_it_was_stored(grant: Grant) -> None:
    assert decode_grant(encode_grant(grant) if grant.node else None) == grant


def test_bytes_of_a_later_version_are_no_grant() -> None:
    for data in (b"1 c later", b"one c stop", b"1 c", b"\xff", b""):
        assert decode_grant(data) == Grant()
