"""What one publisher has sent, and how many more messages it may send now.

::

      allowed ≥ sent ≥ settled        settled: acknowledged or refused, in the order of the sending
                 │                    delivered: copies that subscribers have
                 ▼
      room  =  the least of   allowed - sent                    what is due, or asked for
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
    """The messages of one publisher.

    Args:
        stamper: makes its payloads.
        window: messages sent and not settled, at most; 0 for QoS 0, where nothing is settled.
        end_to_end: messages that not all subscribers have, at most; 0: any number.
        fan_out: how many subscribers get each.
        first_due_ns: when its first message is due, on the caller's clock.
        interval_ns: from one to the next; 0.0: it is due when it is sent.
        measured_from_ns: latencies of what was due before do not count.
        latencies: from due to acknowledged.

    Attributes:
        allowed: how many it may have sent by now.
        sent: how many it has.
        settled: how many of those the broker has answered.
        refused: how many it refused, by reason code.
        delivered: copies that came to subscribers, without duplicates, or never will.
        last_ns: when the latest was settled.
        waits: somebody waits until there is room.
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
        self._stuck_at = -1  # what was delivered when somebody last looked
        self._given_up = 0  # copies on their way that hold nothing up any more
        self._given_up_end = 0  # they are of messages before this one
        self._publications: Fifo[Publication] = Fifo()  # sent and not settled
        self._due_ns: Fifo[int] = Fifo()  # of those

    @property
    def has_room(self) -> bool:
        """Whether it may send one more now."""
        if self.sent >= self.allowed:
            return False
        if self._window > 0 and self.sent - self.settled >= self._window:
            return False
        return self._copies_max == 0 or self._holding_up < self._copies_max

    @property
    def on_their_way(self) -> int:
        """Copies of what was sent that subscribers do not have yet."""
        return self.sent * self.fan_out - self.delivered

    @property
    def _holding_up(self) -> int:
        return self.on_their_way - self._given_up

    def arrived(self, sequence: int) -> None:
        """A copy came to a subscriber, for the first time; it may have been given up."""
        self.delivered += 1
        if sequence < self._given_up_end and self._given_up > 0:
            self._given_up -= 1

    def reopen(self) -> None:
        """Wait no longer for copies that hold it up, if none came since the call before."""
        if 0 < self._copies_max <= self._holding_up and self.delivered == self._stuck_at:
            self._given_up = self.on_their_way
            self._given_up_end = self.sent
        self._stuck_at = self.delivered

    def payload(self, now_ns: int) -> bytes:
        """The payload of the next message, which is sent now."""
        if self._interval_ns > 0.0:
            now_ns = int(self._first_due_ns + self.sent * self._interval_ns)
        payload = self._stamper.payload(self.sent, now_ns)
        self.sent += 1
        if self._window > 0:
            self._due_ns.append(now_ns)
        return payload

    def follow(self, publication: Publication) -> None:
        """What was sent last is to be settled."""
        self._publications.append(publication)

    @property
    def oldest(self) -> Publication | None:
        """What is to be settled next; None if nothing is on its way."""
        return self._publications.first() if len(self._publications) > 0 else None

    def settle(self, now_ns: int) -> None:
        """Settle what is answered, up to the first that is not."""
        publications = self._publications
        while len(publications) > 0 and publications.first().is_done:
            code = publications.pop().reason_code
            due_ns = self._due_ns.pop()
            self.settled += 1
            self.last_ns = now_ns
            if code is not None and code >= reasons.UNSPECIFIED_ERROR:
                self.refused[code] = self.refused.get(code, 0) + 1
                self.delivered += self.fan_out  # none will come
            elif due_ns >= self._measured_from_ns:
                self._latencies.record(now_ns - due_ns)

    @property
    def promised(self) -> int:
        """How many of those sent should come: all of QoS 0, with QoS 1 and 2 what is settled."""
        return self.settled if self._window > 0 else self.sent

    @property
    def refused_count(self) -> int:
        """How many of those settled were refused."""
        return sum(self.refused.values())
