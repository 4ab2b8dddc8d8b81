"""Asks whether there is room for a message to one client: each question in one order, here alone.

======================= ============================================== ==========================
``has_room_for_…``      what must have room, in this order             what is waited for, if not
======================= ============================================== ==========================
``packet``              the link                                       the link
``qos0``                the link's own buffers, or memory of all links a tick
``flight``              the window, and a store that can write         an acknowledgement
``new``                 window, link, memory                           see ``wait_for_room``
``next``                the link; if large, memory of all links        the link, or a tick
``group``               link, order, window, store                     the link
``group_message``       memory                                         a tick, with QoS 0
``retained``            queue and window; of a stored session the      an acknowledgement
                        queue, up to its half
``one_more``            memory for the queue, then queue or window     ``blocked_publishers``
``bodies_to_read``      memory for bodies that are being read          a tick
======================= ============================================== ==========================

Whoever waits for the link or a tick is the client's connection, and the question has arranged for
it. An acknowledgement needs no arrangement: the session refills after each.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import NOTHING
from penstock.engine.session.window import InFlightWindow
from penstock.engine.values.limit_usage import WINDOW, WRITE_BUFFER
from penstock.engine.values.limits import FREE_BYTES, LARGE_BYTES, SMALL_BYTES
from penstock.engine.values.message import Message
from penstock.engine.wire.link import Link

NO_ROOM: Final = 0
ONLY_QOS_0: Final = 1
ANY_QOS: Final = 2

_RETAINED_QUEUED_MAX: Final = 1000  # where the queue has no limit


@final
class SendRoom:
    """The room of one session for messages to its client.

    Args:
        window: its in-flight window.
        backlog: its queue.
        context: the parts of the broker that it acts on.
    """

    def __init__(self, window: InFlightWindow, backlog: Backlog, context: EngineContext) -> None:
        self._window = window
        self._queue = backlog.queue
        self._backlog = backlog
        self._context = context

    # -- one packet --------------------------------------------------------------------

    def has_room_for_packet(self, link: Link) -> bool:
        """Return whether the link takes a packet; if not, have the client resumed once it does."""
        if link.has_room():
            return True
        link.resume_when_room()
        return False

    def has_room_for_qos0(self, link: Link, size_bytes: int) -> bool:
        """Return whether memory has room for a QoS 0 packet of this size in the link's buffers.

        If not, have the client resumed in the next tick. A packet of less than ``LARGE_BYTES`` need
        not be asked for.
        """
        if size_bytes + link.pending_bytes + link.buffered_bytes <= FREE_BYTES:
            return True
        if link.may_grow(size_bytes):
            return True
        self._wait_for_tick(link)
        return False

    def has_room_for_flight(self) -> bool:
        """Return whether one more message of QoS 1 or 2 may be in flight."""
        return self._window.has_room() and not self._context.store_health.is_failing

    def has_room_for_new(self, link: Link, message: Message) -> bool:
        """Return whether ``message``, just published, may be sent with QoS 1 or 2 at once."""
        if len(self._queue) > 0 or not self._window.has_room() or not link.has_room():
            return False
        if len(message.payload) <= SMALL_BYTES and not self._window.counts_all:
            return True
        return self._has_memory_for_new(link, message.size_bytes())

    def wait_for_room(self, link: Link, size_bytes: int) -> int:
        """Have the client resumed when there may be room for a message of this size, which was
        queued because there was none; return the limit that is used up (``limit_usage``), or
        ``NOTHING`` where it is memory."""
        self.has_room_for_next(link, size_bytes)  # which has it resumed
        if link.is_congested:
            return WRITE_BUFFER
        if not self._window.has_room():
            return WINDOW
        if not self._backlog.account.has_room_for_waiting():
            self._wait_for_tick(link)
        return NOTHING

    def has_room_for_next(self, link: Link, size_bytes: int) -> bool:
        """Return whether a message of this size, which waits, may be sent; if not, have the client
        resumed when there may be room."""
        if link.has_room() and (size_bytes < LARGE_BYTES or link.has_room_for(size_bytes)):
            return True
        link.resume_when_room()
        if not link.is_full() and not link.is_congested:  # all links together have no room
            self._wait_for_tick(link)
        return False

    # -- messages of groups ------------------------------------------------------------

    def has_room_for_group(self, link: Link, is_next: bool) -> int:
        """Return the room for messages of a group: ``NO_ROOM``, ``ONLY_QOS_0`` or ``ANY_QOS``.

        Args:
            link: the client's link.
            is_next: whether a message of the group comes before all that wait in the queue.
        """
        if not self.has_room_for_packet(link):
            return NO_ROOM
        if is_next and self.has_room_for_flight():
            return ANY_QOS
        return ONLY_QOS_0 if self._queue.qos0_count == 0 else NO_ROOM

    def has_room_for_group_message(
        self, link: Link | None, size_bytes: int, qos: int, is_new: bool
    ) -> bool:
        """Return whether memory has room for a message of a group.

        Args:
            link: the client's link; None while it is offline, and then there is no room.
            size_bytes: the size of the message.
            qos: the QoS of its packet.
            is_new: whether the message was just published, so that no account counts it yet.
        """
        if link is None:
            return False
        if qos == 0:
            return size_bytes < LARGE_BYTES or self.has_room_for_qos0(link, size_bytes)
        if is_new and (size_bytes > SMALL_BYTES or self._window.counts_all):
            return self._has_memory_for_new(link, size_bytes)
        return size_bytes < LARGE_BYTES or link.has_room_for(size_bytes)

    # -- more than one packet ----------------------------------------------------------

    def has_room_for_retained(self, qos: int) -> bool:
        """Return whether a retained message of this QoS may be delivered now."""
        queue = self._queue
        if qos == 0:
            return queue.qos0_count == 0
        if len(queue) == 0 and self._window.has_room():
            return True
        return self._backlog.is_stored and not queue.is_half_full(_RETAINED_QUEUED_MAX)

    def has_room_for_one_more(self, link: Link | None, size_bytes: int) -> bool:
        """Return whether queue or window have room for one more message of QoS 1 or 2."""
        if not self._backlog.has_memory():
            return False
        queue = self._queue
        if queue.has_room(size_bytes):
            return True
        if link is None or len(queue) > 0 or not link.has_room():
            return False
        return self._window.free > 0

    def has_room_for_bodies_to_read(self, link: Link | None, size_bytes: int) -> bool:
        """Return whether bodies of this size may be read from the log; if not, have the client
        resumed in the next tick."""
        if self._backlog.account.has_room_for_fetching(size_bytes):
            return True
        if link is not None:
            self._wait_for_tick(link)
        return False

    def refuses(self, link: Link | None, size_bytes: int) -> bool:
        """Return whether a QoS 1 or 2 message of this size must be refused (policy "reject").

        The publisher of a refused message waits or gets a reason code.
        """
        return self._queue.must_refuse(size_bytes) and not self.has_room_for_one_more(
            link, size_bytes
        )

    def _has_memory_for_new(self, link: Link, size_bytes: int) -> bool:
        """Return whether memory has room for a message in the window, and for its packet."""
        if size_bytes >= LARGE_BYTES and not link.has_room_for(size_bytes):
            return False
        return self._backlog.account.has_room_for_waiting()

    def _wait_for_tick(self, link: Link) -> None:
        if link.resumable is not None:
            self._context.turn.waiting.until_tick(link.resumable)
