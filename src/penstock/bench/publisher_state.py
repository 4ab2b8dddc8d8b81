"""The messages that one publisher has sent, and how many more it may send now.

::

      send_limit ≥ sent ≥ settled     settled: acknowledged or refused, in the order of the sending
                    │                 delivered: copies that subscribers have
                    ▼
      room  =  the least of   send_limit - sent                 messages due and not sent
                              window - (sent - settled)         QoS 1 and 2
                              end_to_end - copies_in_flight / fan_out
"""

from __future__ import annotations

from typing import Final, final

from penstock.bench.histogram import Histogram
from penstock.bench.stamp import Stamper
from penstock.client.publication import Publication
from penstock.engine.values.fifo import Fifo
from penstock.protocol import reasons

UNBOUNDED: Final = 2**62


@final
class PublisherState:
    """Counts the messages of one publisher, and says whether it may send one more.

    Args:
        stamper: makes its payloads.
        window: most messages sent and not settled; 0 for QoS 0, where nothing is settled.
        end_to_end: most messages that some subscriber has not received yet; 0: any number.
        fan_out: the number of subscribers that get each message.
        first_due_ns: when its first message is due, on the caller's clock.
        interval_ns: time from one message to the next; 0.0: a message is due when it is sent.
        measured_from_ns: end of the warm-up: latencies of messages due before are not recorded.
        latencies: histogram of the time from when a message was due until it was acknowledged.

    Attributes:
        send_limit: the number of messages that it may have sent by now.
        sent: the number of messages that it has sent.
        settled: the number of sent messages that the broker has answered.
        refused: the number of refused messages, by reason code.
        delivered: copies that subscribers received, without duplicates, and copies of refused
            messages, which no subscriber will receive.
        last_ns: when the latest message was settled, on the caller's clock.
        is_waiting: whether the publishing task waits until there is room.
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
        self.send_limit = 0
        self.sent = 0
        self.settled = 0
        self.refused: dict[int, int] = {}
        self.delivered = 0
        self.last_ns = 0
        self.is_waiting = False
        self.fan_out = fan_out
        self._stamper = stamper
        self._window = window
        self._copies_max = end_to_end * fan_out
        self._first_due_ns = first_due_ns
        self._interval_ns = interval_ns
        self._measured_from_ns = measured_from_ns
        self._latencies = latencies
        self._last_delivered = -1  # ``delivered`` at the last call of ``give_up_lost_copies``
        self._given_up = 0  # copies in flight that no longer count against ``end_to_end``
        self._given_up_end = 0  # given up copies are of messages before this sequence
        self._publications: Fifo[Publication] = Fifo()  # sent and not settled
        self._due_ns: Fifo[int] = Fifo()  # when each of these publications was due

    @property
    def has_room(self) -> bool:
        """True if one more message may be sent now."""
        if self.sent >= self.send_limit:
            return False
        if self._window > 0 and self.sent - self.settled >= self._window:
            return False
        return self._copies_max == 0 or self._awaited_copies < self._copies_max

    @property
    def copies_in_flight(self) -> int:
        """The number of copies of sent messages that subscribers do not have yet."""
        return self.sent * self.fan_out - self.delivered

    @property
    def _awaited_copies(self) -> int:
        return self.copies_in_flight - self._given_up

    def record_delivery(self, sequence: int) -> None:
        """Count a copy that a subscriber received for the first time, even if it was given up."""
        self.delivered += 1
        if sequence < self._given_up_end and self._given_up > 0:
            self._given_up -= 1

    def give_up_lost_copies(self) -> None:
        """Stop waiting for the copies in flight if they block this publisher and none was received
        since the last call."""
        is_blocked = 0 < self._copies_max <= self._awaited_copies
        if is_blocked and self.delivered == self._last_delivered:
            self._given_up = self.copies_in_flight
            self._given_up_end = self.sent
        self._last_delivered = self.delivered

    def next_payload(self, now_ns: int) -> bytes:
        """Return the payload of the next message, and count the message as sent."""
        if self._interval_ns > 0.0:
            now_ns = int(self._first_due_ns + self.sent * self._interval_ns)
        payload = self._stamper.payload(self.sent, now_ns)
        self.sent += 1
        if self._window > 0:
            self._due_ns.append(now_ns)
        return payload

    def track(self, publication: Publication) -> None:
        """Track the publication of the message sent last until it is settled."""
        self._publications.append(publication)

    @property
    def oldest_unsettled(self) -> Publication | None:
        """The next publication to settle; None if all are settled."""
        return self._publications.first() if len(self._publications) > 0 else None

    def settle(self, now_ns: int) -> None:
        """Settle answered publications in order, up to the first without an answer."""
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
    def deliverable_count(self) -> int:
        """The number of sent messages of which subscribers should get copies, unless the broker
        refused them: all with QoS 0, the settled ones otherwise."""
        return self.settled if self._window > 0 else self.sent

    @property
    def refused_count(self) -> int:
        """The number of settled messages that were refused."""
        return sum(self.refused.values())
