"""The work of `penstock replay`: messages of the log, published again in their order and rhythm.

::

      chosen messages, up to a fixed end ─▶ wait for their time ─▶ published ─▶ acknowledged
                                                       first offset that is not ──╯ a signal: said

The time of a message counts from the first one: one received 10 s after it leaves 10 s after it,
or 1 s with ``--speed 10``. Where the broker's clock was set back there is no pause.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, deque
from functools import partial
from typing import Final, final

from penstock.cli.chosen_messages import (
    ChosenMessages,
    choose,
    machine_clock,
    read_chosen,
    received_in,
    times_us_of,
)
from penstock.cli.client_program import uncancel
from penstock.cli.log_options import LogOptions
from penstock.cli.log_positions import local_text
from penstock.cli.message_format import Received
from penstock.cli.output import counted, in_thread
from penstock.cli.progress import Progress, progress_shown
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.cli.topic_map import TopicMap
from penstock.client import Client, Publication
from penstock.control.landed_requests import RECEIPT
from penstock.engine.publishing.producers import PRODUCER, SEQUENCE
from penstock.errors import LocalProtocolError, PublishFailed
from penstock.protocol.properties import Properties
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamClient
from penstock.telemetry.logs import printable

OUTSTANDING_MAX: Final = 10_000
"""Most messages that are handed to the client and not acknowledged."""

TOPICS_SHOWN: Final = 20
"""Most topics that a dry run lists."""

TOPICS_COUNTED_MAX: Final = 100_000
"""Most topics that a dry run counts apart."""

_OF_ANOTHER_PUBLISHER: Final = frozenset((PRODUCER, SEQUENCE, RECEIPT))
"""User properties by which a broker would take a copy for the message itself, or answer it."""


@final
class Pace:
    """Says when a message is to leave.

    Args:
        speed: so many times as fast as the messages came; None: at once.
    """

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first_us: int | None = None
        self._started_s = 0.0

    def wait_s(self, received_at_us: int, now_s: float) -> float:
        """Return how long a message waits, seconds; the first one begins the count."""
        if self._speed is None:
            return 0.0
        if self._first_us is None:
            self._first_us, self._started_s = received_at_us, now_s
        due_s = self._started_s + (received_at_us - self._first_us) / 1e6 / self._speed
        return max(0.0, due_s - now_s)

    def duration_s(self, first_us: int, last_us: int) -> float:
        """Return how long messages received in this span take, seconds."""
        return 0.0 if self._speed is None else max(0.0, last_us - first_us) / 1e6 / self._speed


@final
class Republishing:
    """Says how a message is published again.

    Args:
        topics: makes the new topic.
        qos: instead of the one it had; None: that.
        keep_retain: retain what was retained.
        with_properties: the connection can carry properties.
    """

    def __init__(
        self, topics: TopicMap, qos: int | None, keep_retain: bool, *, with_properties: bool
    ) -> None:
        self.topics = topics
        self._qos = qos
        self._keep_retain = keep_retain
        self._with_properties = with_properties

    async def publish(self, client: Client, received: Received) -> Publication | None:
        """Publish a message; return its pending publication, None for QoS 0.

        Raises:
            PublishFailed: the new topic is none.
        """
        message = received.message
        topic = self.topics(message.topic)
        qos = message.qos if self._qos is None else self._qos
        retain = message.retain and self._keep_retain
        properties = self._properties(message.properties) if self._with_properties else None
        try:
            if qos:
                return await client.send(topic, message.payload, qos, retain, properties)
            await client.publish(topic, message.payload, 0, retain, properties)
        except LocalProtocolError as error:
            raise PublishFailed(f"{printable(topic)}: {error.message}", error.reason) from error
        return None

    def _properties(self, properties: Properties | None) -> Properties | None:
        """Return the properties, without the ones that belong to the publisher of the original."""
        if properties is None or properties.user_properties is None:
            return properties
        pairs = [
            pair for pair in properties.user_properties if pair[0] not in _OF_ANOTHER_PUBLISHER
        ]
        properties.user_properties = pairs or None
        return properties


@final
class Replaying:
    """One run of `penstock replay`.

    Args:
        options: choose the messages.
        access: reaches the stream service.
        republishing: says how they are published.
        pace: says when.
    """

    def __init__(
        self,
        options: LogOptions,
        access: StreamCredentialOptions,
        republishing: Republishing,
        pace: Pace,
    ) -> None:
        self._options = options
        self._log: StreamClient = options.client(access, CONNECT_TIMEOUT_S)
        self._republishing = republishing
        self._pace = pace
        self._chosen: ChosenMessages | None = None
        self._reached = 0
        self._outstanding: deque[tuple[int, Publication]] = deque()
        self._done = 0

    async def run(self, client: Client, *, quiet: bool) -> int:
        """Publish the messages; return the exit code.

        Raises:
            PublishFailed: the broker refused one, or the run was interrupted.
        """
        is_interrupted = False
        try:
            chosen = await self._choose()
            async with client, progress_shown(self._progress, wanted=not quiet):
                try:
                    await self._publish(client, chosen)
                    await self._settle(0)
                except asyncio.CancelledError:
                    if not client.is_connected:
                        raise
                    is_interrupted = True  # the client waits a while for acknowledgements
                    uncancel()
        except asyncio.CancelledError:
            is_interrupted = True
        except PublishFailed as error:
            raise PublishFailed(f"{error.message}; {self._summary()}", error.reason) from error
        if is_interrupted:
            self._log.cancel()
            raise PublishFailed(f"interrupted: {self._summary()}")
        if not quiet:
            print(f"penstock: {_published(self._done)}", file=sys.stderr)
        return 0

    async def dry_run(self) -> int:
        """Print the messages that would be published; return the exit code."""
        chosen = await self._choose()
        topics: Counter[str] = Counter()
        times_us: list[int] = []
        columns = ("offset", "received_at", "topic")
        async for batch in read_chosen(self._log, chosen, columns):
            found = times_us_of(batch)
            times_us = [*times_us[:1], found[-1]] if times_us else [found[0], found[-1]]
            for topic in batch.column(2).to_pylist():
                is_known = topic in topics or len(topics) < TOPICS_COUNTED_MAX
                topics[topic if is_known else ""] += 1
        if not times_us:
            print("no message would be published")
            return 0
        clock = machine_clock()
        print(
            f"{counted(topics.total(), 'message')} would be published in"
            f" {self._pace.duration_s(*times_us):,.1f} s, received from"
            f" {local_text(times_us[0], clock)} to {local_text(times_us[1], clock)}:"
        )
        for topic, count in topics.most_common(TOPICS_SHOWN):
            shown = f"{topic} → {self._republishing.topics(topic)}" if topic else "others"
            print(f"  {count:,}  {printable(shown)}")
        if len(topics) > TOPICS_SHOWN:
            print(f"  and {len(topics) - TOPICS_SHOWN:,} topics more")
        return 0

    async def _choose(self) -> ChosenMessages:
        chosen = await in_thread(partial(choose, self._log, self._options, machine_clock()))
        chosen.print_notes()
        self._chosen = chosen
        self._reached = chosen.spans[0][0] if chosen.spans else chosen.pushed.offsets.high
        return chosen

    async def _publish(self, client: Client, chosen: ChosenMessages) -> None:
        async for batch in read_chosen(self._log, chosen):
            for received in received_in(batch):
                wait_s = self._pace.wait_s(received.at_ns // 1000, time.monotonic())
                if wait_s:
                    await asyncio.sleep(wait_s)
                publication = await self._republishing.publish(client, received)
                assert received.logged is not None, "it was read from the log"
                offset = received.logged.offset
                if publication is None:
                    self._done += 1
                else:
                    self._outstanding.append((offset, publication))
                self._reached = offset + 1
                await self._settle(OUTSTANDING_MAX)

    async def _settle(self, left_max: int) -> None:
        """Take the acknowledgements that are there, and wait until few are missing.

        Raises:
            PublishFailed: the broker refused a message.
        """
        while self._outstanding:
            _, publication = self._outstanding[0]
            if len(self._outstanding) <= left_max and not publication.is_done:
                return
            await publication
            self._outstanding.popleft()
            self._done += 1

    def _progress(self) -> Progress:
        text = f"{self._done:,} messages"
        if self._chosen is None or not self._chosen.spans:
            return Progress(0, None, text)
        spans = self._chosen.spans
        done = sum(min(max(self._reached, start), end) - start for start, end in spans)
        return Progress(done, sum(end - start for start, end in spans), text)

    def _summary(self) -> str:
        """Return in words how many messages were published, and the options for the rest."""
        while self._outstanding and self._outstanding[0][1].reason_code is not None:
            if (self._outstanding[0][1].reason_code or 0) >= 0x80:
                break
            self._outstanding.popleft()
            self._done += 1
        done = _published(self._done)
        if self._chosen is None:
            return done
        place = self._outstanding[0][0] if self._outstanding else self._reached
        return f"{done}; the rest: {self._chosen.rest(place)}, without --last"


def _published(count: int) -> str:
    return f"{counted(count, 'message')} {'was' if count == 1 else 'were'} published"
