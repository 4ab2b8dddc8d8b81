"""What goes into a pipeline, and the ledger of it.

A load gives its messages by and by, as it is told, and knows which of them are acknowledged: in
the order of their numbers from 0, for each of its sources.
"""

from pathlib import Path
from typing import Final, Protocol, final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.protocol.kinds import V5, V311
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.ledger import Publisher

DEVICES: Final = 4
_WINDOW: Final = 100
_DROPS: Final = 0.00005  # a publisher drops its connection once in so many turns, too
_ALL_ACKNOWLEDGED_S: Final = 600.0
FILES_A_ROUND: Final = 4


class Load(Protocol):
    """What goes in."""

    @property
    def acknowledged(self) -> dict[str, set[int]]:
        """The numbers that are acknowledged, by their source."""

    def give(self, until: int) -> None:
        """Let there be so many messages in all."""

    def finish(self) -> None:
        """Wait until all that was given is acknowledged."""

    def close(self) -> None:
        """End what it runs."""


def count(load: Load) -> int:
    """How many messages are acknowledged."""
    return sum(len(numbers) for numbers in load.acknowledged.values())


@final
class Devices:
    """QoS 2 publishers: MQTT promises each message once, and so must be what comes out."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._publishers = [
            Publisher(broker, f"p{n}", (V311, V5)[n % 2], 2, seed + n, _WINDOW)
            for n in range(DEVICES)
        ]
        for publisher in self._publishers:
            publisher.drops = _DROPS
            publisher.until = 0
            publisher.start()

    @property
    def acknowledged(self) -> dict[str, set[int]]:
        """By the publisher's client identifier."""
        return {publisher.client_id: publisher.acknowledged for publisher in self._publishers}

    def give(self, until: int) -> None:
        """Let there be so many messages in all."""
        for place, publisher in enumerate(self._publishers):
            publisher.until = until // DEVICES + (place < until % DEVICES)

    def finish(self) -> None:
        """Wait until all that was given is acknowledged."""
        wait_for("all messages to be acknowledged", self._is_done, _ALL_ACKNOWLEDGED_S)

    def close(self) -> None:
        """End the publishers, and raise what went wrong in them."""
        for publisher in self._publishers:
            publisher.ending.set()
        for publisher in self._publishers:
            publisher.join()

    def _is_done(self) -> bool:
        for publisher in self._publishers:
            assert publisher.failure is None, publisher.failure
        return all(
            len(publisher.acknowledged) == publisher.until and publisher.finished()
            for publisher in self._publishers
        )


@final
class Rows:
    """Files of rows to publish, for Spark's own file source; one that is there is acknowledged."""

    source: Final = "rows"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._numbers: set[int] = set()

    @property
    def acknowledged(self) -> dict[str, set[int]]:
        """All that is written."""
        return {self.source: self._numbers}

    def give(self, until: int) -> None:
        """Write some files more."""
        begin = len(self._numbers)
        step = max(1, -(-(until - begin) // FILES_A_ROUND))
        for first in range(begin, until, step):
            numbers = range(first, min(first + step, until))
            columns = {
                "topic": [f"sink/{number % 7}" for number in numbers],
                "payload": [f"{number} {self.source}" for number in numbers],
            }
            unfinished = self._directory / f".{first:012d}"  # Spark passes over such names
            pq.write_table(pa.table(columns), unfinished)
            unfinished.rename(self._directory / f"{first:012d}.parquet")
            self._numbers.update(numbers)

    def finish(self) -> None:
        """Nothing is left to wait for."""

    def close(self) -> None:
        """Nothing runs."""
