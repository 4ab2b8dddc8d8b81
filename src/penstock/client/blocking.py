"""The client for programs without an event loop: scripts, notebooks, threads.

::

      thread of the program ── call ─▶ event loop in the client's thread ── Client ─▶ server
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
    """A ``Message`` for use in any thread: calls are passed on to the client's event loop."""

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
        """The payload as text; see ``Message.text``."""
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
            raise LocalProtocolError(
                reason_code, f"no reason code to refuse a message with: {reason_code}"
            )
        _call_soon(self._loop, self._message.refuse, reason_code)

    def defer(self) -> None:
        """Keep the message unacknowledged until ``acknowledge``; see ``Message.defer``."""
        self._message.defer()

    def processing(self, *, refuse: int = 0) -> BlockingProcessing:
        """Return a ``with`` block that acknowledges at its end; see ``Message.processing``."""
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
        url: the server's URL or URLs, as for ``Client``.
        settings: the settings of ``Client``; ``status_changed`` is called in the client's thread.

    Raises:
        ConfigError: a setting is not valid.
    """

    def __init__(
        self, url: str | Sequence[str] = "mqtt://localhost", **settings: Unpack[Settings]
    ) -> None:
        self._client = Client(url, **settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._close_lock = threading.Lock()

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
        """Open the outbox, if there is one, and connect; see ``Client.open``."""
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
            self._stop_loop()
            raise

    def close(self, drain: bool = True) -> None:
        """Disconnect; see ``Client.close``. Calls that wait in other threads raise an error."""
        with self._close_lock:
            if self._loop is None:
                return
            try:
                self._call(self._client.close(drain))
            finally:
                self._stop_loop()

    def _stop_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_other_tasks(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    @property
    def connack(self) -> Connack | None:
        """The server's latest CONNACK; see ``Client.connack``."""
        return self._client.connack

    def connect_now(self) -> None:
        """Try to connect at once; see ``Client.connect_now``."""
        self._open_loop().call_soon_threadsafe(self._client.connect_now)

    @property
    def client_id(self) -> str:
        """The client identifier; see ``Client.client_id``."""
        return self._client.client_id

    @property
    def status(self) -> Status:
        """The state of the connection to the server; see ``Client.status``."""
        return self._client.status

    @property
    def is_connected(self) -> bool:
        """True while the client is connected; see ``Client.is_connected``."""
        return self._client.is_connected

    @property
    def pending(self) -> int:
        """The number of unacknowledged messages; see ``Client.pending``."""
        return self._client.pending

    @property
    def last_sequence(self) -> int:
        """The ``sequence`` of the latest message with one; see ``Client.last_sequence``."""
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
        """Publish, and wait for the delivery that the QoS guarantees; see ``Client.publish``.

        Args:
            topic: as for ``Client.publish``.
            payload: as for ``Client.publish``.
            qos: as for ``Client.publish``.
            retain: as for ``Client.publish``.
            properties: as for ``Client.publish``.
            timeout_s: time limit of the wait, seconds; None for no limit.
            receipt: as for ``Client.publish``.

        Returns:
            The server's reason code, below 0x80.

        Raises:
            TimeoutError: the delivery took longer than ``timeout_s``; it continues.
        """
        publishing = self._client.publish(topic, payload, qos, retain, properties, receipt)
        return self._call(publishing, timeout_s)

    def wait_landed(self, receipt: Receipt, timeout_s: float | None = None) -> TableLocation:
        """Wait until the message published with ``receipt`` is in its table; return its location.

        Args:
            receipt: the receipt that was passed to ``publish``.
            timeout_s: time limit of the wait, seconds; None for no limit.

        Raises:
            TimeoutError: the wait took longer than ``timeout_s``; it may be repeated.
        """
        return self._call(_await_receipt(receipt), timeout_s)

    def send(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
        sequence: int | None = None,
    ) -> None:
        """Publish, and return once the message is queued or on disk; see ``Client.send``."""
        self._call(self._client.send(topic, payload, qos, retain, properties, sequence))

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until the server has acknowledged all messages; see ``Client.drain``.

        Args:
            timeout_s: time limit of the wait, seconds; None for no limit.

        Raises:
            TimeoutError: the wait took longer than ``timeout_s``.
        """
        self._call(self._client.drain(), timeout_s)

    def subscribe(
        self,
        *topic_filters: str | Subscription,
        qos: int = 1,
        properties: Properties | None = None,
        timeout_s: float | None = None,
    ) -> list[int]:
        """Subscribe, and return the granted QoS of each filter; see ``Client.subscribe``."""
        subscribing = self._client.subscribe(*topic_filters, qos=qos, properties=properties)
        return self._call(subscribing, timeout_s)

    def unsubscribe(self, *topic_filters: str, timeout_s: float | None = None) -> list[int]:
        """Unsubscribe, and return the server's reason codes; see ``Client.unsubscribe``."""
        return self._call(self._client.unsubscribe(*topic_filters), timeout_s)

    def messages(self, timeout_s: float | None = None) -> Iterator[BlockingMessage]:
        """Yield received messages, one after the other; see ``Client.messages``.

        Args:
            timeout_s: end if no message arrives for so many seconds; None to end when the client
                is closed.
        """
        loop = self._open_loop()
        messages = self._client.messages()
        try:
            while True:
                try:
                    message = self._call(_next_message(messages), timeout_s)
                except (TimeoutError, NotConnected):  # another thread has closed the client
                    return
                if message is None:
                    return
                yield BlockingMessage(message, loop)
        finally:  # a message that was not acknowledged is handed over again
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
        """Publish a request, and return its response; see ``Client.request``."""
        requesting = self._client.request(topic, payload, qos, timeout_s, properties)
        return BlockingMessage(self._call(requesting), self._open_loop())

    def _open_loop(self) -> asyncio.AbstractEventLoop:
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
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise NotConnected("the client was closed") from None
        except BaseException:
            future.cancel()
            raise


def _call_soon(
    loop: asyncio.AbstractEventLoop, act: Callable[..., object], *arguments: object
) -> None:
    """Schedule a call of ``act`` in the client's loop; do nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *arguments)


async def _cancel_other_tasks() -> None:
    """Cancel all other tasks of the running loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _await_receipt(receipt: Receipt) -> TableLocation:
    return await receipt


async def _next_message(messages: Messages) -> Message | None:
    try:
        return await anext(messages)
    except StopAsyncIteration:
        return None
