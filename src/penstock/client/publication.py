"""The outcomes of published QoS 1 and 2 messages.

::

      send ─▶ PENDING ── PUBACK, PUBCOMP ─────────────▶ delivered
                 ├────── refused by the server ───────▶ failed
                 ╰────── dropped by the client: too ──▶ failed
                         old, too large for the server,
                         or no room

A publication is identified by the offset of its message, in the log of the outbox or in a counter
of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import final

from mypy_extensions import mypyc_attr

from penstock.engine.api import DeliveryOutcomes
from penstock.engine.values import drop_reasons
from penstock.engine.values.message import Delivery
from penstock.errors import PublishFailed
from penstock.protocol import reasons


@mypyc_attr(acyclic=True)
@final
class Publication:
    """The delivery of a QoS 1 or 2 message; await it to wait for the server's answer.

    Attributes:
        topic: topic name.
        reason_code: the server's MQTT 5 reason code, in all versions: 0, or 0x10 if nobody
            subscribes; 0x80 or more if the delivery failed; None while it is pending.
    """

    __slots__ = ("_error", "_waiters", "reason_code", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.reason_code: int | None = None
        self._error: PublishFailed | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def is_done(self) -> bool:
        """True if the message was delivered, or its delivery failed."""
        return self.reason_code is not None

    def __await__(self) -> Generator[None, None, int]:
        """Wait for the delivery; return the server's reason code, below 0x80.

        Cancelling the wait does not withdraw the message.

        Raises:
            PublishFailed: the server refused the message, or the client dropped it.
        """
        if self.reason_code is None:
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise PublishFailed(self._error.message, self._error.reason, self._error.is_kept)
        assert self.reason_code is not None
        return self.reason_code

    def settle(self, reason_code: int, error: PublishFailed | None) -> None:
        """Record the outcome, once, and wake the waiting tasks."""
        assert self.reason_code is None, "a publication is settled once"
        self.reason_code = reason_code
        self._error = error
        if self._waiters is not None:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = None


@final
class Publications(DeliveryOutcomes):
    """The pending publications of one client, by the offsets of their messages."""

    def __init__(self) -> None:
        self._pending: dict[int, Publication] = {}  # by offset, oldest first
        self.qos0_drop_reason = -1  # of the latest QoS 0 message; -1: not dropped

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, offset: int, topic: str) -> Publication:
        """Add the publication of the message at ``offset``, and return it."""
        assert offset not in self._pending, "each message has an offset of its own"
        publication = Publication(topic)
        self._pending[offset] = publication
        return publication

    def on_acknowledged(self, delivery: Delivery, reason_code: int) -> None:
        """Settle the publication of a message that the server has acknowledged."""
        publication = self._pending.pop(delivery.offset, None)
        if publication is not None:
            publication.settle(reason_code, None)

    def on_refused(self, delivery: Delivery, reason_code: int) -> None:
        """Fail the publication of a message that the server refused."""
        why = reasons.name_of(reason_code)
        self._fail(delivery.offset, f"the server refused the message: {why}", reason_code)

    def on_drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Fail the publication of a message that the client dropped."""
        del client_id
        if delivery.qos == 0:
            self.qos0_drop_reason = reason
            return
        self._fail(delivery.offset, f"dropped: {drop_reasons.REASONS[reason]}", 0)

    def fail_all(self, why: str, is_kept: bool = False) -> None:
        """Fail all pending publications.

        Args:
            why: the reason, one sentence.
            is_kept: whether the outbox still has the messages.
        """
        for known in list(self._pending):
            self._fail(known, why, 0, is_kept)

    def _fail(self, offset: int, why: str, reason_code: int, is_kept: bool = False) -> None:
        publication = self._pending.pop(offset, None)
        if publication is not None:
            error = PublishFailed(f"{publication.topic}: {why}", reason_code, is_kept)
            publication.settle(reason_code or reasons.UNSPECIFIED_ERROR, error)
