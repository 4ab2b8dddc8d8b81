"""The problems of a cluster, each a sentence with the fact and the remedy. Pure.

A fact is told once, with the names of the members that report it: what is wrong with the log, all
members report.

docs/cluster.md explains each problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.cluster.log import LogMissing, LogState, majority_answers
from penstock.cluster.reading import REMEDY, UNREACHABLE
from penstock.control.cluster_requests import SILENT_S, MemberState

SLOW_APPEND_S: Final = 0.2
"""Time of an append to the log, in seconds, from which on it is reported as a problem."""

LAG_MAX: Final = 10_000
"""Lag of a view, in entries, above which it is reported as a problem."""


def problems(
    members: Sequence[MemberState],
    log: LogState | None,
    entries_max: int,
    log_error: Exception | None = None,
) -> list[str]:
    """Return the problems that an operator should look at, a sentence each; none if all is well.

    Args:
        members: the members, as one of them saw them before it asked for the state of the log.
        log: the state of the log; None if it does not answer.
        entries_max: entries that the log keeps for a member that does not run.
        log_error: the reason why ``log`` is None.
    """
    is_missing = isinstance(log_error, LogMissing)
    notes = [(one.node, one.note) for one in members if not (is_missing and _cannot_read_log(one))]
    found = [*_told_once(notes), *_told_once([(one.node, one.server_note) for one in members])]
    if isinstance(log_error, LogMissing):
        found += _missing_log_problems(members, log_error)
    else:
        found += _log_problems(log, entries_max, log_error)
    found += _member_problems(members)
    if log is not None:
        found += _lost_entries_problems(members, log)
        for one in members:
            found += _view_problems(one, log, entries_max)
    return found


def _told_once(notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each note once, behind the names of the members that have it.

    Args:
        notes: pairs of a member's name and its note, which is empty for none.
    """
    nodes: dict[str, list[str]] = {}
    for node, note in notes:
        if note:
            nodes.setdefault(note, []).append(node)
    for note, names in nodes.items():
        yield f"{', '.join(names)}: {note}"


def _cannot_read_log(member: MemberState) -> bool:
    """Return whether ``member`` says that it cannot read the log, although it reaches its servers:
    its heartbeats come by way of them."""
    return member.note.startswith(UNREACHABLE) and not member.is_silent


def _missing_log_problems(members: Sequence[MemberState], error: LogMissing) -> Iterator[str]:
    newest = max(members, key=lambda one: one.applied)
    if not newest.applied:
        yield f"the cluster's log is not created yet ({error}): a member creates it in a moment"
        return
    yield (
        f"the servers of the cluster's log have no log of this name ({error}), and the view of"
        f" {newest.node} has come to entry {newest.applied:,}, so nothing is acknowledged: {REMEDY}"
    )


def _log_problems(
    log: LogState | None, entries_max: int, log_error: Exception | None
) -> Iterator[str]:
    if log is None:
        reason = "" if log_error is None else f" ({log_error})"
        yield (
            f"the servers of the cluster's log do not answer this member{reason}: look at them, and"
            " at the network between; without a majority of them nothing is acknowledged"
        )
        return
    if (
        not log.has_quorum
        and not log.leader
        and majority_answers([node.seen_s for node in log.nodes])
    ):
        yield (
            "a majority of the servers of the cluster's log answers, and has no leader: it elects"
            " one, and until then, a second or a few, nothing is acknowledged. If this stays, look"
            " at the network between the servers, and at their logs"
        )
    elif not log.has_quorum:
        yield (
            "the cluster's log has no majority: nothing can be acknowledged. Start the servers that"
            " are missing"
        )
    for node in log.nodes:
        if node.seen_s is None:
            yield (
                f"the server {node.name} of the cluster's log does not answer: start it, or look at"
                " its network; if another one is lost meanwhile, nothing is acknowledged"
            )
        elif not node.is_current and node.seen_s <= SILENT_S:
            yield (
                f"the server {node.name} of the cluster's log is {node.lag:,} entries behind, and"
                " catches up; if another one is lost meanwhile, nothing is acknowledged"
            )
        elif not node.is_current:
            yield (
                f"the server {node.name} of the cluster's log has not all that is acknowledged, and"
                f" was last heard {node.seen_s:.0f} s ago: start it, or look at its disk and its"
                " network; if another one is lost meanwhile, nothing is acknowledged"
            )
    entries = log.bounds.last - log.bounds.first + 1
    if entries > entries_max:
        yield (
            f"the cluster's log has {entries:,} entries, more than cluster.log_entries_max"
            f" ({entries_max:,}), because fewer than two views have them: start the members that"
            " are away"
        )


def _member_problems(members: Sequence[MemberState]) -> Iterator[str]:
    heard = [one for one in members if not one.is_silent]
    primaries = [one.node for one in heard if one.role == "primary"]
    if not primaries:
        yield (
            "no member is the primary now, and clients are not served: a standby takes over within"
            " seconds if the log has a majority; if none does, look at the members' logs"
        )
    if len(heard) < 2:
        yield (
            f"only {heard[0].node if heard else 'no member'} is heard: nobody could take over, and"
            " nothing is removed from the log. Start the other members"
        )
    for one in members:
        if one.is_silent:
            yield (
                f"{one.node} was not heard for {one.heard_s:.0f} s: start it, or look at its"
                " network; a member that is gone for good is forgotten after an hour"
            )
        if one.append_s >= SLOW_APPEND_S:
            yield (
                f"an append to the cluster's log takes {one.append_s:.2f} s, so at most"
                f" {1 / one.append_s:.1f} commits a second are acknowledged, each with all messages"
                " that wait: look at the round trip between the machines, and at the disks of the"
                " log's servers"
            )
        if one.damaged:
            yield (
                f"{one.node} was given {one.damaged:,} damaged entries of the log since its start,"
                " and got them elsewhere: 'penstock doctor' says which server's copy has holes;"
                " look at its disk"
            )
    versions = sorted({one.version for one in heard})
    if len(versions) > 1:
        yield (
            f"members run different versions of Penstock, {', '.join(versions)}: go on with the"
            " update, the primary last"
        )


def _lost_entries_problems(members: Sequence[MemberState], log: LogState) -> Iterator[str]:
    """Yield the problem that views are ahead of the log, without those whose members report it."""
    if not log.has_quorum:
        return
    last = log.bounds.last
    ahead = [one for one in members if one.applied > last and REMEDY not in one.note]
    if ahead:
        views = [f"that of {one.node} to entry {one.applied:,}" for one in ahead[1:]]
        views.insert(0, f"the view of {ahead[0].node} has come to entry {ahead[0].applied:,}")
        yield (
            f"{', '.join(views)}, and the cluster's log ends at {last:,}, so nothing is"
            f" acknowledged: {REMEDY}"
        )


def _view_problems(one: MemberState, log: LogState, entries_max: int) -> Iterator[str]:
    first, last = log.bounds
    if one.applied + 1 < first:
        yield (
            f"the view of {one.node} ends at {one.applied:,}, and the log begins at {first:,}: it"
            " is seeded from another member when it runs"
        )
    elif last - one.applied > LAG_MAX:
        yield (
            f"the view of {one.node} is {last - one.applied:,} entries behind the log: it is fast"
            " enough if that becomes less; beyond"
            f" {entries_max:,} it is seeded from another member"
        )
