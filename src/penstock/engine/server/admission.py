"""Asks whether there is room for a message that a client publishes: one question, in one order.

::

      1  the store can write                        else it waits for the store
      2  QoS 2: not too many await their PUBREL     else it waits for the client's own PUBRELs
      3  no queue refuses it (``reject``)           else it waits for that queue
      4  MQTT 5: it can be retained, if it is to be else it is refused
      5  MQTT 3.1, QoS 2: memory until its PUBREL   else the connection ends

A message of an MQTT 5 client does not wait for room: it is refused with 0x97, which means that no
subscriber got it. (It waits in order, though, behind a QoS 2 message that the session took over
from a connection of MQTT 3.1: ``publish_handler``.) A message of QoS 0 has nobody to answer to,
and is not asked for. Room that was found may be used up later, so the caller routes the message at
once.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.blocked_publishers import Blocker
from penstock.engine.routing.router import Plan
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.engine.values import drop_reasons
from penstock.engine.values.message import Message
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31

OK: Final = 0
WAIT: Final = 1
REFUSE: Final = 2

NO_ROOM_NOW: Final = "there is no room for it now"
_RETAINED_FULL: Final = "there is no room for more retained messages"


@final
class Room:
    """The answer: ``OK``, ``WAIT`` or ``REFUSE``.

    Args:
        kind: one of the three.
        on: the store or queue that a message waits for; None: for PUBRELs of its own client.
        why: the reason string of a refusal with 0x97.
        plan: the sessions that get the message, if they were looked for already.
    """

    def __init__(
        self, kind: int, on: Blocker | None = None, why: str = "", plan: Plan | None = None
    ) -> None:
        self.kind = kind
        self.on = on
        self.why = why
        self.plan = plan


_ROOM: Final = Room(OK)


@final
class Admission:
    """Asks for the messages of one connection.

    Args:
        server: the broker.
    """

    def __init__(self, server: Server) -> None:
        self._router = server.router
        self._health = server.context.store_health
        self._store = server.context.blocked_publishers.store
        self._drops = server.drops

    def room_for(self, message: Message, session: Session, version: int) -> Room:
        """Return whether there is room for ``message``, of QoS 1 or 2, that ``session`` publishes.

        Args:
            message: the message; one that cannot be retained is counted as dropped.
            session: the session of the publisher.
            version: the protocol version of its connection.

        Raises:
            RemoteProtocolError: 0x97, memory has no room for messages before their PUBREL.
        """
        at_pubrel = message.qos == 2 and version == V31
        if self._health.is_failing:
            return self._wait_for(self._store, self._health.failure, version)
        if message.qos == 2 and not session.has_room_to_receive():
            return self._wait_for(None, NO_ROOM_NOW, version)
        room = _ROOM
        if self._router.may_refuse and not at_pubrel:
            plan = self._router.plan(message, session)
            if plan.blocker is not None:
                return self._wait_for(plan.blocker, NO_ROOM_NOW, version)
            room = Room(OK, plan=plan)
        if message.retain and version == V5 and not self._is_retainable(message, session):
            return Room(REFUSE, why=_RETAINED_FULL)
        if at_pubrel and not session.account.has_room_for_unreleased():
            raise RemoteProtocolError(
                reasons.QUOTA_EXCEEDED, "there is no room for more messages without PUBREL"
            )
        return room

    def must_wait_for_pubrel(self, qos: int, session: Session, version: int) -> bool:
        """Return whether a message waits until the client sends a PUBREL.

        It is asked before anything else of clients before MQTT 5: even a message that is not
        permitted awaits its PUBREL.
        """
        return qos == 2 and version != V5 and not session.has_room_to_receive()

    def blocker_of(self, message: Message | None, session: Session | None) -> Blocker | None:
        """Return what a message that waits still waits for: the store, or a queue; None if there
        is room now. ``message`` is None if the store blocks all messages."""
        if self._health.is_failing:
            return self._store
        return None if message is None else self._router.plan(message, session).blocker

    def is_store(self, blocker: Blocker) -> bool:
        """Return whether ``blocker`` is the store, which blocks all messages."""
        return blocker is self._store

    def _wait_for(self, blocker: Blocker | None, why: str, version: int) -> Room:
        if version == V5:
            return Room(REFUSE, why=why or NO_ROOM_NOW)
        return Room(WAIT, blocker)

    def _is_retainable(self, message: Message, session: Session) -> bool:
        if not message.payload or self._router.retained.has_room(message, session.account):
            return True
        self._drops.count(drop_reasons.RETAINED_FULL, message.client_id, message.topic)
        return False
