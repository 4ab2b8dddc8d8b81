"""The work of `penstock replay`: publish messages of the log again, in their order and rhythm.

::

      selected messages, up to a fixed end ─▶ wait for their time ─▶ published ─▶ acknowledged
               a signal ends the run: the first offset without acknowledgement is printed ─╯

Times count from the first message: a message received 10 s after it is published 10 s after it, or
1 s with ``--speed 10``. If the broker's clock was set back there is no pause.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, deque
from functools import partial
from typing import Final, final

from penstock.cli.client_program import uncancel
from penstock.cli.log_options import LogOptions
from penstock.cli.log_positions import local_text
from penstock.cli.log_selection import (
    LogSelection,
    machine_clock,
    messages_in,
    read_selection,
    receive_times_us,
    select_messages,
)
from penstock.cli.message_format import TimedMessage
from penstock.cli.output import count_text, run_in_thread
from penstock.cli.progress import Progress, show_progress
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.cli.topic_map import TopicMap
from penstock.client import Client, Publication
from penstock.control.landed_requests import RECEIPT
from penstock.engine.values.producer_properties import PRODUCER, SEQUENCE
from penstock.errors import LocalProtocolError, PublishFailed
from penstock.protocol.properties import Properties
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamClient
from penstock.telemetry.logs import printable

OUTSTANDING_MAX: Final = 10_000
"""Most messages that were passed to the client and are not acknowledged."""

TOPICS_SHOWN: Final = 20
"""Most topics that a dry run lists."""

TOPICS_COUNTED_MAX: Final = 100_000
"""Most topics that a dry run counts separately."""

_OMITTED_PROPERTIES: Final = frozenset((PRODUCER, SEQUENCE, RECEIPT))
"""User properties with which a broker would take a copy for a duplicate of the message, or send a
receipt to its publisher."""


@final
class Pace:
    """Computes when a message is to be published.

    Args:
        speed: how many times as fast as the messages were received; None: without pauses.
    """

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first_us: int | None = None
        self._started_s = 0.0

    def wait_s(self, received_at_us: int, now_s: float) -> float:
        """Return how long a message must wait, in seconds; times count from the first call."""
        if self._speed is None:
            return 0.0
        if self._first_us is None:
            self._first_us, self._started_s = received_at_us, now_s
        due_s = self._started_s + (received_at_us - self._first_us) / 1e6 / self._speed
        return max(0.0, due_s - now_s)

    def duration_s(self, first_us: int, last_us: int) -> float:
        """Return how long the replay of messages received in this span takes, in seconds."""
        return 0.0 if self._speed is None else max(0.0, last_us - first_us) / 1e6 / self._speed


@final
class Republisher:
    """Publishes copies of messages.

    Args:
        topics: maps the topic of a message to that of its copy.
        qos: the QoS of all copies; None: that of the message.
        keep_retain: whether the copy of a retained message is retained.
        with_properties: whether the connection can carry properties, which MQTT 5 has.
    """

    def __init__(
        self, topics: TopicMap, qos: int | None, keep_retain: bool, *, with_properties: bool
    ) -> None:
        self.topics = topics
        self._qos = qos
        self._keep_retain = keep_retain
        self._with_properties = with_properties

    async def publish(self, client: Client, received: TimedMessage) -> Publication | None:
        """Publish a copy of a message; return its pending publication, None for QoS 0.

        Raises:
            PublishFailed: the topic of the copy is not valid.
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
        """Return the properties without the user properties that belong to the original
        publisher."""
        if properties is None or properties.user_properties is None:
            return properties
        pairs = [pair for pair in properties.user_properties if pair[0] not in _OMITTED_PROPERTIES]
        properties.user_properties = pairs or None
        return properties


@final
class ReplayRun:
    """One run of `penstock replay`.

    Args:
        options: the options that select the messages.
        access: credentials for the stream service.
        republisher: publishes the copies.
        pace: computes the times of publishing.
    """

    def __init__(
        self,
        options: LogOptions,
        access: StreamCredentialOptions,
        republisher: Republisher,
        pace: Pace,
    ) -> None:
        self._options = options
        self._log: StreamClient = options.client(access, CONNECT_TIMEOUT_S)
        self._republisher = republisher
        self._pace = pace
        self._selection: LogSelection | None = None
        self._next_offset = 0
        self._outstanding: deque[tuple[int, Publication]] = deque()
        self._done = 0

    async def run(self, client: Client, *, quiet: bool) -> int:
        """Publish the messages; return the exit code.

        Raises:
            PublishFailed: the broker refused a message, or the run was interrupted.
        """
        is_interrupted = False
        try:
            selection = await self._select()
            async with client, show_progress(self._progress, enabled=not quiet):
                try:
                    await self._publish(client, selection)
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
            print(f"penstock: {_published_text(self._done)}", file=sys.stderr)
        return 0

    async def dry_run(self) -> int:
        """Print the messages that would be published; return the exit code."""
        selection = await self._select()
        topics: Counter[str] = Counter()
        times_us: list[int] = []
        columns = ("offset", "received_at", "topic")
        async for batch in read_selection(self._log, selection, columns):
            batch_us = receive_times_us(batch)
            times_us = [times_us[0] if times_us else batch_us[0], batch_us[-1]]
            for topic in batch.column(2).to_pylist():
                is_known = topic in topics or len(topics) < TOPICS_COUNTED_MAX
                topics[topic if is_known else ""] += 1
        if not times_us:
            print("no message would be published")
            return 0
        clock = machine_clock()
        print(
            f"{count_text(topics.total(), 'message')} would be published in"
            f" {self._pace.duration_s(*times_us):,.1f} s, received from"
            f" {local_text(times_us[0], clock)} to {local_text(times_us[1], clock)}:"
        )
        for topic, count in topics.most_common(TOPICS_SHOWN):
            shown = f"{topic} → {self._republisher.topics(topic)}" if topic else "others"
            print(f"  {count:,}  {printable(shown)}")
        if len(topics) > TOPICS_SHOWN:
            print(f"  and {len(topics) - TOPICS_SHOWN:,} topics more")
        return 0

    async def _select(self) -> LogSelection:
        selection = await run_in_thread(
            partial(select_messages, self._log, self._options, machine_clock())
        )
        selection.print_notes()
        self._selection = selection
        end = selection.filters.offsets.high
        self._next_offset = selection.spans[0][0] if selection.spans else end
        return selection

    async def _publish(self, client: Client, selection: LogSelection) -> None:
        async for batch in read_selection(self._log, selection):
            for received in messages_in(batch):
                wait_s = self._pace.wait_s(received.at_ns // 1000, time.monotonic())
                if wait_s:
                    await asyncio.sleep(wait_s)
                publication = await self._republisher.publish(client, received)
                assert received.log_entry is not None, "it was read from the log"
                offset = received.log_entry.offset
                if publication is None:
                    self._done += 1
                else:
                    self._outstanding.append((offset, publication))
                self._next_offset = offset + 1
                await self._settle(OUTSTANDING_MAX)

    async def _settle(self, outstanding_max: int) -> None:
        """Count acknowledged messages, and wait until at most ``outstanding_max`` are not
        acknowledged.

        Raises:
            PublishFailed: the broker refused a message.
        """
        while self._outstanding:
            _, publication = self._outstanding[0]
            if len(self._outstanding) <= outstanding_max and not publication.is_done:
                return
            await publication
            self._outstanding.popleft()
            self._done += 1

    def _progress(self) -> Progress:
        text = f"{self._done:,} messages"
        if self._selection is None or not self._selection.spans:
            return Progress(0, None, text)
        spans = self._selection.spans
        done = sum(min(max(self._next_offset, start), end) - start for start, end in spans)
        return Progress(done, sum(end - start for start, end in spans), text)

    def _summary(self) -> str:
        """Return in words how many messages were published, and the options for the rest."""
        while self._outstanding and self._outstanding[0][1].reason_code is not None:
            if (self._outstanding[0][1].reason_code or 0) >= 0x80:
                break
            self._outstanding.popleft()
            self._done += 1
        done = _published_text(self._done)
        if self._selection is None:
            return done
        offset = self._outstanding[0][0] if self._outstanding else self._next_offset
        return f"{done}; the rest: {self._selection.options_from(offset)}, without --last"


def _published_text(count: int) -> str:
    return f"{count_text(count, 'message')} {'was' if count == 1 else 'were'} published"
