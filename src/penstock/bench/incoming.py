"""The messages that came to one subscriber: a tracker for each publisher, and latencies."""

from __future__ import annotations

from typing import Final, final

from penstock.bench.histogram import Histogram
from penstock.bench.outgoing import Outgoing
from penstock.bench.stamp import due_ns_of, is_of, publisher_of, sequence_of
from penstock.bench.tracker import Tracker

NOBODY: Final = -1


@final
class Incoming:
    """Counts the messages of one subscriber.

    Args:
        run: the number of this run.
        publishers: the numbers of the publishers whose messages it gets.
        measured_from_ns: latencies of messages due before are not recorded.
        latencies: histogram of the time from due to received.

    Attributes:
        trackers: a tracker of the sequences of each publisher, by its number.
        bytes: total size of all payloads.
        foreign: messages that no publisher of this run sent.
        last_ns: when the latest message came.
    """

    def __init__(
        self,
        run: int,
        publishers: dict[int, Outgoing],
        measured_from_ns: int,
        latencies: Histogram,
    ) -> None:
        self.trackers = {number: Tracker() for number in publishers}
        self.bytes = 0
        self.foreign = 0
        self.last_ns = 0
        self._run = run
        self._publishers = publishers
        self._measured_from_ns = measured_from_ns
        self._latencies = latencies

    def take(self, payload: bytes, now_ns: int) -> int:
        """Count one received message.

        Returns:
            The number of the publisher that waited and has room now; or ``NOBODY``.
        """
        number = publisher_of(payload) if is_of(self._run, payload) else NOBODY
        tracker = self.trackers.get(number)
        if tracker is None:
            self.foreign += 1
            return NOBODY
        self.last_ns = now_ns
        self.bytes += len(payload)
        sequence = sequence_of(payload)
        if not tracker.take(sequence):
            return NOBODY
        due_ns = due_ns_of(payload)
        if due_ns >= self._measured_from_ns:
            self._latencies.record(now_ns - due_ns)
        publisher = self._publishers[number]
        publisher.arrived(sequence)
        return number if publisher.waits and publisher.has_room else NOBODY
