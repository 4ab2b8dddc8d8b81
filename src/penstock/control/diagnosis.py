"""The likeliest reason why a client does not get the messages that it should.

::

      facts of the broker (Explanation) ─╮
      last messages in the log ──────────┴▶ CAUSES, one after the other ─▶ the first diagnosis

The order is that in which obstacles stop a message: is there such a client, does it subscribe to
the topic, may it receive the topic, is anything published there, does the client accept messages. A
cause is a function from the facts to a ``Diagnosis``, or to None where the facts exclude it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.control.explanation import Explanation

IN_FLIGHT: Final = "in_flight"
WAITING: Final = "waiting"
IN_GROUP: Final = "in_group"
DROPPED: Final = "dropped:"


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message of the topic in the log.

    Attributes:
        offset: its offset in the log.
        received_at_us: when the broker received it, µs since the Unix epoch.
        client_id: the client identifier of its publisher.
        qos: the QoS with which it was published.
    """

    offset: int
    received_at_us: int
    client_id: str
    qos: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likeliest reason, and a remedy; each one sentence."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Case:
    """The facts about one client and a topic, and the topic's last messages.

    Attributes:
        facts: the facts that the broker gave.
        messages: the last messages of the topic, the newest first; None: the log was not read.
    """

    facts: Explanation
    messages: Sequence[LoggedMessage] | None = None

    @property
    def client(self) -> str:
        """The client identifier in quotes, for sentences."""
        return repr(self.facts.client_id)

    @property
    def topic(self) -> str:
        """The topic name in quotes, for sentences."""
        return repr(self.facts.topic)

    def is_connected(self) -> bool:
        """Return whether the client is connected."""
        return self.facts.session is not None and bool(self.facts.session["connected"])

    def limit_s(self, limit: str) -> float | None:
        """Return for how many seconds the client has been at a limit; None: it is not at that
        limit."""
        for reached in self.facts.limits:
            if reached.limit == limit:
                return reached.lasts_s
        return None

    def state_of(self, message: LoggedMessage) -> str:
        """Return the state of a message for this client, as in ``Explanation.states``; empty:
        unknown."""
        return self.facts.states.get(str(message.offset), "")


def diagnose(case: Case) -> Diagnosis:
    """Return the diagnosis of the first cause in ``CAUSES`` that applies."""
    for cause in CAUSES:
        diagnosis = cause(case)
        if diagnosis is not None:
            return diagnosis
    return Diagnosis(
        f"nothing stands between {case.client} and its messages",
        f"publish a message, and look again: `penstock why {case.facts.client_id} TOPIC`",
    )


# -- the client ------------------------------------------------------------------------------


def _diagnose_ban(case: Case) -> Diagnosis | None:
    if case.facts.banned_because is None or case.is_connected():
        return None
    return Diagnosis(
        f"{case.client} is banned ({case.facts.banned_because})",
        "lift the ban: `penstock bans lift KIND VALUE`",
    )


def _diagnose_missing_session(case: Case) -> Diagnosis | None:
    if case.facts.session is not None:
        return None
    recorded = case.facts.recorded
    if recorded is not None and recorded.refused:
        refused = recorded.refused[-1]
        times = f"{refused.count:,} times, the last" if refused.count > 1 else "once,"
        return Diagnosis(
            f"the broker has no session of {case.client}: a CONNECT under this name was refused"
            f" {times} at {_utc(refused.last_us)}: {refused.text}",
            "correct the user, the password or the access list that it connects with",
        )
    end = None if recorded is None else recorded.last("disconnected")
    since = "" if end is None else f" when it was disconnected at {_utc(end.last_us)}: {end.text}"
    return Diagnosis(
        f"the broker has no session of {case.client}: it is not connected, and left none{since}",
        "compare the client identifier with `penstock sessions list`, and look in the broker's log"
        " for a refused login; where it should keep its subscriptions while it is away, let it"
        " connect with a session (clean start off, an expiry interval)",
    )


def _diagnose_store_failure(case: Case) -> Diagnosis | None:
    if not case.facts.store_fails:
        return None
    return Diagnosis(
        "the broker cannot write to its disk, so nothing of QoS 1 and 2 is acknowledged or sent",
        "look at the disk and at the broker's log: it goes on by itself once it can write",
    )


# -- the topic -------------------------------------------------------------------------------


def _diagnose_missing_subscription(case: Case) -> Diagnosis | None:
    facts = case.facts
    if not facts.topic or facts.subscriptions:
        return None
    if not facts.filters:
        return Diagnosis(
            f"{case.client} has no subscription at all",
            "let it subscribe; a clean start forgets the subscriptions of the session before",
        )
    nearest = _nearest_filter(facts.topic, facts.filters)
    hint = f"; the nearest is {nearest!r}" if nearest else ""
    return Diagnosis(
        f"none of its {len(facts.filters)} subscriptions matches {case.topic}{hint}",
        "correct the filter: levels and capitals count, `+` is one level, `#` stands last, and"
        " wildcards do not match topics that begin with `$`",
    )


def _diagnose_missing_permission(case: Case) -> Diagnosis | None:
    facts = case.facts
    if not facts.topic or facts.may_receive:
        return None
    rule = f": {facts.receive_rule}" if facts.receive_rule else ""
    return Diagnosis(
        f"{case.client} may not receive {case.topic}{rule}",
        "change the access list and reload it (SIGHUP), or subscribe as another user",
    )


def _diagnose_no_local(case: Case) -> Diagnosis | None:
    subscriptions, messages = case.facts.subscriptions, case.messages
    if not subscriptions or not messages or not all(sub.no_local for sub in subscriptions):
        return None
    if any(message.client_id != case.facts.client_id for message in messages):
        return None
    return Diagnosis(
        f"all recent messages of {case.topic} came from {case.client} itself, which subscribed"
        " with 'no local'",
        "subscribe without 'no local' where it is to get its own messages",
    )


def _diagnose_silent_topic(case: Case) -> Diagnosis | None:
    if not case.facts.topic or case.messages is None or case.messages:
        return None
    may_publish = "" if case.facts.may_publish else f" ({case.client} may not publish there itself)"
    return Diagnosis(
        f"the log has no message of {case.topic} that was published lately{may_publish}",
        "look at the publisher: its topic, its errors, and whether its access list lets it publish"
        " (`penstock why PUBLISHER TOPIC`)",
    )


# -- the delivery to the client ----------------------------------------------------------------


def _diagnose_shared_subscription(case: Case) -> Diagnosis | None:
    facts = case.facts
    for group in facts.groups:
        other_members = [name for name in group.connected_members if name != facts.client_id]
        only_shared = len(facts.groups) == len(facts.subscriptions)
        if only_shared and other_members and not _has_undelivered(case):
            return Diagnosis(
                f"it shares {group.filter!r} with {group.members - 1} others, of which"
                f" {len(other_members)} are connected ({', '.join(other_members[:3])}): each"
                " message goes to one of them",
                "subscribe without $share where every client is to get every message",
            )
    return None


def _diagnose_disconnection(case: Case) -> Diagnosis | None:
    session = case.facts.session
    if session is None or session["connected"]:
        return None
    reason = case.facts.disconnected_because
    because = f" ({reason})" if reason else ""
    waits = f"; {session['queue']:,} messages wait for it" if session["queue"] else ""
    return Diagnosis(
        f"{case.client} is not connected{because}{waits}",
        "find out on the device why it does not come back; QoS 0 is not kept for a client that is"
        " away unless `limits.mqueue_store_qos0` says so",
    )


def _diagnose_full_window(case: Case) -> Diagnosis | None:
    lasts_s = case.limit_s("window")
    session = case.facts.session
    if lasts_s is None or session is None:
        return None
    recorded = case.facts.recorded
    answered = None if recorded is None else recorded.last("acknowledged")
    last = "" if answered is None else f" (the last it did at {_utc(answered.last_us)})"
    return Diagnosis(
        f"its in-flight window is full ({session['window']} of {session['window_size']}) for"
        f" {lasts_s:,.1f} s: it does not acknowledge what it was sent{last}, and"
        f" {session['queue']:,} messages wait",
        "look at the client: its handler blocks, or acknowledgements are manual and missing; a"
        " larger Receive Maximum helps only where it is merely slow",
    )


def _diagnose_unread_socket(case: Case) -> Diagnosis | None:
    lasts_s = case.limit_s("write_buffer")
    if lasts_s is None and case.facts.reads is not False:
        return None
    since = "" if lasts_s is None else f" for {lasts_s:,.1f} s"
    return Diagnosis(
        f"{case.client} has not read from its connection{since}: what it is sent stays in buffers",
        "look at the network and at the client's loop; QoS 0 is dropped meanwhile (slow consumer)",
    )


def _diagnose_drops(case: Case) -> Diagnosis | None:
    facts = case.facts
    lost = [state for state in facts.states.values() if state.startswith(DROPPED)]
    if facts.topic and not lost:
        return None
    drops, last_drops, receiver = facts.drops, facts.last_drops, "for it"
    reason = lost[-1].removeprefix(DROPPED) if lost else ""
    if (reason and reason not in drops) or not drops:
        groups = [group for group in facts.group_drops if not reason or reason in group.drops]
        if groups:
            drops, last_drops = groups[0].drops, groups[0].last_drops
            receiver = f"for the members of {groups[0].filter!r}"
    if not drops:
        return None
    reason = reason or max(drops, key=drops.__getitem__)
    offsets = [drop["offset"] for drop in last_drops if drop["reason"] == reason]
    known = [f"{offset:,}" for offset in offsets if offset >= 0]
    where = f", the last at offset {known[-1]}" if known else ""
    return Diagnosis(
        f"{drops.get(reason, len(lost)):,} messages {receiver} were dropped:"
        f" {reason.replace('_', ' ')}{where}",
        REMEDIES.get(reason, "docs/sys_topics.md explains the reason"),
    )


def _diagnose_waiting_messages(case: Case) -> Diagnosis | None:
    session = case.facts.session
    if session is None or WAITING not in case.facts.states.values():
        return None
    return Diagnosis(
        f"messages of {case.topic} wait in its queue, behind {session['queue']:,} in all",
        "look at how fast the client acknowledges: `penstock flow`",
    )


def _diagnose_delivered_messages(case: Case) -> Diagnosis | None:
    if not case.messages:
        return None
    in_flight = [message for message in case.messages if case.state_of(message) == IN_FLIGHT]
    if in_flight:
        first = in_flight[0]
        return Diagnosis(
            f"the message at offset {first.offset:,} was sent{_sent_when(case, first)}, and"
            f" {case.client} has not acknowledged it yet",
            "look at the client's handler of messages",
        )
    return Diagnosis(
        f"the last {len(case.messages)} messages of {case.topic} left for {case.client} if it was"
        " subscribed when they came: none waits, none was dropped",
        "look into the client (does its callback run?), or whether it subscribed later than offset"
        f" {case.messages[0].offset:,}",
    )


REMEDIES: Final = {
    "queue_full": "let the client read faster, share the subscription among several, or raise"
    " `limits.max_mqueue_len`; `limits.mqueue_overflow` says what is dropped",
    "qos_0_while_offline": "publish and subscribe with QoS 1, or set `limits.mqueue_store_qos0`",
    "expired": "raise the message expiry interval of the publisher, or let the client come earlier",
    "packet_too_large_for_the_receiver": "raise the Maximum Packet Size that the client announces",
    "no_permission": "change the access list",
    "retention": "keep the log longer (`durability.retention_s`), or let the client come earlier",
    "session_ended": "raise the client's session expiry interval",
    "qos_0_for_a_slow_consumer": "let the client read faster, or subscribe with QoS 1",
    "memory_full": "let the client read faster, or raise `memory.budget_bytes`",
}


def _sent_when(case: Case, message: LoggedMessage) -> str:
    """Return when a message was sent, in words; empty where the flight recorder cannot say for
    certain."""
    runs = () if case.facts.recorded is None else case.facts.recorded.runs
    for run in reversed(runs):
        first, last = run.first_offset, run.last_offset
        if run.kind != "sent" or first is None or last is None:
            continue
        if message.offset in (first, last) or (run.gapless and first <= message.offset <= last):
            return f" at {_utc(run.last_us)} at the latest"
    return ""


def _utc(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1_000_000, UTC):%H:%M:%S} UTC"


def _has_undelivered(case: Case) -> bool:
    """Return whether a message of the topic is in flight to the client or waits for it."""
    return any(state in (IN_FLIGHT, WAITING) for state in case.facts.states.values())


def _nearest_filter(topic: str, filters: Sequence[str]) -> str:
    """Return the filter that has most levels in common with ``topic``, case ignored; empty if none
    has any."""
    levels = topic.lower().split("/")

    def common_levels(topic_filter: str) -> int:
        filter_levels = topic_filter.lower().split("/")
        return sum(
            expected in ("+", "#") or expected == level
            for expected, level in zip(filter_levels, levels, strict=False)
        )

    best = max(filters, key=common_levels)
    return best if common_levels(best) > 0 else ""


CAUSES: Final[Sequence[Callable[[Case], Diagnosis | None]]] = (
    _diagnose_ban,
    _diagnose_missing_session,
    _diagnose_store_failure,
    _diagnose_missing_subscription,
    _diagnose_missing_permission,
    _diagnose_no_local,
    _diagnose_disconnection,
    _diagnose_unread_socket,
    _diagnose_full_window,
    _diagnose_drops,
    _diagnose_silent_topic,
    _diagnose_shared_subscription,
    _diagnose_waiting_messages,
    _diagnose_delivered_messages,
)
