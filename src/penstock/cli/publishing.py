"""The work of `penstock pub`: publish, and end when the broker has acknowledged everything.

::

      lines, repeats ─▶ accepted: in the queue, or on disk in the outbox ─▶ acknowledged
                 ▲ waits for room ──╯                                 all of them: exit code 0
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, final

from penstock.cli.client_program import uncancel
from penstock.cli.exit_codes import EXIT_TIMED_OUT
from penstock.cli.input_lines import InputLines
from penstock.cli.progress import Progress, show_progress
from penstock.client import Client, Publication
from penstock.errors import PublishFailed
from penstock.protocol.properties import Properties

_BATCH_MESSAGES_MAX: Final = 1000


async def publish(
    run: PublishRun,
    work: Callable[[], Awaitable[None]],
    timeout_s: float | None,
    quiet: bool,
) -> int:
    """Publish, and wait for the acknowledgements; return the exit code.

    Args:
        run: the run, whose client is not open yet.
        work: publishes the messages of the run.
        timeout_s: give up after so many seconds; None: never.
        quiet: print nothing.

    Raises:
        PublishFailed: some messages are not acknowledged.
    """
    client = run.client
    interrupted = False
    try:
        async with (
            asyncio.timeout(timeout_s) as time,
            client,
            show_progress(run.progress, enabled=not quiet),
        ):
            try:
                await work()
                await run.wait_until_acknowledged()
            except asyncio.CancelledError:
                if time.expired() or not client.is_connected:
                    raise
                interrupted = True  # a signal: wait a while for accepted messages
                uncancel()
    except TimeoutError:
        if not time.expired():
            raise
        if not quiet:
            print(f"penstock: {run.summary()}", file=sys.stderr)
        return EXIT_TIMED_OUT
    if interrupted:
        run.check_after_interruption()
    return 0


@final
class PublishRun:
    """One run of `penstock pub`: publishes its messages, and counts the acknowledged ones.

    Args:
        client: the client, opened by ``publish``.
        topic: topic name.
        qos: 0 to 2.
        retain: whether the messages are retained.
        properties: MQTT 5 properties of the messages.
    """

    def __init__(
        self, client: Client, topic: str, qos: int, retain: bool, properties: Properties | None
    ) -> None:
        self.client = client
        self._topic = topic
        self._qos = qos
        self._retain = retain
        self._properties = properties
        self._outstanding: deque[Publication] = deque()
        self._accepted = 0
        self._acknowledged = 0
        self._first_failure: PublishFailed | None = None
        self._failed = 0
        self._repeat_count: int | None = None
        self._input: InputLines | None = None

    def progress(self) -> Progress:
        """Return the progress of the run."""
        text = f"{self._acknowledged:,} messages"
        if self._input is not None:
            return Progress(self._input.bytes_read, self._input.size_bytes, text)
        return Progress(self._acknowledged, self._repeat_count, text)

    async def publish_lines(self) -> None:
        """Publish each line of standard input."""
        self._input = InputLines()
        async for batch in self._input.batches():
            await self._accept(batch)

    async def publish_nothing(self) -> None:
        """Publish no new message: the client sends the messages that remain in the outbox."""

    async def publish_repeatedly(self, payload: bytes, count: int, delay_s: float) -> None:
        """Publish ``payload`` ``count`` times, with a pause of ``delay_s`` after each
        acknowledgement."""
        self._repeat_count = count
        batch_size = 1 if delay_s else _BATCH_MESSAGES_MAX
        for start in range(0, count, batch_size):
            if start and delay_s:
                await self.wait_until_acknowledged()
                await asyncio.sleep(delay_s)
            await self._accept([payload] * min(batch_size, count - start))

    async def wait_until_acknowledged(self) -> None:
        """Wait until the broker has acknowledged all messages, those of the outbox included.

        Raises:
            PublishFailed: the broker refused some messages.
        """
        while self._outstanding:
            await self._settle(self._outstanding.popleft())
        if self._first_failure is not None:
            counts = f" ({self._failed} of {self._accepted} messages failed)"
            first = self._first_failure
            text = first.message + (counts if self._accepted > 1 else "")
            raise PublishFailed(text, first.reason)
        await self.client.drain()

    def summary(self) -> str:
        """Return how many messages were acknowledged, in words."""
        remark = "; the outbox keeps the others" if self.client.options.outbox else ""
        total = self._total()
        return f"{self._acknowledged} of {total} messages were acknowledged{remark}"

    def _total(self) -> int:
        total = self._repeat_count if self._input is None else self._input.lines_read
        return total or 0

    def check_after_interruption(self) -> None:
        """Check that everything was acknowledged, after the client was closed.

        Raises:
            PublishFailed: some messages were not acknowledged.
        """
        for publication in self._outstanding:
            accepted = publication.reason_code is not None and publication.reason_code < 0x80
            self._acknowledged += accepted
        if self._acknowledged < self._total():
            raise PublishFailed(f"interrupted: {self.summary()}")

    async def _accept(self, payloads: list[bytes]) -> None:
        client, topic, qos = self.client, self._topic, self._qos
        retain, properties = self._retain, self._properties
        self._accepted += len(payloads)
        if qos == 0:
            for payload in payloads:
                await client.publish(topic, payload, 0, retain, properties)
                self._acknowledged += 1
            return
        if client.options.outbox is None:
            for payload in payloads:
                publication = await client.send(topic, payload, qos, retain, properties)
                self._outstanding.append(publication)
        else:  # one synced write for all payloads
            sending = [client.send(topic, payload, qos, retain, properties) for payload in payloads]
            self._outstanding.extend(await asyncio.gather(*sending))
        while self._outstanding and self._outstanding[0].is_done:
            await self._settle(self._outstanding.popleft())

    async def _settle(self, publication: Publication) -> None:
        try:
            await publication
        except PublishFailed as error:
            self._failed += 1
            self._first_failure = self._first_failure or error
        else:
            self._acknowledged += 1
