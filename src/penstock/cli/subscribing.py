"""The work of `penstock sub`: print messages, and acknowledge them once printed.

::

      message ─▶ left out? ─▶ printed, flushed ─▶ acknowledged ─▶ counted
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from penstock.cli.exit_codes import EXIT_TIMED_OUT
from penstock.cli.output import Output
from penstock.cli.printing import Printer
from penstock.cli.selection import Selection
from penstock.client import Client, Message
from penstock.protocol.packets import Subscription
from penstock.protocol.properties import Properties


@dataclass(frozen=True, slots=True)
class Subscribing:
    """The subscriptions to begin and to end.

    Attributes:
        subscriptions: the subscriptions to begin.
        ended: filters of those to end.
        properties: the properties of ``-D``, by command.
    """

    subscriptions: list[Subscription]
    ended: list[str]
    properties: dict[str, Properties]

    async def ask(self, client: Client) -> None:
        """Send them, and wait for the answers.

        Raises:
            SubscribeFailed: the broker refused.
        """
        if self.subscriptions:
            await client.subscribe(*self.subscriptions, properties=self.properties.get("subscribe"))
        if self.ended:
            await client.unsubscribe(*self.ended, properties=self.properties.get("unsubscribe"))


async def only_subscribe(client: Client, subscribing: Subscribing) -> int:
    """Subscribe and unsubscribe; return the exit code once the broker has answered."""
    async with client:
        await subscribing.ask(client)
    return 0


async def read(client: Client, subscribing: Subscribing, reader: MessageReader) -> int:
    """Subscribe and read; return the exit code."""
    try:
        async with client:
            try:
                async with asyncio.timeout(reader.selection.timeout_s) as time:
                    await subscribing.ask(client)
                    await reader.run()
            except TimeoutError:
                if not time.expired():
                    raise
                return EXIT_TIMED_OUT
    except asyncio.CancelledError:  # SIGINT and SIGTERM are the usual end
        pass
    return 0


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Prints, counts and acknowledges received messages.

    Attributes:
        client: the client, subscribed.
        selection: says which messages are printed.
        printer: formats them.
        output: writes them.
    """

    client: Client
    selection: Selection
    printer: Printer
    output: Output

    async def run(self) -> None:
        """Read until the selection says that it is over.

        Raises:
            OutputFailed: a message could not be written, and is not acknowledged.
            BrokenPipeError: the reader of the output is gone; likewise.
        """
        selection = self.selection
        count = 0
        async for message in self._messages():
            if selection.retained_only and not message.retain:
                return
            if await self._one(message):
                count += 1
                if count == selection.count:
                    return

    async def _messages(self) -> AsyncIterator[Message]:
        """Yield the messages; retained ones end with a time of silence.

        MQTT does not say which retained message is the last. They come behind SUBACK, but an
        answer to PINGREQ may overtake them, where they wait for the window or their broker sends
        them in portions: only silence works with every broker.
        """
        messages = self.client.messages()
        quiet_s = self.selection.quiet_after_s if self.selection.retained_only else None
        while True:
            try:
                async with asyncio.timeout(quiet_s) as quiet:
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not quiet.expired():
                    raise
                return
            yield message

    async def _one(self, message: Message) -> bool:
        """Print a message unless it is left out, and acknowledge it; return whether it was
        printed."""
        selection = self.selection
        async with message.processing():
            if selection.leaves_out(message.topic):
                return False
            if message.retain and selection.remove_retained:
                await self.client.publish(message.topic, b"", qos=1, retain=True)
            if message.retain and selection.no_retained:
                return False
            await self.output.write(message.topic, self.printer(message))
            return True
