"""The in-flight window: QoS 1 and 2 messages sent and not yet acknowledged.

::

                 PUBLISH sent                           (the entry takes a place)
      QoS 1 ─▶ AWAIT_PUBACK ── PUBACK ───────────────▶ free
      QoS 2 ─▶ AWAIT_PUBREC ── PUBREC >= 0x80 ───────▶ free
                    │ PUBREC
                    ▼ PUBREL sent
               AWAIT_PUBCOMP ── PUBCOMP ─────────────▶ free
                    └── PUBREC again ─▶ PUBREL again

      given up ─▶ QoS 1: free   QoS 2: AWAIT_PUBCOMP, PUBREL sent instead of the message

      session lost ─▶ AWAIT_PUBCOMP: free   other states: sent again without DUP, because the
                                            receiver does not know the message

A successful PUBREC does not free the place, PUBCOMP does [MQTT 5 §4.9]. A transition that is
not in ``_TRANSITIONS`` is a protocol error; the session answers an acknowledgement for a packet
identifier that is not in the window (``UNKNOWN``).

Invariants: messages sent on this connection take at most ``capacity`` places; a packet
identifier in the window, or in use by SUBSCRIBE, is never assigned again; entries keep the
order in which they were first sent, in which they are also sent again after a reconnect
[MQTT-4.6.0-1].

A window is stored in pages. A page has ``PAGE_PLACES`` consecutive places; a commit writes the
pages that changed since the last one, so that its cost depends on the number of messages sent and
acknowledged, and not on the length of the window::

      page 7            page 8            page 9
      [ · · 3 · 5 ·· ]  [ 1 ········ 8 ]  [ 1 2 3            next place
            ▲                               ▲
            ╰ acknowledged: page 7 changed  ╰ sent: page 9 changed
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.session.packet_ids import ReservedPacketIds, packet_id_of
from penstock.engine.values.limits import FETCHED_BYTES_MAX, PACKET_IDENTIFIERS, SMALL_BYTES
from penstock.engine.values.memory_costs import UNCOUNTED_MAX
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    WindowEntry,
    WindowPage,
)
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC

PAGE_PLACES: Final = 8  # measured: docs/decisions/stored_window.md


# The effect of an acknowledgement on the window.
FREED: Final = 1  # the delivery is complete
REJECTED: Final = 2  # the receiver refused the message; the place is free
RELEASE: Final = 3  # send PUBREL
UNKNOWN: Final = 4  # no such packet identifier in the window
VIOLATION: Final = 5  # an acknowledgement that this state does not allow

_TRANSITIONS: Final[dict[tuple[int, int], int]] = {
    (AWAIT_PUBACK, PUBACK): FREED,
    (AWAIT_PUBREC, PUBREC): RELEASE,
    (AWAIT_PUBCOMP, PUBREC): RELEASE,
    (AWAIT_PUBCOMP, PUBCOMP): FREED,
}
_VERDICTS: Final[bytes] = bytes(  # ``_TRANSITIONS`` as a table: index 16 * state + packet type
    [
        _TRANSITIONS.get((state, packet_type), VIOLATION)
        for state in range(AWAIT_PUBCOMP + 1)
        for packet_type in range(16)
    ]
)


@mypyc_attr(acyclic=True)
@final
class InFlightWindow:
    """The in-flight window of one session, ordered by first sending.

    Args:
        capacity: number of places, 1..65535; each connection's Receive Maximum sets it anew.
        is_stored: whether the session is stored, so that packet identifiers follow from sequences.
        account: the account in which the messages count, except a few small ones.
    """

    def __init__(self, capacity: int, is_stored: bool = False, account: Pool | None = None) -> None:
        self.capacity = capacity
        self.acknowledged_offset = 0  # log offset of the entry that was acknowledged last
        self.is_first_acknowledgement = False  # with success, by PUBACK or PUBREC
        self._account = account
        self.reserved_ids = ReservedPacketIds()
        self._packet_id_step = -1 if is_stored else 1
        self._entries: dict[int, Delivery] = {}
        self._entries_to_resend: list[Delivery] | None = None  # after a reconnect, last first
        self._cursor = 0  # the last packet identifier that ``_unused_packet_id`` returned
        self._last_id = PACKET_IDENTIFIERS  # the highest packet identifier that may be assigned
        # Most windows need none of these dictionaries, which come with their first entries:
        self._request_ids: dict[int, None] | None = None  # of SUBSCRIBE and UNSUBSCRIBE
        self._pages: dict[int, list[Delivery]] | None = None  # stored entries; no page is empty
        self._changed_pages: dict[int, None] | None = None  # since ``take_pages``
        self.next_place = 0  # on a page, for the next message that is stored
        self.stored_len = 0  # entries on all pages
        self.stored_checksum = 0  # of their packet identifiers: ``packet_id_checksum``

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Delivery]:
        """Return all entries, the oldest first."""
        return list(self._entries.values())

    def delivered_entries(self) -> list[Delivery]:
        """Return the QoS 2 entries that have a PUBREC and no PUBCOMP: the receiver has the
        message."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.state == AWAIT_PUBCOMP]

    def undelivered_entries(self) -> list[Delivery]:
        """Return the entries without a PUBACK or PUBREC, the oldest first."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.state != AWAIT_PUBCOMP]

    @property
    def free(self) -> int:
        """Return how many new messages may be sent; 0 while entries are still to be sent again."""
        if self._entries_to_resend:
            return 0
        unused = self._last_id - self._request_count()
        return max(0, min(self.capacity, unused) - len(self._entries))

    def has_room(self) -> bool:
        """Return whether one more message may be sent: a place is free, and no entry is still to be
        sent again."""
        taken = len(self._entries)
        if taken >= self.capacity or self._entries_to_resend:
            return False
        return taken + self._request_count() < self._last_id

    @property
    def counts_all(self) -> bool:
        """Return whether the window is so long that the next message counts in the account,
        however small it is."""
        return len(self._entries) >= UNCOUNTED_MAX

    def _request_count(self) -> int:
        return 0 if self._request_ids is None else len(self._request_ids)

    def limit_packet_ids(self, last_id: int) -> None:
        """Assign no packet identifier above ``last_id`` from now on."""
        self._last_id = last_id

    def session_lost(self) -> None:
        """Free the entries that await PUBCOMP, and mark the others as new: the receiver lost its
        session."""
        for entry in self.entries():
            if entry.state == AWAIT_PUBCOMP:
                self._free(entry)
            else:
                entry.is_new_to_receiver = True

    def lower_qos(self, entry: Delivery, qos_max: int) -> None:
        """Lower the QoS of ``entry`` to ``qos_max``, which is 1: the receiver accepts no QoS 2."""
        if entry.qos > qos_max and entry.state != AWAIT_PUBCOMP:
            entry.qos = qos_max
            entry.state = AWAIT_PUBACK
            self._mark_changed(entry)

    def add(self, delivery: Delivery) -> None:
        """Add ``delivery`` to the window and assign its packet identifier [MQTT-2.2.1-3]."""
        packet_id = packet_id_of(delivery.sequence)
        if packet_id == 0 or not self._is_unused(packet_id):
            packet_id = self._unused_packet_id()
            assert packet_id > 0, "the window has room, so an identifier is free"
        is_counted = len(self._entries) >= UNCOUNTED_MAX
        state = AWAIT_PUBACK if delivery.qos == 1 else AWAIT_PUBREC
        delivery.enter_window(packet_id, state, True)
        self._entries[packet_id] = delivery
        if delivery.sequence > 0:
            self._take_place(delivery)
        message = delivery.message
        if is_counted or (message is not None and len(message.payload) > SMALL_BYTES):
            self._count(delivery)

    def _unused_packet_id(self) -> int:
        """Return the next unused packet identifier; a reserved one only if there is no other."""
        packet_id = self._cursor
        at_worst = 0
        for _ in range(self._last_id):
            packet_id += self._packet_id_step
            if not 1 <= packet_id <= self._last_id:
                packet_id = 1 if self._packet_id_step > 0 else self._last_id
            if self._is_unused(packet_id):
                if not self.reserved_ids.contains(packet_id):
                    at_worst = packet_id
                    break
                at_worst = at_worst or packet_id
        self._cursor = at_worst
        return at_worst

    def free_below(self, begin: int, end: int) -> int:
        """Return the first sequence from ``begin`` to below ``end`` whose packet identifier is in
        use; ``end`` if there is none."""
        sequence = begin
        while sequence < end and packet_id_of(sequence) not in self._entries:
            sequence += 1
        return sequence

    def _is_unused(self, packet_id: int) -> bool:
        if packet_id in self._entries or packet_id > self._last_id:
            return False
        return self._request_ids is None or packet_id not in self._request_ids

    def allocate_request_id(self) -> int:
        """Return a packet identifier for SUBSCRIBE or UNSUBSCRIBE [MQTT-2.2.1-3]; 0 if none is
        free."""
        if len(self._entries) + self._request_count() >= self._last_id:
            return 0
        packet_id = self._unused_packet_id()
        if self._request_ids is None:
            self._request_ids = {}
        self._request_ids[packet_id] = None
        return packet_id

    def is_request_id(self, packet_id: int) -> bool:
        """Return whether ``packet_id`` is in use by SUBSCRIBE or UNSUBSCRIBE."""
        return self._request_ids is not None and packet_id in self._request_ids

    def free_request_id(self, packet_id: int) -> None:
        """Free the packet identifier of a SUBSCRIBE or UNSUBSCRIBE, whose answer was received."""
        if self._request_ids is not None:
            self._request_ids.pop(packet_id, None)

    def on_disconnect(self) -> None:
        """Free the packet identifiers of SUBSCRIBE and UNSUBSCRIBE: the connection ended."""
        self._request_ids = None

    def restore(self, packet_id: int, state: int, delivery: Delivery, page: int = 0) -> None:
        """Restore an entry from a page in the store; the caller restores the oldest first.

        If the packet identifier does not follow from the sequence, later identifiers are assigned
        after it: an identifier that was freed recently may still be acknowledged a second time, if
        an MQTT 3.1 message was sent again after its timeout.
        """
        delivery.enter_window(packet_id, state, False)
        self._entries[packet_id] = delivery
        delivery.page = page
        if self._pages is None:
            self._pages = {}
        self._pages.setdefault(page, []).append(delivery)
        self.stored_len += 1
        self.stored_checksum += packet_id * packet_id
        self.next_place = max(self.next_place, (page + 1) * PAGE_PLACES)
        self._count(delivery)
        if packet_id != packet_id_of(delivery.sequence):
            self._cursor = packet_id

    def adopt(self, packet_id: int, state: int, delivery: Delivery) -> None:
        """Add a delivery that another broker sent with this packet identifier, which must be
        unused.

        It is sent again on the next connection, as after a restart.
        """
        assert packet_id not in self._entries, "a packet identifier is adopted once"
        delivery.enter_window(packet_id, state, False)
        self._entries[packet_id] = delivery
        if delivery.sequence > 0:
            self._take_place(delivery)
        self._count(delivery)

    def take_pages(self) -> list[WindowPage]:
        """Return the durable form of the pages that changed since the last call."""
        pages: list[WindowPage] = []
        stored = self._pages or {}
        for number in self._changed_pages or ():
            entries = [_durable(entry) for entry in stored.get(number, ())]
            pages.append(WindowPage(number, entries))
        self._changed_pages = None
        return pages

    def _take_place(self, delivery: Delivery) -> None:
        delivery.page = self.next_place // PAGE_PLACES
        self.next_place += 1
        self.stored_len += 1
        self.stored_checksum += delivery.packet_id * delivery.packet_id
        if self._pages is None:
            self._pages = {}
        page = self._pages.get(delivery.page)
        if page is None:
            self._pages[delivery.page] = [delivery]
        else:
            page.append(delivery)
        self._mark_changed(delivery)

    def _mark_changed(self, entry: Delivery) -> None:
        """Mark the page of ``entry`` to be stored again."""
        if entry.sequence > 0:
            if self._changed_pages is None:
                self._changed_pages = {}
            self._changed_pages[entry.page] = None

    def acknowledge(self, packet_type: int, packet_id: int, reason_code: int) -> int:
        """Apply a PUBACK, PUBREC or PUBCOMP; return its effect (``FREED`` … ``VIOLATION``)."""
        entry = self._entries.get(packet_id)
        if entry is None:
            return UNKNOWN
        verdict = _VERDICTS[16 * entry.state + packet_type]
        if verdict == VIOLATION:
            return VIOLATION
        self.acknowledged_offset = entry.offset
        self.is_first_acknowledgement = entry.state != AWAIT_PUBCOMP and reason_code < 0x80
        if reason_code >= 0x80 and packet_type != PUBCOMP:
            self._free(entry)
            return REJECTED
        if verdict == FREED:
            self._free(entry)
        elif entry.state != AWAIT_PUBCOMP:
            entry.state = AWAIT_PUBCOMP
            self._mark_changed(entry)
            self._drop_body(entry)  # the receiver has the message
        return verdict

    def get(self, packet_id: int) -> Delivery | None:
        """Return the entry with this packet identifier, or None."""
        return self._entries.get(packet_id)

    def drop(self, packet_id: int) -> None:
        """Remove the entry with this packet identifier, if there is one."""
        entry = self._entries.get(packet_id)
        if entry is not None:
            self._free(entry)

    def give_up(self, entry: Delivery) -> None:
        """Give up ``entry``, which was sent before and cannot be sent again.

        At QoS 2 the receiver may have the message. If its packet identifier were assigned to
        another message, the receiver would take that message for a repeat. So PUBREL is sent
        instead, and the identifier stays in use until PUBCOMP.
        """
        if entry.state == AWAIT_PUBACK:
            self._free(entry)
        else:
            entry.state = AWAIT_PUBCOMP
            self._mark_changed(entry)
            self._drop_body(entry)

    def supply(self, bodies: dict[int, Message], missing: set[int]) -> list[Delivery]:
        """Set the bodies of entries, by log offset; give up entries whose offset is in
        ``missing``.

        Returns:
            The entries that were given up.
        """
        given_up: list[Delivery] = []
        for delivery in self.entries():
            if delivery.message is None and delivery.state != AWAIT_PUBCOMP:
                body = bodies.get(delivery.offset)
                if body is not None:
                    delivery.message = body
                    delivery.size_bytes = body.size_bytes()
                    if self._account is not None and delivery.is_in_account:
                        self._account.add_body(delivery)
                if delivery.offset in missing:
                    self.give_up(delivery)
                    given_up.append(delivery)
        return given_up

    def lowest_offset(self) -> int:
        """Return the lowest log offset that the window still needs, or -1."""
        lowest = -1
        for entry in self._entries.values():
            offset = entry.offset
            if offset >= 0 and entry.state != AWAIT_PUBCOMP and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    def shared_in_flight(self) -> list[Delivery]:
        """Return the QoS 1 entries of shared subscriptions, the oldest first.

        When the client disconnects they go back to their groups. QoS 2 messages in flight stay with
        this session, and are lost with it [MQTT-4.8.2-4] [MQTT-4.8.2-5].
        """
        return [
            entry
            for entry in self._entries.values()
            if entry.shared_origin is not None and entry.state == AWAIT_PUBACK
        ]

    def remove_in_flight(self, gone: set[Delivery]) -> None:
        """Remove the entries in ``gone`` from the window; the set is empty afterwards."""
        for entry in self.entries():
            if entry in gone:
                self._free(entry)
                gone.remove(entry)

    def begin_connection(self, capacity: int) -> None:
        """Begin a new connection: all entries are to be sent again, in order.

        Entries of earlier connections count against the new capacity [MQTT 5 §4.4, §4.9]:
        at most ``capacity`` are sent until acknowledgements free places.
        """
        self.capacity = capacity
        unsent = self.entries()
        unsent.reverse()
        for entry in unsent:
            entry.is_sent = False
        self._entries_to_resend = unsent or None

    def next_to_resend(self) -> Delivery | None:
        """Return the oldest entry to send again now, until ``mark_sent`` is called for it; None if
        there is none."""
        while self._entries_to_resend:
            entry = self._entries_to_resend[-1]
            if self._entries.get(entry.packet_id) is entry:
                on_the_way = len(self._entries) - len(self._entries_to_resend)
                return entry if on_the_way < self.capacity else None
            self._entries_to_resend.pop()
        return None

    def mark_sent(self, entry: Delivery) -> None:
        """Mark ``entry``, from ``next_to_resend``, as sent on the current connection."""
        entry.is_sent = True
        if self._entries_to_resend and self._entries_to_resend[-1] is entry:
            self._entries_to_resend.pop()

    def resend_offsets_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the next entries to send again without a body in memory.

        Return at most ``limit``, with at most ``FETCHED_BYTES_MAX`` bytes, or a single larger one.
        """
        offsets: list[int] = []
        size_bytes = 0
        for entry in reversed(self._entries_to_resend or []):
            size_bytes += entry.size_bytes
            if len(offsets) >= limit or (offsets and size_bytes > FETCHED_BYTES_MAX):
                break
            if entry.state != AWAIT_PUBCOMP and entry.message is None:
                offsets.append(entry.offset)
        return offsets

    def release_bodies(self) -> None:
        """Count all entries in the account, and release the bodies that are in the log: the client
        of a stored session disconnected."""
        for entry in self._entries.values():
            if not entry.is_in_account:
                self._count(entry)
            self.evict_to_log(entry)

    def evict_to_log(self, entry: Delivery) -> None:
        """Release the body of ``entry`` if the message is in the log."""
        message = entry.message
        if message is not None and entry.offset >= 0:
            entry.size_bytes = message.size_bytes()  # a group that takes it back needs its size
            self._drop_body(entry)

    def leave_account(self) -> None:
        """Subtract all entries from the account: the session ended."""
        if self._account is not None:
            for entry in self._entries.values():
                if entry.is_in_account:
                    self._account.remove_waiting(entry)
                    entry.is_in_account = False
            self._account = None

    def _count(self, entry: Delivery) -> None:
        if self._account is not None:
            if entry.message is not None:
                entry.size_bytes = entry.message.size_bytes()
            self._account.add_waiting(entry)
            entry.is_in_account = True

    def _drop_body(self, entry: Delivery) -> None:
        if self._account is not None and entry.is_in_account:
            self._account.remove_body(entry)
        entry.message = None

    def _free(self, entry: Delivery) -> None:
        del self._entries[entry.packet_id]
        if entry.sequence > 0 and self._pages is not None:
            self._mark_changed(entry)
            page = self._pages[entry.page]
            page.remove(entry)
            self.stored_len -= 1
            self.stored_checksum -= entry.packet_id * entry.packet_id
            if not page:
                del self._pages[entry.page]
        if entry.is_in_account and self._account is not None:
            self._account.remove_waiting(entry)
            entry.is_in_account = False
        if (
            not entry.is_sent
            and self._entries_to_resend is not None
            and entry in self._entries_to_resend
        ):
            self._entries_to_resend.remove(entry)


def _durable(entry: Delivery) -> WindowEntry:
    if entry.message is not None:
        entry.size_bytes = entry.message.size_bytes()
    return (
        entry.packet_id,
        entry.state,
        entry.sequence,
        entry.offset,
        entry.qos,
        entry.retain,
        entry.subscription_ids,
        entry.size_bytes,
        None if entry.shared_origin is None else entry.shared_origin.kind(),
    )
