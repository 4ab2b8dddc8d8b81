"""The messages that one publisher has sent, and how many more it may send now.

::

      allowed ≥ sent ≥ settled        settled: acknowledged or refused, in the order of the sending
                 │                    delivered: copies that subscribers have
                 ▼
      room  =  the least of   allowed - sent                    messages due, or asked for
                              window - (sent - settled)         QoS 1 and 2
                              end_to_end - copies on their way / fan_out
"""

from __future__ import annotations

from typing import Final, final

from penstock.bench.histogram import Histogram
from penstock.bench.stamp import Stamper
from penstock.client.publication import Publication
from penstock.engine.fifo import Fifo
from penstock.protocol import reasons

UNBOUNDED: Final = 2**62


@final
class Outgoing:
    """Counts the messages of one publisher.

    Args:
        stamper: makes its payloads.
        window: messages sent and not settled, at most; 0 for QoS 0, where nothing is settled.
        end_to_end: the most messages that some subscriber has not received yet; 0: any number.
        fan_out: the number of subscribers that get each message.
        first_due_ns: when its first message is due, on the caller's clock.
        interval_ns: time from one message to the next; 0.0: a message is due when it is sent.
        measured_from_ns: latencies of messages due before are not recorded.
        latencies: histogram of the time from due to acknowledged.

    Attributes:
        allowed: the number of messages that it may have sent by now.
        sent: the number of messages that it has sent.
        settled: the number of those that the broker has answered.
        refused: the number of refused messages, by reason code.
        delivered: copies that came to subscribers, without duplicates, and copies that never will.
        last_ns: when the latest message was settled.
        waits: the publishing task waits until there is room.
    """

    def __init__(
        self,
        stamper: Stamper,
        window: int,
        end_to_end: int,
        fan_out: int,
        first_due_ns: float,
        interval_ns: float,
        measured_from_ns: int,
        latencies: Histogram,
    ) -> None:
        self.allowed = 0
        self.sent = 0
        self.settled = 0
        self.refused: dict[int, int] = {}
        self.delivered = 0
        self.last_ns = 0
        self.waits = False
        self.fan_out = fan_out
        self._stamper = stamper
        self._window = window
        self._copies_max = end_to_end * fan_out
        self._first_due_ns = first_due_ns
        self._interval_ns = interval_ns
        self._measured_from_ns = measured_from_ns
        self._latencies = latencies
        self._stuck_at = -1  # ``delivered`` at the last call of ``give_up_stuck``
        self._given_up = 0  # copies on their way that no longer count against ``end_to_end``
        self._given_up_end = 0  # those copies are of messages before this one
        self._publications: Fifo[Publication] = Fifo()  # sent and not settled
        self._due_ns: Fifo[int] = Fifo()  # when each of those was due

    @property
    def has_room(self) -> bool:
        """True if one more message may be sent now."""
        if self.sent >= self.allowed:
            return False
        if self._window > 0 and self.sent - self.settled >= self._window:
            return False
        return self._copies_max == 0 or self._congested < self._copies_max

    @property
    def on_their_way(self) -> int:
        """The number of copies of sent messages that subscribers do not have yet."""
        return self.sent * self.fan_out - self.delivered

    @property
    def _congested(self) -> int:
        return self.on_their_way - self._given_up

    def arrived(self, sequence: int) -> None:
        """Count a copy that came to a subscriber for the first time; it may have been given up
        before."""
        self.delivered += 1
        if sequence < self._given_up_end and self._given_up > 0:
            self._given_up -= 1

    def give_up_stuck(self) -> None:
        """Stop waiting for copies that block this publisher if none came since the last call."""
        if 0 < self._copies_max <= self._congested and self.delivered == self._stuck_at:
            self._given_up = self.on_their_way
            self._given_up_end = self.sent
        self._stuck_at = self.delivered

    def payload(self, now_ns: int) -> bytes:
        """Return the payload of the next message, which is sent now."""
        if self._interval_ns > 0.0:
            now_ns = int(self._first_due_ns + self.sent * self._interval_ns)
        payload = self._stamper.payload(self.sent, now_ns)
        self.sent += 1
        if self._window > 0:
            self._due_ns.append(now_ns)
        return payload

    def follow(self, publication: Publication) -> None:
        """Track the message sent last until it is settled."""
        self._publications.append(publication)

    @property
    def oldest(self) -> Publication | None:
        """The next message to settle; None if nothing is on its way."""
        return self._publications.first() if len(self._publications) > 0 else None

    def settle(self, now_ns: int) -> None:
        """Settle answered messages in order, up to the first without an answer."""
        publications = self._publications
        while len(publications) > 0 and publications.first().is_done:
            code = publications.pop().reason_code
            due_ns = self._due_ns.pop()
            self.settled += 1
            self.last_ns = now_ns
            if code is not None and code >= reasons.UNSPECIFIED_ERROR:
                self.refused[code] = self.refused.get(code, 0) + 1
                self.delivered += self.fan_out  # no copy will come
            elif due_ns >= self._measured_from_ns:
                self._latencies.record(now_ns - due_ns)

    @property
    def promised(self) -> int:
        """The number of sent messages that should arrive: all with QoS 0, the settled ones
        otherwise."""
        return self.settled if self._window > 0 else self.sent

    @property
    def refused_count(self) -> int:
        """The number of settled messages that were refused."""
        return sum(self.refused.values())
