"""The messages that one subscriber received: a tracker for each publisher, and latencies."""

from __future__ import annotations

from typing import Final, final

from penstock.bench.histogram import Histogram
from penstock.bench.publisher_state import PublisherState
from penstock.bench.stamp import due_ns_of, is_stamped_by, publisher_of, sequence_of
from penstock.bench.tracker import SequenceTracker

NO_PUBLISHER: Final = -1


@final
class SubscriberState:
    """Counts the messages of one subscriber.

    Args:
        run: the number of this run.
        publishers: the publishers whose messages it gets, by number.
        measured_from_ns: end of the warm-up: latencies of messages due before are not recorded.
        latencies: histogram of the time from when a message was due until it was received.

    Attributes:
        trackers: a tracker of the sequences of each publisher, by its number.
        payload_bytes: total size of all payloads, in bytes.
        foreign: messages that no publisher of this run sent.
        last_ns: when the latest message was received, on the caller's clock.
    """

    def __init__(
        self,
        run: int,
        publishers: dict[int, PublisherState],
        measured_from_ns: int,
        latencies: Histogram,
    ) -> None:
        self.trackers = {number: SequenceTracker() for number in publishers}
        self.payload_bytes = 0
        self.foreign = 0
        self.last_ns = 0
        self._run = run
        self._publishers = publishers
        self._measured_from_ns = measured_from_ns
        self._latencies = latencies

    def receive(self, payload: bytes, now_ns: int) -> int:
        """Count one received message.

        Returns:
            The number of the publisher that waited and has room now; ``NO_PUBLISHER`` if none does.
        """
        number = publisher_of(payload) if is_stamped_by(self._run, payload) else NO_PUBLISHER
        tracker = self.trackers.get(number)
        if tracker is None:
            self.foreign += 1
            return NO_PUBLISHER
        self.last_ns = now_ns
        self.payload_bytes += len(payload)
        sequence = sequence_of(payload)
        if not tracker.receive(sequence):
            return NO_PUBLISHER
        due_ns = due_ns_of(payload)
        if due_ns >= self._measured_from_ns:
            self._latencies.record(now_ns - due_ns)
        publisher = self._publishers[number]
        publisher.record_delivery(sequence)
        return number if publisher.is_waiting and publisher.has_room else NO_PUBLISHER
