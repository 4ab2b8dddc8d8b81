"""The accounts of users: each has a share of the broker's memory, so that nobody takes all of it.

::

      Session ─▶ Account of its owner ─▶ MemoryBudget of the broker
                   full: the user's share      full: everybody's

An account is that of a user; anonymous clients have one for each address they come from (a /64 of
IPv6). It has a share of every bound in ``budget``, and of the sessions. What the broker makes
itself (the sessions of bridges), and what was found in an older store without its owner, belongs to
``Accounts.common``, which only the bounds of the whole hold.

A session stays in the account in which it was made.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.addresses import source_of
from penstock.engine.limits import SMALL_BYTES
from penstock.engine.memory.budget import DELIVERY_BYTES, PACKED_BYTES, MemoryBudget
from penstock.engine.message import Delivery, Holder, Message

NO_ADDRESS: Final = "local"  # of an anonymous client on a Unix socket


@final
class Account(Holder):
    """The memory that one user's sessions take, held within that user's share.

    Args:
        key: the user's; empty for what belongs to nobody.
        budget: the memory budget of the whole broker.
        share: of each bound, above 0; 1 = no bound but that of the whole.
        sessions_max: sessions; 0 = no bound.
        known: the accounts that hold something, by key: in it while this one does.
    """

    def __init__(
        self,
        key: str,
        budget: MemoryBudget,
        share: float = 1.0,
        sessions_max: int = 0,
        known: dict[str, Account] | None = None,
    ) -> None:
        self.key = key
        self.budget = budget
        self.sessions = 0
        self.groups = 0  # whose queues count here
        self.sessions_bytes = 0
        self.qos0_bytes = 0
        self.packed_bytes = 0
        self.unreleased_bytes = 0
        self.retained_bytes = 0
        self.waiting_bytes = 0
        self.blocked_bytes = 0  # of its publishers: ``pending_publishes``, ``inbound``
        self.buffered_bytes = 0  # of its links, above what each has; see ``link``
        self._known = known
        self._sessions_max = sessions_max
        self._sessions_bytes_max = _part(budget.sessions_bytes_max, share)
        self._qos0_bytes_max = _part(budget.qos0_bytes_max, share)
        self._spilled_bytes_max = _part(budget.spilled_bytes_max, share)
        self._retained_bytes_max = _part(budget.retained_bytes_max, share)
        self._unreleased_bytes_max = _part(budget.unreleased_bytes_max, share)
        self._waiting_bytes_max = _part(budget.waiting_bytes_max, share) or budget.waiting_bytes_max
        self._unsent_bytes_max = _part(budget.unsent_bytes_max, share)

    # -- QoS 0 in queues, and packed queues ------------------------------------------------

    def has_room_for_qos0(self) -> bool:
        """Return whether one more QoS 0 message may wait in a queue of this user."""
        return self.budget.has_room_for_qos0() and not 0 < self._qos0_bytes_max <= self.qos0_bytes

    def add_qos0(self, delivery: Delivery) -> None:
        """Count a QoS 0 delivery that joined a queue; here its message counts in every queue."""
        self.qos0_bytes += _waiting_bytes(delivery)
        self.budget.add_qos0(delivery)

    def remove_qos0(self, delivery: Delivery) -> None:
        """Remove a QoS 0 delivery, which left its queue, from the account."""
        self.qos0_bytes -= _waiting_bytes(delivery)
        self.budget.remove_qos0(delivery)

    def has_room_to_pack(self) -> bool:
        """Return whether one more delivery may be packed."""
        is_full = 0 < self._spilled_bytes_max <= self.packed_bytes
        return self.budget.has_room_to_pack() and not is_full

    def pack(self, deliveries: int) -> None:
        """Count so many more packed deliveries; fewer if negative."""
        self.packed_bytes += deliveries * PACKED_BYTES
        self.budget.pack(deliveries)

    # -- QoS 1 and 2 in queues and windows --------------------------------------------------

    def has_room_to_wait(self) -> bool:
        """Return whether one more QoS 1 or 2 message may wait for a client of this user.

        What publishers hold back takes no more than half of it: that waits for this room itself.
        """
        bound = self._waiting_bytes_max
        if 0 < bound <= self.waiting_bytes + min(self.blocked_bytes, bound // 2):
            return False
        budget = self.budget
        bound = budget.waiting_bytes_max
        return not 0 < bound <= budget.waiting_bytes + min(budget.blocked_bytes, bound // 2)

    def has_room_to_block(self) -> bool:
        """Return whether publishers of this user may hold back more: half of what may wait, if
        that is free."""
        held = self.blocked_bytes
        if 0 < self._waiting_bytes_max <= held + max(held, self.waiting_bytes):
            return False
        budget = self.budget
        held = budget.blocked_bytes
        return not 0 < budget.waiting_bytes_max <= held + max(held, budget.waiting_bytes)

    def count_blocked(self, grows_bytes: int) -> None:
        """Count so many more bytes of messages that wait for room in a queue, or of identifiers
        that wait for PUBREL; fewer if negative."""
        self.blocked_bytes += grows_bytes
        self.budget.blocked_bytes += grows_bytes

    def has_room_for_bodies(self) -> bool:
        """Return whether at most half of the limit of what waits is used.

        Above it, callers evict bodies that are in the log as well.
        """
        if 0 < self._waiting_bytes_max <= 2 * self.waiting_bytes:
            return False
        budget = self.budget
        return not 0 < budget.waiting_bytes_max <= 2 * budget.waiting_bytes

    def add_waiting(self, delivery: Delivery) -> None:
        """Count a QoS 1 or 2 delivery, of known ``size_bytes``, that joined a queue or a window."""
        self.count_waiting(DELIVERY_BYTES)
        self.add_body(delivery)

    def remove_waiting(self, delivery: Delivery) -> None:
        """Remove a delivery, with the body that it has now, from the account."""
        self.count_waiting(-DELIVERY_BYTES)
        self.remove_body(delivery)

    def add_body(self, delivery: Delivery) -> None:
        """Count the body of a delivery that waits, if that is here."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(delivery.size_bytes)
        else:
            self._add_large(message, delivery.size_bytes)

    def remove_body(self, delivery: Delivery) -> None:
        """Remove the body of a delivery, which is about to let go of it, from the account."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(-delivery.size_bytes)
        else:
            self._remove_large(message, delivery.size_bytes)

    def count_waiting(self, grows_bytes: int) -> None:
        """Count so many more bytes that wait; fewer if negative."""
        self.waiting_bytes += grows_bytes
        self.budget.waiting_bytes += grows_bytes

    def _add_large(self, message: Message, size_bytes: int) -> None:
        """Count one more delivery with this body, which counts once here and once in all."""
        holders = message.holders
        if holders is None:
            holders = message.holders = {}
        if not holders:
            self.budget.waiting_bytes += size_bytes
        count = holders.get(self, 0)
        if count == 0:
            self.waiting_bytes += size_bytes
        holders[self] = count + 1

    def _remove_large(self, message: Message, size_bytes: int) -> None:
        holders = message.holders
        assert holders is not None
        count = holders[self] - 1
        if count > 0:
            holders[self] = count
            return
        del holders[self]
        self.waiting_bytes -= size_bytes
        if not holders:
            self.budget.waiting_bytes -= size_bytes

    # -- what was written for clients that do not read --------------------------------------

    def has_room_to_send(self, size_bytes: int) -> bool:
        """Return whether so many more bytes may wait in the buffers of this user's connections."""
        bound = self._unsent_bytes_max
        return not 0 < bound < self.buffered_bytes + min(size_bytes, bound // 2)

    # -- QoS 2 messages of MQTT 3.1 before their PUBREL ------------------------------------

    def has_room_for_unreleased(self) -> bool:
        """Return whether one more message of this user may wait for its PUBREL."""
        is_full = 0 < self._unreleased_bytes_max <= self.unreleased_bytes
        return not is_full and self.budget.has_room_for_unreleased()

    def count_unreleased(self, grows_bytes: int) -> None:
        """Count so many more bytes of messages that wait for PUBREL; fewer if negative."""
        self.unreleased_bytes += grows_bytes
        self.budget.unreleased_bytes += grows_bytes

    # -- retained messages -----------------------------------------------------------------

    def has_room_for_retained(self, grows_bytes: int) -> bool:
        """Return whether retained messages of this user may weigh so many more bytes."""
        return not 0 < self._retained_bytes_max < self.retained_bytes + grows_bytes

    def count_retained(self, grows_bytes: int) -> None:
        """Retained messages of this user weigh so many more bytes; fewer if negative."""
        self.retained_bytes += grows_bytes
        self._settle()

    # -- sessions --------------------------------------------------------------------------

    def has_room_for_another_session(self) -> bool:
        """Return whether there may be one more session; if not, it is counted."""
        if 0 < self._sessions_max <= self.sessions:
            self.budget.sessions_refused += 1
            return False
        return self.has_room_for_sessions()

    def has_room_for_sessions(self, given_up_bytes: int = 0) -> bool:
        """Return whether there may be one more subscription or will; if not, it is counted.

        Args:
            given_up_bytes: of what it takes the place of.
        """
        if 0 < self._sessions_bytes_max <= self.sessions_bytes - given_up_bytes:
            self.budget.sessions_refused += 1
            return False
        return self.budget.has_room_for_sessions(given_up_bytes)

    def count_session(self, client_id: str, step: int) -> None:
        """Count a session that began (``step`` 1) or ended (-1)."""
        self.sessions += step
        self.sessions_bytes += self.budget.count_session(client_id, step)
        self._settle()

    def count_group(self, step: int) -> None:
        """Count the queue of a shared subscription (``step`` 1), or no more (-1)."""
        self.groups += step
        self._settle()

    def count_subscription(self, topic_filter: str, step: int) -> None:
        """Count a subscription that was made (``step`` 1) or ended (-1)."""
        self.sessions_bytes += self.budget.count_subscription(topic_filter, step)

    def count_will(self, size_bytes: int, step: int) -> None:
        """Count a will of this size that was armed (``step`` 1) or is gone (-1)."""
        self.sessions_bytes += self.budget.count_will(size_bytes, step)

    def _settle(self) -> None:
        """Be known while there is something to count; what is retained outlives sessions, and so
        may the queue of a group."""
        if self._known is None:
            return
        if self.sessions > 0 or self.groups > 0 or self.retained_bytes > 0:
            self._known[self.key] = self
        else:
            self._known.pop(self.key, None)


@final
class Accounts:
    """The accounts of one broker; one with neither session nor retained message is forgotten.

    Args:
        budget: the memory budget of the whole broker.
        share: of each bound, for one user, above 0; 1 = no bound but that of the whole.
        sessions_max: sessions of one user; 0 = no bound.
    """

    def __init__(self, budget: MemoryBudget, share: float = 1.0, sessions_max: int = 0) -> None:
        self.common = Account("", budget)
        self._budget = budget
        self._share = share
        self._sessions_max = sessions_max
        self._by_key: dict[str, Account] = {}

    @property
    def count(self) -> int:
        """Accounts that hold something, without the common one."""
        return len(self._by_key)

    def of(self, username: str | None, address: str) -> Account:
        """Return the account of a user, or of the anonymous clients at ``address``."""
        key = f"user {username}"
        if username is None:
            key = f"address {source_of(address) or NO_ADDRESS}"
        return self.named(key)

    def named(self, key: str) -> Account:
        """Return the account with this key; the common one if it is empty."""
        if not key:
            return self.common
        account = self._by_key.get(key)
        if account is None:
            account = Account(key, self._budget, self._share, self._sessions_max, self._by_key)
        return account


def _part(bytes_max: int, share: float) -> int:
    """Return the share of a bound; 0 = none."""
    if bytes_max == 0 or share >= 1.0:
        return 0
    return max(1, int(bytes_max * share))


def _waiting_bytes(delivery: Delivery) -> int:
    message = delivery.message
    if delivery.offset < 0 and message is not None:  # else the log has it
        return DELIVERY_BYTES + message.size_bytes()
    return DELIVERY_BYTES
