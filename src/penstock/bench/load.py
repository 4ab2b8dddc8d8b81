"""The state of a run, without clock and sockets: its publishers, its subscribers, the totals.

::

      Plan ─▶ Load ── allow(now) ──────────▶ Outgoing.has_room, payload ─▶ client ─▶ broker
               │         settle(now) ◀────── acknowledgements ◀─────────────────────╯  │
               │         Incoming.take(payload, now) ◀── messages ◀────────────────────╯
               ╰─ counts() at any time ─▶ Figures
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from penstock.bench.histogram import Histogram
from penstock.bench.incoming import Incoming
from penstock.bench.outgoing import UNBOUNDED, Outgoing
from penstock.bench.plan import Plan
from penstock.bench.stamp import Stamper

_NS: Final = 1_000_000_000


class Counts(NamedTuple):
    """Totals from the start until now.

    Attributes:
        sent: messages handed to the broker's connection.
        acknowledged: sent messages with PUBACK or PUBCOMP.
        refused: sent messages that the broker refused, or the client gave up.
        received: copies that came to subscribers, without duplicates.
        expected: copies that should have come: of acknowledged messages, with QoS 0 of all sent.
        lost: copies of ``expected`` that did not come.
        duplicated: copies that came again.
        out_of_order: copies that came after a later message of their publisher.
        foreign: messages of others, on our topics.
        received_bytes: bytes of all payloads, duplicates too.
    """

    sent: int
    acknowledged: int
    refused: int
    received: int
    expected: int
    lost: int
    duplicated: int
    out_of_order: int
    foreign: int
    received_bytes: int


@final
class Load:
    """The state of one run.

    Args:
        plan: the plan of the run.
        run: the number of the run, which no other run has.
        start_ns: when it begins, on the caller's clock.
    """

    def __init__(self, plan: Plan, run: int, start_ns: int) -> None:
        self.plan = plan
        self.start_ns = start_ns
        self.measured_from_ns = start_ns + int(plan.warm_up_s * _NS)
        self.acknowledgement = Histogram()
        self.end_to_end = Histogram()
        self.publishers = [self._outgoing(run, number) for number in range(plan.publishers)]
        self.subscribers = [self._incoming(run, number) for number in range(plan.subscribers)]
        self._allowed = 0
        self._is_stopped = False

    def _outgoing(self, run: int, number: int) -> Outgoing:
        plan = self.plan
        fan_out = plan.fan_out(number)
        return Outgoing(
            Stamper(run, number, plan.payload_bytes),
            plan.window if plan.qos else 0,
            plan.end_to_end,
            fan_out,
            self.start_ns + number * plan.interval_ns,
            plan.publishers * plan.interval_ns,
            self.measured_from_ns,
            self.acknowledgement,
        )

    def _incoming(self, run: int, number: int) -> Incoming:
        known = {one: self.publishers[one] for one in self.plan.publishers_of(number)}
        return Incoming(run, known, self.measured_from_ns, self.end_to_end)

    def allow(self, now_ns: int) -> list[int]:
        """Allow the messages that are due; return the waiting publishers that now have room."""
        if self._is_stopped:
            return []
        plan = self.plan
        due = plan.due(now_ns - self.start_ns)
        if due is None:
            due = UNBOUNDED
        first, self._allowed = self._allowed, due
        changed = min(due - first, plan.publishers)
        woken = []
        for message in range(first, first + changed):
            number = message % plan.publishers
            publisher = self.publishers[number]
            publisher.allowed = plan.share(number, due)
            if publisher.waits and publisher.has_room:
                woken.append(number)
        return woken

    def stop(self) -> None:
        """Send nothing more, even if messages become due."""
        self._is_stopped = True
        for publisher in self.publishers:
            publisher.allowed = publisher.sent

    def give_up_stuck(self) -> list[int]:
        """Give up missing copies that block a publisher; return the waiting ones that now have
        room.

        Call it from time to time: a publisher without progress since the last call is stuck.
        """
        for publisher in self.publishers:
            publisher.give_up_stuck()
        return [
            number
            for number, publisher in enumerate(self.publishers)
            if publisher.waits and publisher.has_room
        ]

    def is_over(self, now_ns: int) -> bool:
        """Return whether everything is sent, or the time to send is over."""
        seconds = self.plan.sending_s
        if seconds is not None:
            return now_ns - self.start_ns >= seconds * _NS
        return sum(one.sent for one in self.publishers) >= (self.plan.messages or 0)

    def unsent(self, now_ns: int) -> int:
        """Return how many messages of a rate are due and not sent."""
        due = self.plan.due(now_ns - self.start_ns) if self.plan.rate_per_s else None
        return 0 if due is None else max(0, due - sum(one.sent for one in self.publishers))

    @property
    def is_done(self) -> bool:
        """True if nothing that was sent is still on its way."""
        return all(
            publisher.promised == publisher.sent and publisher.on_their_way <= 0
            for publisher in self.publishers
        )

    @property
    def last_ns(self) -> int:
        """The time of the last acknowledgement or receipt; the start if there was none."""
        ends = [one.last_ns for one in self.publishers] + [one.last_ns for one in self.subscribers]
        return max(self.start_ns, *ends)

    def refused(self) -> dict[int, int]:
        """Return the number of refused messages by reason code."""
        total: dict[int, int] = {}
        for publisher in self.publishers:
            for code, count in publisher.refused.items():
                total[code] = total.get(code, 0) + count
        return total

    def counts(self) -> Counts:
        """Return the totals until now."""
        refused = [publisher.refused_count for publisher in self.publishers]
        sent = sum(publisher.sent for publisher in self.publishers)
        received = expected = lost = duplicated = out_of_order = 0
        for subscriber in self.subscribers:
            for number, tracker in subscriber.trackers.items():
                promised = self.publishers[number].promised
                received += tracker.received
                expected += promised - refused[number]
                lost += max(0, tracker.missing(promised) - refused[number])
                duplicated += tracker.duplicated
                out_of_order += tracker.out_of_order
        return Counts(
            sent=sent,
            acknowledged=sum(one.settled for one in self.publishers) - sum(refused),
            refused=sum(refused),
            received=received,
            expected=expected,
            lost=lost,
            duplicated=duplicated,
            out_of_order=out_of_order,
            foreign=sum(subscriber.foreign for subscriber in self.subscribers),
            received_bytes=sum(subscriber.bytes for subscriber in self.subscribers),
        )
