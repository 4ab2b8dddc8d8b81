"""The outlet of a session: which messages its receiver gets, at which QoS, and under which topic.

::

      message ─▶ Outlet.passage ── None ─▶ not for this receiver
                     ╰── Passage ─▶ queued, or in flight ─▶ Outlet.outgoing ─▶ PUBLISH

A session without an outlet sends every message as it is. A client has one if its user's permissions
or its listener's mount point limit what it sees. A message that waited is asked about again before
it is sent, because permissions change, and a session may be resumed through another listener.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.values.access import Permissions
from penstock.engine.values.event_kinds import ACKNOWLEDGED
from penstock.engine.values.message import Message
from penstock.engine.values.mount_point import without_mount_point


class Passage:
    """The terms on which one message leaves a session.

    Args:
        qos_max: the highest QoS with which it may be sent.
        keeps_retain: whether RETAIN stays as it was published.
    """

    def __init__(self, qos_max: int, keeps_retain: bool) -> None:
        self.qos_max = qos_max
        self.keeps_retain = keeps_retain


UNCHANGED: Final = Passage(2, True)


class Outlet:
    """The outlet of a client's session.

    Args:
        permissions: the permissions of its user; None = everything is allowed.
        mount_point: the prefix of the topics that the client sees, without which it sees them.

    Attributes:
        is_of_settings: whether the settings say what goes out, and not a client's permissions:
            then a message that does not is no drop.
        acknowledged_kind: the kind of the event when the receiver has acknowledged a message.
    """

    def __init__(self, permissions: Permissions | None, mount_point: str = "") -> None:
        self.permissions = permissions
        self.mount_point = mount_point
        self.is_of_settings = False
        self.acknowledged_kind: int = ACKNOWLEDGED

    def may_receive(self, topic: str) -> bool:
        """Return whether the receiver is permitted to receive messages with this topic."""
        return self.permissions is None or self.permissions.may_receive(topic)

    def passage(self, message: Message) -> Passage | None:
        """Return how ``message`` leaves the session; None if it does not."""
        return UNCHANGED if self.may_receive(message.topic) else None

    def outgoing(self, message: Message, passage: Passage, version: int) -> Message | None:
        """Return the form in which ``message`` is sent; None if the receiver cannot see its topic.

        Args:
            message: the message, as it was published.
            passage: the answer of ``passage`` about it.
            version: protocol level of the link.
        """
        del passage, version
        return without_mount_point(message, self.mount_point) if self.mount_point else message

    def note_sent(self) -> None:
        """Note that a PUBLISH was sent, for the first time or again."""

    def note_resent(self) -> None:
        """Note that the PUBLISH that was sent last is a repeat."""

    def note_acknowledged(self) -> None:
        """Note that the receiver acknowledged a message, by PUBACK or PUBCOMP."""
