"""The work of `penstock pub`: publish, and end when the broker has acknowledged.

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
from penstock.cli.input_lines import Lines
from penstock.cli.progress import Progress, progress_shown
from penstock.client import Client, Publication
from penstock.errors import PublishFailed
from penstock.protocol.properties import Properties

_AT_ONCE_MAX: Final = 1000


async def publish(
    publishing: Publishing,
    work: Callable[[], Awaitable[None]],
    timeout_s: float | None,
    quiet: bool,
) -> int:
    """Publish, and wait for the acknowledgements; return the exit code.

    Args:
        publishing: the messages, not begun.
        work: publishes them.
        timeout_s: give up after this; None: never.
        quiet: print nothing.

    Raises:
        PublishFailed: not everything is acknowledged.
    """
    client = publishing.client
    interrupted = False
    try:
        async with (
            asyncio.timeout(timeout_s) as time,
            client,
            progress_shown(publishing.progress, wanted=not quiet),
        ):
            try:
                await work()
                await publishing.delivered()
            except asyncio.CancelledError:
                if time.expired() or not client.is_connected:
                    raise
                interrupted = True  # a signal: wait a while for accepted messages
                uncancel()
    except TimeoutError:
        if not time.expired():
            raise
        if not quiet:
            print(f"penstock: time is over: {publishing.summary()}", file=sys.stderr)
        return EXIT_TIMED_OUT
    if interrupted:
        publishing.check_after_interruption()
    return 0


@final
class Publishing:
    """Publishes the messages of one run.

    Args:
        client: the client, opened by ``publish``.
        topic: topic name.
        qos: 0 to 2.
        retain: the broker keeps the last one.
        properties: properties of MQTT 5.
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
        self._delivered = 0
        self._failures: list[PublishFailed] = []  # only the first
        self._failed = 0
        self._wanted: int | None = None
        self._input: Lines | None = None

    def progress(self) -> Progress:
        """Return the progress of the run."""
        text = f"{self._delivered:,} messages"
        if self._input is not None:
            return Progress(self._input.read_bytes, self._input.size_bytes, text)
        return Progress(self._delivered, self._wanted, text)

    async def lines(self) -> None:
        """Publish each line of standard input."""
        self._input = Lines()
        async for batch in self._input.batches():
            await self._accept(batch)

    async def outbox_only(self) -> None:
        """Publish nothing new: only deliver what is left in the outbox."""

    async def repeated(self, payload: bytes, count: int, delay_s: float) -> None:
        """Publish ``payload`` ``count`` times; with a delay, that long after each delivery."""
        self._wanted = count
        at_once = 1 if delay_s else _AT_ONCE_MAX
        for start in range(0, count, at_once):
            if start and delay_s:
                await self.delivered()
                await asyncio.sleep(delay_s)
            await self._accept([payload] * min(at_once, count - start))

    async def delivered(self) -> None:
        """Wait until the broker has acknowledged all messages, those of the outbox included.

        Raises:
            PublishFailed: it refused some of them.
        """
        while self._outstanding:
            await self._settle(self._outstanding.popleft())
        if self._failures:
            more = f" ({self._failed} of {self._accepted} messages failed)"
            first = self._failures[0]
            shown = first.message + (more if self._accepted > 1 else "")
            raise PublishFailed(shown, first.reason)
        await self.client.drain()

    def summary(self) -> str:
        """Return how many messages were acknowledged, in words."""
        wanted = self._wanted if self._input is None else self._input.read
        kept = "; the outbox keeps what it has" if self.client.options.outbox else ""
        return f"{self._delivered} of {wanted or 0} messages were acknowledged{kept}"

    def check_after_interruption(self) -> None:
        """Check that everything was acknowledged, after the client was closed.

        Raises:
            PublishFailed: some messages were not acknowledged.
        """
        for publication in self._outstanding:
            accepted = publication.reason_code is not None and publication.reason_code < 0x80
            self._delivered += accepted
        wanted = self._wanted if self._input is None else self._input.read
        if self._delivered < (wanted or 0):
            raise PublishFailed(f"interrupted: {self.summary()}")

    async def _accept(self, payloads: list[bytes]) -> None:
        client, topic, qos = self.client, self._topic, self._qos
        retain, properties = self._retain, self._properties
        self._accepted += len(payloads)
        if qos == 0:
            for payload in payloads:
                await client.publish(topic, payload, 0, retain, properties)
                self._delivered += 1
            return
        if client.options.outbox is None:
            for payload in payloads:
                one = await client.send(topic, payload, qos, retain, properties)
                self._outstanding.append(one)
        else:  # one synced write for all
            sending = [client.send(topic, one, qos, retain, properties) for one in payloads]
            self._outstanding.extend(await asyncio.gather(*sending))
        while self._outstanding and self._outstanding[0].is_done:
            await self._settle(self._outstanding.popleft())

    async def _settle(self, publication: Publication) -> None:
        try:
            await publication
        except PublishFailed as error:
            self._failed += 1
            self._failures = self._failures or [error]
        else:
            self._delivered += 1
