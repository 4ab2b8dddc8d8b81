"""The inbound half of a session: QoS 2 messages received and not yet released.

::

      PUBLISH, new id ─▶ waits for PUBREL ── PUBREL ──────────────────────▶ forgotten
                            │    ▲      ╰── await_rel_timeout, connected ─▶ forgotten
                            ╰────╯ PUBLISH again: acknowledged, not routed [MQTT-4.3.3-10]

Whether a message is new follows from its packet identifier, not from DUP: the first PUBLISH of a
message that this side knows may have DUP, if it crashed before an earlier one was stored.

The timeout runs while the client is connected, and starts anew with each connection: the QoS 2
messages of a client that was offline for a week are still delivered once.

For an MQTT 3.1 client the message itself waits as well (``awaiting_release``). It takes more memory
than a number, so its timeout also runs while the client is offline, and starts anew only when the
broker starts.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.session.awaiting_release import AwaitingRelease
from penstock.engine.values.clock import Now
from penstock.engine.values.memory_costs import IDENTIFIER_BYTES
from penstock.engine.values.records import PAGE_IDENTIFIERS, InboundPage, ids_in
from penstock.protocol import reasons


@mypyc_attr(acyclic=True)
@final
class Inbound:
    """The packet identifiers of one session's received QoS 2 messages that wait for PUBREL.

    Args:
        account: the account in which the packet identifiers count.
        is_stored: whether the session is stored, so that ``take_pages`` is called.
    """

    def __init__(self, account: Pool | None = None, is_stored: bool = False) -> None:
        self._is_stored = is_stored
        self._bits: dict[int, int] | None = None  # by page, see ``take_pages``; no page is empty
        self._changed_pages: dict[int, None] | None = None
        self.checksum = 0  # of all stored packet identifiers: ``packet_id_checksum``
        self._account = account
        self.unreleased: AwaitingRelease | None = None  # messages of an MQTT 3.1 client
        self._since_us: dict[int, int] = {}  # start of the timeout by packet identifier, in order
        # Packet identifiers received on this connection, until their PUBREL; None: there are none.
        self._on_this_connection: dict[int, None] | None = None
        self.was_resumed = False  # whether an earlier connection may have left identifiers
        self._was_connected = False

    def __len__(self) -> int:
        return len(self._since_us)

    @property
    def count_on_this_connection(self) -> int:
        """Return how many messages of this connection await PUBREL (MQTT 5 §4.9)."""
        return 0 if self._on_this_connection is None else len(self._on_this_connection)

    def first_ids(self, count: int) -> list[int]:
        """Return the packet identifiers that wait for PUBREL, at most ``count``."""
        found: list[int] = []
        for packet_id in self._since_us:
            if len(found) >= count:
                break
            found.append(packet_id)
        return found

    def begin_connection(self, now: Now) -> None:
        """Begin a new connection: restart all timeouts, except those of MQTT 3.1 messages.

        All waiting identifiers are of earlier connections now: ``count_on_this_connection`` is 0.
        """
        renewed = [packet_id for packet_id in self._since_us if not self._has_message(packet_id)]
        for packet_id in renewed:  # move the identifiers to the end: the oldest is first
            del self._since_us[packet_id]
            self._since_us[packet_id] = now.steady_us
        self._on_this_connection = None
        self.was_resumed = self._was_connected
        self._was_connected = True

    def restart_timeouts(self, now: Now) -> None:
        """Restart all timeouts at ``now``: the broker has recovered its sessions from the store."""
        for packet_id in self._since_us:
            self._since_us[packet_id] = now.steady_us

    def receive(self, packet_id: int, now: Now) -> bool:
        """Note a QoS 2 PUBLISH; return whether its packet identifier is new [MQTT-4.3.3-10]."""
        if self._on_this_connection is None:
            self._on_this_connection = {}
        self._on_this_connection[packet_id] = None
        if packet_id in self._since_us:
            return False
        self._since_us[packet_id] = now.steady_us
        self._flip(packet_id)
        if self._account is not None:
            self._account.count_inbound(IDENTIFIER_BYTES)
        return True

    def _flip(self, packet_id: int) -> None:
        """Flip the bit of ``packet_id`` on its stored page: add it, or remove it."""
        if self._is_stored:
            page = packet_id // PAGE_IDENTIFIERS
            bit = 1 << packet_id % PAGE_IDENTIFIERS
            if self._bits is None:
                self._bits = {}
            bits = self._bits.get(page, 0) ^ bit
            self.checksum += packet_id * packet_id if bits & bit else -packet_id * packet_id
            if bits:
                self._bits[page] = bits
            else:
                del self._bits[page]
            if self._changed_pages is None:
                self._changed_pages = {}
            self._changed_pages[page] = None

    def _count(self, identifiers: int) -> None:
        """Add the memory of ``identifiers`` to the account; subtract it if negative."""
        if self._account is not None:
            self._account.count_inbound(identifiers * IDENTIFIER_BYTES)

    def leave_account(self) -> None:
        """Subtract all packet identifiers from the account: the session ended."""
        self._count(-len(self._since_us))
        self._account = None

    def awaits_release(self, packet_id: int) -> bool:
        """Return whether a message with this packet identifier waits for PUBREL."""
        return packet_id in self._since_us

    def received_on_this_connection(self, packet_id: int) -> bool:
        """Return whether a message with this packet identifier was received on this connection."""
        received = self._on_this_connection
        return received is not None and packet_id in received

    def release(self, packet_id: int) -> int:
        """Handle a PUBREL; return the reason code for PUBCOMP.

        A message that does not wait may have been completed on an earlier connection, which ended
        before its PUBCOMP arrived, or forgotten after the timeout. It was delivered, so the code
        says so: of 0x92 a client would make a failure, and publish the message again. 0x92 is left
        for identifiers that this session has never received.
        """
        was_received = self.was_resumed
        received = self._on_this_connection
        if received is not None and packet_id in received:
            was_received = True
            del received[packet_id]
        if self.unreleased is not None:
            self.unreleased.forget(packet_id)
        if packet_id not in self._since_us:
            return reasons.SUCCESS if was_received else reasons.PACKET_IDENTIFIER_NOT_FOUND
        del self._since_us[packet_id]
        self._flip(packet_id)
        if self._account is not None:
            self._account.count_inbound(-IDENTIFIER_BYTES)
        return reasons.SUCCESS

    def oldest_us(self) -> int:
        """Return when the oldest timeout began, microseconds of the steady clock; 0 if none
        runs."""
        for since_us in self._since_us.values():
            return since_us
        return 0

    def oldest_message_us(self) -> int:
        """Return when the oldest timeout of an MQTT 3.1 message began, microseconds of the steady
        clock; 0 if none runs."""
        for packet_id, since_us in self._since_us.items():
            if self._has_message(packet_id):
                return since_us
        return 0

    def forget(self, before_us: int, now: Now, is_offline: bool = False) -> int:
        """Forget identifiers whose timeout began at ``before_us`` or earlier; return how many.

        A message that was released and waits to be routed is not forgotten; its timeout restarts.

        Args:
            before_us: time on the steady clock, in microseconds.
            now: the present time.
            is_offline: forget only identifiers of MQTT 3.1 messages, because the client is
                disconnected.
        """
        old = [
            number
            for number, since_us in self._since_us.items()
            if since_us <= before_us and not (is_offline and not self._has_message(number))
        ]
        forgotten = 0
        unreleased = self.unreleased
        for packet_id in old:
            if unreleased is not None and unreleased.is_released(packet_id):
                del self._since_us[packet_id]
                self._since_us[packet_id] = now.steady_us
            else:
                del self._since_us[packet_id]  # its sender still waits for PUBCOMP
                self._flip(packet_id)
                if unreleased is not None:
                    unreleased.forget(packet_id)
                forgotten += 1
        self._count(-forgotten)
        return forgotten

    def unreleased_of_v31(self, bytes_max: int, account: Pool | None = None) -> AwaitingRelease:
        """Return ``unreleased``; the first call creates it, with these arguments."""
        if self.unreleased is None:
            self.unreleased = AwaitingRelease(bytes_max, account)
        return self.unreleased

    def _has_message(self, packet_id: int) -> bool:
        return self.unreleased is not None and self.unreleased.get(packet_id) is not None

    def session_lost(self) -> None:
        """Forget all identifiers: the sender lost its session, and will send no PUBREL for them."""
        self._count(-len(self._since_us))
        for packet_id in self._since_us:
            self._flip(packet_id)
        self._since_us.clear()
        self._on_this_connection = None
        self._was_connected = False

    def take_pages(self) -> list[InboundPage]:
        """Return the durable form of the pages that changed since the last call.

        A page has a bit, from the lowest on, for each of ``PAGE_IDENTIFIERS`` consecutive packet
        identifiers that wait for PUBREL. Senders assign identifiers in ascending order, so that a
        commit changes few pages.
        """
        if self._bits is None or self._changed_pages is None:
            return []
        pages = [(page, self._bits.get(page, 0)) for page in self._changed_pages]
        self._changed_pages = None
        return pages

    def restore(self, pages: list[InboundPage]) -> None:
        """Add the packet identifiers on ``pages``, which are all pages in the store."""
        self._was_connected = True
        for packet_id in ids_in(pages):
            self._since_us[packet_id] = 0
            self._flip(packet_id)
        self._changed_pages = None
        self._count(len(self._since_us))
