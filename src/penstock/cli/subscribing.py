"""The work of `penstock sub`: print messages, and acknowledge each once it is printed.

::

      message ─▶ excluded? ─▶ printed, flushed ─▶ acknowledged ─▶ counted
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
class SubscriptionRequest:
    """The subscriptions to begin, and the filters to unsubscribe from.

    Attributes:
        subscriptions: the subscriptions to begin.
        unsubscribe_filters: the topic filters to unsubscribe from.
        properties: the properties of ``-D``, by command.
    """

    subscriptions: list[Subscription]
    unsubscribe_filters: list[str]
    properties: dict[str, Properties]

    async def send(self, client: Client) -> None:
        """Send SUBSCRIBE and UNSUBSCRIBE, and wait for the answers.

        Raises:
            SubscribeFailed: the broker refused a subscription.
        """
        if self.subscriptions:
            await client.subscribe(*self.subscriptions, properties=self.properties.get("subscribe"))
        if self.unsubscribe_filters:
            await client.unsubscribe(
                *self.unsubscribe_filters, properties=self.properties.get("unsubscribe")
            )


async def only_subscribe(client: Client, request: SubscriptionRequest) -> int:
    """Subscribe and unsubscribe; return the exit code once the broker has answered."""
    async with client:
        await request.send(client)
    return 0


async def read(client: Client, request: SubscriptionRequest, reader: MessageReader) -> int:
    """Subscribe, and print messages until the reader ends; return the exit code."""
    try:
        async with asyncio.timeout(reader.selection.timeout_s) as time, client:
            await request.send(client)
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
        client: the client, which has subscribed.
        selection: selects the messages to print, and ends the reading.
        printer: formats a message.
        output: writes formatted messages.
    """

    client: Client
    selection: Selection
    printer: Printer
    output: Output

    async def run(self) -> None:
        """Print messages until the selection ends the reading.

        Raises:
            OutputFailed: a message could not be written, and is not acknowledged.
            BrokenPipeError: the reader of the output has ended; the message is not acknowledged.
        """
        selection = self.selection
        count = 0
        async for message in self._messages():
            if selection.retained_only and not message.retain:
                return
            if await self._print(message):
                count += 1
                if count == selection.count:
                    return

    async def _messages(self) -> AsyncIterator[Message]:
        """Yield the messages; with ``retained_only`` until none was received for ``quiet_after_s``.

        MQTT does not tell which retained message is the last. They follow SUBACK, but an answer to
        PINGREQ may overtake them if they wait for the window, or if the broker sends them in
        portions: only silence works with every broker.
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

    async def _print(self, message: Message) -> bool:
        """Print a message unless the selection excludes it, and acknowledge it; return whether it
        was printed."""
        selection = self.selection
        async with message.processing():
            if selection.excludes(message.topic):
                return False
            if message.retain and selection.remove_retained:
                await self.client.publish(message.topic, b"", qos=1, retain=True)
            if message.retain and selection.no_retained:
                return False
            await self.output.write(message.topic, self.printer(message))
            return True
