"""The state of a run, without clock and sockets: its publishers, its subscribers, the totals.

::

      Plan ─▶ Load ─ release_due(now) ─▶ PublisherState.has_room, payload ─▶ client ─▶ broker
               │        settle(now) ◀─── acknowledgements ◀───────────────────────╯  │
               │        SubscriberState.receive(payload, now) ◀── messages ◀─────────╯
               ╰─ counts() at any time ─▶ Figures
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from penstock.bench.histogram import Histogram
from penstock.bench.plan import Plan
from penstock.bench.publisher_state import UNBOUNDED, PublisherState
from penstock.bench.stamp import Stamper
from penstock.bench.subscriber_state import SubscriberState

_NS_PER_S: Final = 1_000_000_000


class Counts(NamedTuple):
    """The totals of a run, from its start until now.

    Attributes:
        sent: messages handed to the broker's connection.
        acknowledged: sent messages whose PUBACK or PUBCOMP was received.
        refused: sent messages that the broker refused, or the client gave up.
        received: copies that subscribers received, without duplicates.
        expected: copies that subscribers should have received: of acknowledged messages, with
            QoS 0 of all sent ones.
        lost: copies of ``expected`` that were not received.
        duplicated: copies that were received again.
        out_of_order: copies that were received after a later message of their publisher.
        foreign: received messages that no publisher of the run sent.
        received_bytes: bytes of all received payloads, duplicates too.
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
        start_ns: when the run begins, on the caller's clock.

    Attributes:
        measured_from_ns: end of the warm-up, on the same clock.
        acknowledgement_latencies: from when a message was due until it was acknowledged.
        end_to_end_latencies: from when a message was due until a subscriber received it.
    """

    def __init__(self, plan: Plan, run: int, start_ns: int) -> None:
        self.plan = plan
        self.start_ns = start_ns
        self.measured_from_ns = start_ns + int(plan.warm_up_s * _NS_PER_S)
        self.acknowledgement_latencies = Histogram()
        self.end_to_end_latencies = Histogram()
        self.publishers = [self._new_publisher(run, n) for n in range(plan.publishers)]
        self.subscribers = [self._new_subscriber(run, n) for n in range(plan.subscribers)]
        self._released = 0  # messages of all publishers that were due by now
        self._is_stopped = False

    def _new_publisher(self, run: int, number: int) -> PublisherState:
        plan = self.plan
        fan_out = plan.fan_out(number)
        return PublisherState(
            Stamper(run, number, plan.payload_bytes),
            plan.window if plan.qos else 0,
            plan.end_to_end,
            fan_out,
            self.start_ns + number * plan.interval_ns,
            plan.publishers * plan.interval_ns,
            self.measured_from_ns,
            self.acknowledgement_latencies,
        )

    def _new_subscriber(self, run: int, number: int) -> SubscriberState:
        publishers = {n: self.publishers[n] for n in self.plan.publishers_of(number)}
        return SubscriberState(run, publishers, self.measured_from_ns, self.end_to_end_latencies)

    def release_due(self, now_ns: int) -> list[int]:
        """Let publishers send the messages that are due by ``now_ns``; return the numbers of the
        waiting publishers that now have room."""
        if self._is_stopped:
            return []
        plan = self.plan
        due = plan.due(now_ns - self.start_ns)
        if due is None:
            due = UNBOUNDED
        first, self._released = self._released, due
        changed = min(due - first, plan.publishers)
        woken = []
        for message in range(first, first + changed):
            number = message % plan.publishers
            publisher = self.publishers[number]
            publisher.send_limit = plan.share(number, due)
            if publisher.is_waiting and publisher.has_room:
                woken.append(number)
        return woken

    def stop(self) -> None:
        """Let publishers send nothing more, even if messages become due."""
        self._is_stopped = True
        for publisher in self.publishers:
            publisher.send_limit = publisher.sent

    def give_up_lost_copies(self) -> list[int]:
        """Stop waiting for missing copies that block a publisher; return the numbers of the waiting
        publishers that now have room.

        Called from time to time: a publisher without a delivery since the last call counts as
        blocked.
        """
        for publisher in self.publishers:
            publisher.give_up_lost_copies()
        return [
            number
            for number, publisher in enumerate(self.publishers)
            if publisher.is_waiting and publisher.has_room
        ]

    def is_over(self, now_ns: int) -> bool:
        """Return whether everything is sent, or the time to send is over."""
        seconds = self.plan.sending_s
        if seconds is not None:
            return now_ns - self.start_ns >= seconds * _NS_PER_S
        return self._sent_count() >= (self.plan.messages or 0)

    def _sent_count(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    def unsent(self, now_ns: int) -> int:
        """Return how many messages are due and not sent; 0 where no rate is given."""
        due = self.plan.due(now_ns - self.start_ns) if self.plan.rate_per_s else None
        return 0 if due is None else max(0, due - self._sent_count())

    @property
    def is_drained(self) -> bool:
        """True if every sent message is answered and every copy received or given up."""
        return all(
            publisher.deliverable_count == publisher.sent and publisher.copies_in_flight <= 0
            for publisher in self.publishers
        )

    @property
    def last_ns(self) -> int:
        """The time of the last acknowledgement or receipt; the start of the run without any."""
        return max(
            self.start_ns,
            *(publisher.last_ns for publisher in self.publishers),
            *(subscriber.last_ns for subscriber in self.subscribers),
        )

    def refused_by_code(self) -> dict[int, int]:
        """Return the number of refused messages by reason code."""
        total: dict[int, int] = {}
        for publisher in self.publishers:
            for code, count in publisher.refused.items():
                total[code] = total.get(code, 0) + count
        return total

    def counts(self) -> Counts:
        """Return the totals until now."""
        refused = [publisher.refused_count for publisher in self.publishers]
        received = expected = lost = duplicated = out_of_order = 0
        for subscriber in self.subscribers:
            for number, tracker in subscriber.trackers.items():
                deliverable = self.publishers[number].deliverable_count
                received += tracker.received
                expected += deliverable - refused[number]
                lost += max(0, tracker.missing(deliverable) - refused[number])
                duplicated += tracker.duplicated
                out_of_order += tracker.out_of_order
        return Counts(
            sent=self._sent_count(),
            acknowledged=sum(p.settled for p in self.publishers) - sum(refused),
            refused=sum(refused),
            received=received,
            expected=expected,
            lost=lost,
            duplicated=duplicated,
            out_of_order=out_of_order,
            foreign=sum(subscriber.foreign for subscriber in self.subscribers),
            received_bytes=sum(subscriber.payload_bytes for subscriber in self.subscribers),
        )
