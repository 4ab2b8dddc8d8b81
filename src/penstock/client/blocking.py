"""The client for programs without an event loop: scripts, notebooks, threads.

::

      thread of the program ── call ─▶ loop in a thread of our own ── Client ─▶ server
                            ◀─ result ─
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, final

from penstock.client.checks import Payload
from penstock.client.client import Client
from penstock.client.inbox import Messages
from penstock.client.message import Message, Processing, is_refusal
from penstock.client.options import Settings, Status
from penstock.client.receipts import Receipt, TableLocation
from penstock.errors import ClientError, LocalProtocolError, NotConnected
from penstock.protocol.packets import Connack, Subscription
from penstock.protocol.properties import Properties

Result = TypeVar("Result")


@final
class BlockingMessage:
    """A ``Message`` for another thread than the client's own: its calls block."""

    def __init__(self, message: Message, loop: asyncio.AbstractEventLoop) -> None:
        self._message = message
        self._loop = loop
        self.topic = message.topic
        self.payload = message.payload
        self.qos = message.qos
        self.retain = message.retain
        self.duplicate = message.duplicate
        self.attempt = message.attempt
        self.properties = message.properties
        self.id = message.id

    def __repr__(self) -> str:
        return f"Blocking{self._message!r}"

    @property
    def text(self) -> str:
        """See ``Message.text``."""
        return self._message.text

    def json(self) -> Any:
        """Parse the payload; see ``Message.json``."""
        return self._message.json()

    def acknowledge(self) -> None:
        """Acknowledge the message; see ``Message.acknowledge``."""
        _call_soon(self._loop, self._message.acknowledge)

    def refuse(self, reason_code: int = 0x80) -> None:
        """Refuse the message; see ``Message.refuse``."""
        if not is_refusal(reason_code):
            raise LocalProtocolError(reason_code, f"no code to refuse a message: {reason_code}")
        _call_soon(self._loop, self._message.refuse, reason_code)

    def defer(self) -> None:
        """Leave the acknowledgement to a later call; see ``Message.defer``."""
        self._message.defer()

    def processing(self, *, refuse: int = 0) -> BlockingProcessing:
        """Process in a block: ``with message.processing():``; see ``Message.processing``."""
        return BlockingProcessing(self, self._message.processing(refuse=refuse), self._loop)


@final
class BlockingProcessing:
    """A ``with`` block that processes one message."""

    def __init__(
        self, message: BlockingMessage, processing: Processing, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._message = message
        self._processing = processing
        self._loop = loop

    def __enter__(self) -> BlockingMessage:
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _call_soon(self._loop, self._processing.__exit__, kind, None, None)


@final
class BlockingClient:
    """A client that can be used from any thread.

    Args:
        url: as for ``Client``.
        settings: as for ``Client``; ``status_changed`` is called in the client's own thread.

    Raises:
        ConfigError: a setting is not valid.
    """

    def __init__(
        self, url: str | Sequence[str] = "mqtt://localhost", **settings: Unpack[Settings]
    ) -> None:
        self._client = Client(url, **settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain=kind is None)

    def open(self) -> None:
        """Connect; see ``Client.open``."""
        if self._thread is not None:
            raise ClientError("a client is opened once")
        loop = asyncio.new_event_loop()
        self._loop = loop
        thread = threading.Thread(target=loop.run_forever, name="penstock client", daemon=True)
        self._thread = thread
        thread.start()
        try:
            self._call(self._client.open())
        except BaseException:
            self._end_loop()
            raise

    def close(self, drain: bool = True) -> None:
        """Disconnect; see ``Client.close``. Waiting calls of other threads raise an error."""
        with self._ending:
            if self._loop is None:
                return
            try:
                self._call(self._client.close(drain))
            finally:
                self._end_loop()

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    @property
    def connack(self) -> Connack | None:
        """See ``Client.connack``."""
        return self._client.connack

    def connect_now(self) -> None:
        """Try to connect at once; see ``Client.connect_now``."""
        self._running().call_soon_threadsafe(self._client.connect_now)

    @property
    def client_id(self) -> str:
        """See ``Client.client_id``."""
        return self._client.client_id

    @property
    def status(self) -> Status:
        """See ``Client.status``."""
        return self._client.status

    @property
    def is_connected(self) -> bool:
        """See ``Client.is_connected``."""
        return self._client.is_connected

    @property
    def pending(self) -> int:
        """See ``Client.pending``."""
        return self._client.pending

    @property
    def last_sequence(self) -> int:
        """See ``Client.last_sequence``."""
        return self._client.last_sequence

    def publish(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        timeout_s: float | None = None,
        receipt: Receipt | None = None,
    ) -> int:
        """Publish, and wait for what the QoS promises; see ``Client.publish``.

        Raises:
            TimeoutError: not within ``timeout_s``; the message is still on its way.
        """
        publishing = self._client.publish(topic, payload, qos, retain, properties, receipt)
        return self._call(publishing, timeout_s)

    def wait_landed(self, receipt: Receipt, timeout_s: float | None = None) -> TableLocation:
        """Wait until a message published with this receipt is in its table; return its place.

        Raises:
            TimeoutError: not within ``timeout_s``; one may wait for it again.
        """
        return self._call(_landed(receipt), timeout_s)

    def send(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish, and return when the message is accepted; see ``Client.send``."""
        self._call(self._client.send(topic, payload, qos, retain, properties, sequence))

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until the server has everything; see ``Client.drain``.

        Raises:
            TimeoutError: not within ``timeout_s``.
        """
        self._call(self._client.drain(), timeout_s)

    def subscribe(
        self,
        *topic_filters: str | Subscription,
        qos: int = 1,
        properties: Properties | None = None,
        timeout_s: float | None = None,
    ) -> list[int]:
        """Subscribe; see ``Client.subscribe``."""
        asking = self._client.subscribe(*topic_filters, qos=qos, properties=properties)
        return self._call(asking, timeout_s)

    def unsubscribe(self, *topic_filters: str, timeout_s: float | None = None) -> list[int]:
        """End subscriptions; see ``Client.unsubscribe``."""
        return self._call(self._client.unsubscribe(*topic_filters), timeout_s)

    def messages(self, timeout_s: float | None = None) -> Iterator[BlockingMessage]:
        """Yield received messages, one after the other; see ``Client.messages``.

        Args:
            timeout_s: end when none came for so many seconds; None: when the client is closed.
        """
        loop = self._running()
        messages = self._client.messages()
        try:
            while True:
                try:
                    message = self._call(_next(messages), timeout_s)
                except (TimeoutError, NotConnected):  # closed meanwhile, by another thread
                    return
                if message is None:
                    return
                yield BlockingMessage(message, loop)
        finally:  # a message that was not acknowledged comes again
            if self._loop is not None and threading.current_thread() is not self._thread:
                with contextlib.suppress(NotConnected, CancelledError):
                    self._call(messages.aclose())

    def request(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        timeout_s: float = 10.0,
        properties: Properties | None = None,
    ) -> BlockingMessage:
        """Publish a request, and wait for its response; see ``Client.request``."""
        asking = self._client.request(topic, payload, qos, timeout_s, properties)
        return BlockingMessage(self._call(asking), self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotConnected("the client is not open: use it in 'with'")
        return self._loop

    def _call(
        self, coroutine: Coroutine[Any, Any, Result], timeout_s: float | None = None
    ) -> Result:
        if self._loop is None:
            coroutine.close()
            raise NotConnected("the client is not open: use it in 'with'")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientError("status_changed must not wait for the client: it runs in its thread")
        asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return asked.result(timeout_s)
        except CancelledError:
            raise NotConnected("the client was closed") from None
        except BaseException:
            asked.cancel()
            raise


def _call_soon(
    loop: asyncio.AbstractEventLoop, act: Callable[..., object], *arguments: object
) -> None:
    """Call ``act`` in the client's loop; if that is closed, the server keeps the message."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *arguments)


async def _cancel_others() -> None:
    """Cancel every other task of this loop, and wait for their end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _landed(receipt: Receipt) -> TableLocation:
    return await receipt


async def _next(messages: Messages) -> Message | None:
    try:
        return await anext(messages)
    except StopAsyncIteration:
        return None
