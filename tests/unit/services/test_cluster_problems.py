"""The problems of a cluster: each a sentence, and none where all is well."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.cluster.log import Bounds, LogMissing, LogNode, LogState, LogUnavailable
from penstock.cluster.reading import REMEDY
from penstock.control.cluster_requests import MemberState
from penstock.services.cluster_problems import LAG_MAX, problems

PRIMARY = MemberState("a", "primary", 1, 100, 100, 0.0, version="1")
STANDBY = MemberState("b", "standby", 1, 100, 100, 0.2, version="1")
NODES = (LogNode("n1", True, True, 0, 0.0), LogNode("n2", False, True, 0, 0.5))
LOG = LogState("nats", "2.15.1", "n1", NODES, Bounds(90, 100), 4000, True)


def test_a_cluster_in_which_all_is_well_has_none() -> None:
    assert problems([PRIMARY, STANDBY], LOG, 1000) == []


@pytest.mark.parametrize(
    ("members", "log", "sentence"),
    [
        ([replace(PRIMARY, note="its disk is full"), STANDBY], LOG, "a: its disk is full"),
        ([PRIMARY, STANDBY], None, "do not answer this member (it is dark)"),
        ([PRIMARY, STANDBY], LOG._replace(has_quorum=False), "has no majority"),
        (
            [PRIMARY, STANDBY],
            LOG._replace(has_quorum=False, leader=""),
            "log answers, and has no leader: it elects one",
        ),
        (
            [PRIMARY, STANDBY],
            LOG._replace(nodes=(NODES[0], LogNode("n2", False, False, 7, 31.4))),
            "n2 of the cluster's log has not all that is acknowledged, and was last heard 31 s ago",
        ),
        (
            [PRIMARY, STANDBY],
            LOG._replace(nodes=(NODES[0], LogNode("n2", False, False, 7, 0.4))),
            "n2 of the cluster's log is 7 entries behind, and catches up",
        ),
        (
            [PRIMARY, STANDBY],
            LOG._replace(nodes=(NODES[0], LogNode("n2", False, False, 0, None))),
            "the server n2 of the cluster's log does not answer",
        ),
        (
            [PRIMARY, replace(STANDBY, applied=99)],
            LOG._replace(bounds=Bounds(1, 99)),
            "the view of a has come to entry 100, and the cluster's log ends at 99",
        ),
        ([PRIMARY, STANDBY], LOG._replace(bounds=Bounds(1, 1100)), "has 1,100 entries, more than"),
        ([replace(PRIMARY, role="fenced"), STANDBY], LOG, "no member is the primary now"),
        ([PRIMARY], LOG, "only a is heard"),
        (
            [PRIMARY, STANDBY, replace(STANDBY, node="c", heard_s=70.0)],
            LOG,
            "c was not heard for 70 s",
        ),
        (
            [replace(PRIMARY, append_s=0.5), STANDBY],
            LOG,
            "an append to the cluster's log takes 0.50 s, so at most 2.0 commits a second",
        ),
        ([PRIMARY, replace(STANDBY, damaged=3)], LOG, "b was given 3 damaged entries"),
        (
            [PRIMARY, replace(STANDBY, server_note="the server n2 of the log is damaged")],
            LOG,
            "b: the server n2 of the log is damaged",
        ),
        ([PRIMARY, replace(STANDBY, version="2")], LOG, "different versions of Penstock, 1, 2"),
        ([PRIMARY, replace(STANDBY, applied=88)], LOG, "the view of b ends at 88, and the log"),
    ],
)
def test_each_problem_is_one_sentence(
    members: list[MemberState], log: LogState | None, sentence: str
) -> None:
    (found,) = problems(members, log, 1000, LogUnavailable("it is dark"))
    assert sentence in found


def test_a_log_that_is_gone_is_told_apart_from_one_that_is_not_created_yet() -> None:
    gone = LogMissing("stream not found")
    (found,) = problems([PRIMARY, replace(STANDBY, applied=98)], None, 1000, gone)
    assert "have no log of this name (stream not found), and the view of a" in found
    new = [replace(PRIMARY, applied=0), replace(STANDBY, applied=0)]
    (found,) = problems(new, None, 1000, gone)
    assert "is not created yet (stream not found)" in found


def test_members_that_report_the_same_are_told_in_one_sentence() -> None:
    full = "its disk is full"
    members = [
        replace(PRIMARY, note=full, server_note="n1 is lost"),
        replace(STANDBY, note="it takes a copy of the view of a"),
        replace(STANDBY, node="c", note=full, server_note="n1 is lost"),
    ]
    assert problems(members, LOG, 1000) == [
        "a, c: its disk is full",
        "b: it takes a copy of the view of a",
        "a, c: n1 is lost",
    ]


def test_a_log_that_is_gone_is_told_once() -> None:
    """Members that cannot read it are heard by way of its servers; one that is silent may have
    another reason."""
    unread = replace(STANDBY, note="the cluster's log cannot be reached: no replica answers")
    members = [PRIMARY, unread, replace(unread, node="c")]
    (found,) = problems(members, None, 1000, LogMissing("stream not found"))
    assert "have no log of this name (stream not found)" in found
    silent = replace(unread, node="c", heard_s=9.0)
    found, *rest = problems([PRIMARY, unread, silent], None, 1000, LogMissing("stream not found"))
    assert found == "c: the cluster's log cannot be reached: no replica answers"
    assert sum("cluster's log" in sentence for sentence in rest) == 1
    assert problems(members, LOG, 1000) == [
        "b, c: the cluster's log cannot be reached: no replica answers"
    ], "of a log that is there it is a problem of theirs"


def test_a_log_that_lost_entries_is_told_once() -> None:
    lost = LOG._replace(bounds=Bounds(1, 90))
    (found,) = problems([PRIMARY, replace(STANDBY, applied=98)], lost, 1000)
    assert (
        "the view of a has come to entry 100, that of b to entry 98, and the cluster's log ends at"
        " 90, so nothing is acknowledged: the log lost entries" in found
    )
    note = f"the view has come to entry 100 of the replicated log, which ends at 90: {REMEDY}"
    members = [replace(PRIMARY, role="waiting", note=note), replace(STANDBY, note=note)]
    assert [one for one in problems(members, lost, 1000) if REMEDY in one] == [f"a, b: {note}"]


def test_a_leader_that_may_be_deposed_says_nothing_about_views() -> None:
    """It says for ten seconds that the log ends where it did when it was cut off."""
    deposed = LOG._replace(bounds=Bounds(1, 50), has_quorum=False)
    (found,) = problems([PRIMARY, STANDBY], deposed, 1000)
    assert "has no majority" in found


def test_a_view_that_is_far_behind_is_told() -> None:
    last = 100 + LAG_MAX + 1
    log = LOG._replace(bounds=Bounds(90, last))
    (found,) = problems([replace(PRIMARY, applied=last), STANDBY], log, 1_000_000)
    assert f"the view of b is {last - 100:,} entries behind" in found


def test_a_primary_that_was_last_heard_long_ago_is_none() -> None:
    found = problems([replace(PRIMARY, heard_s=9.0), STANDBY], LOG, 1000)
    assert any("no member is the primary now" in sentence for sentence in found)
