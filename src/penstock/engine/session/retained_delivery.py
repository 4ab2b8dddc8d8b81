"""The retained messages for a new subscription, delivered to the session in portions.

::

      SUBSCRIBE ─▶ RetainedDelivery ── next ─▶ session ─▶ window ─▶ link     while there is room
                        ╰── end of a portion ─▶ continued in the next turn

The session takes the next message when its window has room, so that any number of messages is
delivered, and only the messages in flight take memory. Another SUBSCRIBE with the same filter
replaces the delivery, and UNSUBSCRIBE ends it.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.clock import Now
from penstock.engine.message import Message
from penstock.engine.session.retained import RetainedMessages

PORTION: Final = 256  # nodes of the tree visited in one turn


@final
class RetainedDelivery:
    """The retained messages that are not delivered yet for one subscription.

    Args:
        retained: the retained messages.
        topic_filter: the filter of the subscription.
        qos: the granted QoS.
        subscription_ids: subscription identifiers to send with each message.
        excluded_client_id: the client identifier whose messages are omitted (No Local), or None.
        is_logged: whether messages delivered at QoS 1 or 2 are appended to the log, for a stored
            session.
        context: the parts of the broker that it acts on.
    """

    def __init__(
        self,
        retained: RetainedMessages,
        topic_filter: str,
        qos: int,
        subscription_ids: tuple[int, ...],
        excluded_client_id: str | None,
        is_logged: bool,
        context: EngineContext,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.subscription_ids = subscription_ids
        self.visits_left = 0  # nodes that ``next`` may visit
        self._retained_messages = retained
        self._walk = retained.walk(topic_filter)
        self._excluded_client_id = excluded_client_id
        self._is_logged = is_logged
        self._context = context

    @property
    def is_finished(self) -> bool:
        """Return whether all retained messages were visited."""
        return self._walk.is_finished

    def next(self, now: Now) -> Message | None:
        """Return the next message; None if all were visited, or ``visits_left`` is 0."""
        before = self.visits_left
        message = self._find(now)
        self._context.turn.work_budget.work_done += before - self.visits_left
        return message

    def _find(self, now: Now) -> Message | None:
        walk = self._walk
        while self.visits_left > 0 and not walk.is_finished:
            self.visits_left -= 1
            message = walk.step()
            if message is None:
                continue
            if message.is_expired(now.steady_us):
                self._retained_messages.remove(message.topic)
                self._context.batch.put_retained(message.topic, None)
            elif self._excluded_client_id is None or message.client_id != self._excluded_client_id:
                if self._is_logged and min(message.qos, self.qos) > 0:
                    message = message.copy_for_session()
                    self._context.batch.append(message)
                return message
        return None
