"""The accounts of users: each has a share of the broker's memory, so that no user takes all of it.

::

      Session ─▶ Account of its owner ─▶ MemoryBudget of the broker
                   one user's share            all users together

Each user has an account; anonymous clients have one for each address (each /64 of IPv6). An account
may use a share of each limit in ``budget``, and of the number of sessions. The sessions of bridges,
and sessions that were imported without their owner, belong to ``Accounts.common``, to which
only the limits of the whole broker apply.

A session stays in the account in which it was created.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.addresses import source_of
from penstock.engine.limits import SMALL_BYTES
from penstock.engine.memory.budget import DELIVERY_BYTES, PACKED_BYTES, MemoryBudget
from penstock.engine.message import BodyAccount, Delivery, Message

NO_ADDRESS: Final = "local"  # in the key of anonymous clients on a Unix socket


@final
class Account(BodyAccount):
    """The memory that the sessions of one user take, with the limits of that user's share.

    Args:
        key: the key of the user or address; empty for the common account.
        budget: the memory budget of the whole broker.
        share: the user's share of each limit, above 0; 1 = only the limits of the broker apply.
        sessions_max: the number of sessions; 0 = no limit.
        known: the accounts in use, by key; the account adds itself, and removes itself.
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
        self.groups = 0  # shared subscriptions whose queues count here
        self.sessions_bytes: i64 = 0
        self.qos0_bytes: i64 = 0
        self.packed_bytes: i64 = 0
        self.unreleased_bytes: i64 = 0
        self.retained_bytes: i64 = 0
        self.waiting_bytes: i64 = 0
        self.inbound_bytes: i64 = (
            0  # from clients: ``pending_publishes``, identifiers in ``inbound``
        )
        self.buffered_bytes: i64 = 0  # in the socket buffers of its clients; see ``link``
        self._accounts_by_key = known
        self.sessions_max = sessions_max
        self._sessions_bytes_max = _share_of(budget.sessions_bytes_max, share)
        self._qos0_bytes_max = _share_of(budget.qos0_bytes_max, share)
        self._spilled_bytes_max = _share_of(budget.spilled_bytes_max, share)
        self._retained_bytes_max = _share_of(budget.retained_bytes_max, share)
        self._unreleased_bytes_max = _share_of(budget.unreleased_bytes_max, share)
        self._waiting_bytes_max = (
            _share_of(budget.waiting_bytes_max, share) or budget.waiting_bytes_max
        )
        self._unsent_bytes_max = _share_of(budget.unsent_bytes_max, share)

    # -- QoS 0 in queues, and packed queues ------------------------------------------------

    def has_room_for_qos0(self) -> bool:
        """Return whether one more QoS 0 message may be queued for a client of this user."""
        return self.budget.has_room_for_qos0() and not 0 < self._qos0_bytes_max <= self.qos0_bytes

    def add_qos0(self, delivery: Delivery) -> None:
        """Add a QoS 0 delivery that was queued; its message counts once for each queue."""
        self.qos0_bytes += _waiting_bytes(delivery)
        self.budget.add_qos0(delivery)

    def remove_qos0(self, delivery: Delivery) -> None:
        """Subtract a QoS 0 delivery that was removed from its queue."""
        self.qos0_bytes -= _waiting_bytes(delivery)
        self.budget.remove_qos0(delivery)

    def has_room_to_pack(self) -> bool:
        """Return whether memory has room for one more packed delivery (``packed_run``)."""
        is_full = 0 < self._spilled_bytes_max <= self.packed_bytes
        return self.budget.has_room_to_pack() and not is_full

    def count_packed(self, deliveries: int) -> None:
        """Add packed deliveries; subtract them if negative."""
        self.packed_bytes += deliveries * PACKED_BYTES
        self.budget.count_packed(deliveries)

    # -- QoS 1 and 2 in queues and windows --------------------------------------------------

    def has_room_to_wait(self) -> bool:
        """Return whether one more QoS 1 or 2 message may wait for a client of this user.

        Messages of blocked publishers count too, up to half of the limit, so that they cannot use
        up the room that they wait for.
        """
        bound = self._waiting_bytes_max
        if 0 < bound <= self.waiting_bytes + min(self.inbound_bytes, bound // 2):
            return False
        budget = self.budget
        bound = budget.waiting_bytes_max
        return not 0 < bound <= budget.waiting_bytes + min(budget.inbound_bytes, bound // 2)

    def has_room_to_block(self) -> bool:
        """Return whether one more message of a blocked publisher may wait before it is routed.

        Such messages may take half of the limit for waiting messages, if that half is free.
        """
        inbound = self.inbound_bytes
        if 0 < self._waiting_bytes_max <= inbound + max(inbound, self.waiting_bytes):
            return False
        budget = self.budget
        inbound = budget.inbound_bytes
        return not 0 < budget.waiting_bytes_max <= inbound + max(inbound, budget.waiting_bytes)

    def count_inbound(self, delta_bytes: int) -> None:
        """Add bytes of messages that wait for room in a queue, or of packet identifiers that await
        PUBREL; subtract them if negative."""
        self.inbound_bytes += delta_bytes
        self.budget.inbound_bytes += delta_bytes

    def has_room_for_bodies(self) -> bool:
        """Return whether less than half of the limit for waiting messages is used.

        If not, callers release the bodies that are also in the log.
        """
        if 0 < self._waiting_bytes_max <= 2 * self.waiting_bytes:
            return False
        budget = self.budget
        return not 0 < budget.waiting_bytes_max <= 2 * budget.waiting_bytes

    def add_waiting(self, delivery: Delivery) -> None:
        """Add a QoS 1 or 2 delivery that joined a queue or a window; its ``size_bytes`` is set."""
        self.count_waiting(DELIVERY_BYTES)
        self.add_body(delivery)

    def remove_waiting(self, delivery: Delivery) -> None:
        """Subtract a QoS 1 or 2 delivery, with its body if that is in memory."""
        self.count_waiting(-DELIVERY_BYTES)
        self.remove_body(delivery)

    def add_body(self, delivery: Delivery) -> None:
        """Add the body of a delivery, if the body is in memory."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(delivery.size_bytes)
        else:
            self._add_large(message, delivery.size_bytes)

    def remove_body(self, delivery: Delivery) -> None:
        """Subtract the body of a delivery, before the delivery releases it."""
        message = delivery.message
        if message is None:
            return
        if delivery.size_bytes <= SMALL_BYTES:
            self.count_waiting(-delivery.size_bytes)
        else:
            self._remove_large(message, delivery.size_bytes)

    def count_waiting(self, delta_bytes: int) -> None:
        """Add bytes of waiting QoS 1 and 2 messages; subtract them if negative."""
        self.waiting_bytes += delta_bytes
        self.budget.waiting_bytes += delta_bytes

    def _add_large(self, message: Message, size_bytes: int) -> None:
        """Add a delivery with this body, which counts once in an account and once in the budget."""
        accounts = message.deliveries_by_account
        if accounts is None:
            accounts = message.deliveries_by_account = {}
        if not accounts:
            self.budget.waiting_bytes += size_bytes
        count = accounts.get(self, 0)
        if count == 0:
            self.waiting_bytes += size_bytes
        accounts[self] = count + 1

    def _remove_large(self, message: Message, size_bytes: int) -> None:
        accounts = message.deliveries_by_account
        assert accounts is not None
        count = accounts[self] - 1
        if count > 0:
            accounts[self] = count
            return
        del accounts[self]
        self.waiting_bytes -= size_bytes
        if not accounts:
            self.budget.waiting_bytes -= size_bytes

    # -- bytes written to clients that do not read ------------------------------------------

    def has_room_to_send(self, size_bytes: int) -> bool:
        """Return whether the buffers of this user's connections may take ``size_bytes`` more."""
        bound = self._unsent_bytes_max
        return not 0 < bound < self.buffered_bytes + min(size_bytes, bound // 2)

    # -- QoS 2 messages of MQTT 3.1 before their PUBREL ------------------------------------

    def has_room_for_unreleased(self) -> bool:
        """Return whether one more MQTT 3.1 message of this user may wait for its PUBREL."""
        is_full = 0 < self._unreleased_bytes_max <= self.unreleased_bytes
        return not is_full and self.budget.has_room_for_unreleased()

    def count_unreleased(self, delta_bytes: int) -> None:
        """Add bytes of messages that wait for PUBREL; subtract them if negative."""
        self.unreleased_bytes += delta_bytes
        self.budget.unreleased_bytes += delta_bytes

    # -- retained messages -----------------------------------------------------------------

    def has_room_for_retained(self, delta_bytes: int) -> bool:
        """Return whether retained messages of this user may take ``delta_bytes`` more."""
        return not 0 < self._retained_bytes_max < self.retained_bytes + delta_bytes

    def count_retained(self, delta_bytes: int) -> None:
        """Add bytes of retained messages; subtract them if negative."""
        self.retained_bytes += delta_bytes
        self._register()

    # -- sessions --------------------------------------------------------------------------

    def has_room_for_another_session(self) -> bool:
        """Return whether this user may have one more session; count a refusal."""
        if 0 < self.sessions_max <= self.sessions:
            self.budget.sessions_refused += 1
            return False
        return self.has_room_for_sessions()

    def has_room_for_sessions(self, replaced_bytes: int = 0) -> bool:
        """Return whether there is room for one more session, subscription or will; count a refusal.

        Args:
            replaced_bytes: memory of the will that the new one replaces; else 0.
        """
        if 0 < self._sessions_bytes_max <= self.sessions_bytes - replaced_bytes:
            self.budget.sessions_refused += 1
            return False
        return self.budget.has_room_for_sessions(replaced_bytes)

    def count_session(self, client_id: str, step: int) -> None:
        """Count a session that began (``step`` 1) or ended (-1)."""
        self.sessions += step
        self.sessions_bytes += self.budget.count_session(client_id, step)
        self._register()

    def count_group(self, step: int) -> None:
        """Count the queue of a shared subscription that began (``step`` 1) or ended (-1)."""
        self.groups += step
        self._register()

    def count_subscription(self, topic_filter: str, step: int) -> None:
        """Count a subscription that was made (``step`` 1) or ended (-1)."""
        self.sessions_bytes += self.budget.count_subscription(topic_filter, step)

    def count_will(self, size_bytes: int, step: int) -> None:
        """Count a will with a message of this size that was set (``step`` 1) or removed (-1)."""
        self.sessions_bytes += self.budget.count_will(size_bytes, step)

    def _register(self) -> None:
        """Add the account to ``known`` if it has sessions, groups or retained messages; else
        remove it there."""
        if self._accounts_by_key is None:
            return
        if self.sessions > 0 or self.groups > 0 or self.retained_bytes > 0:
            self._accounts_by_key[self.key] = self
        else:
            self._accounts_by_key.pop(self.key, None)


@final
class Accounts:
    """The accounts of one broker that have sessions, groups or retained messages.

    Args:
        budget: the memory budget of the whole broker.
        share: one user's share of each limit, above 0; 1 = only the limits of the broker apply.
        sessions_max: the number of sessions of one user; 0 = no limit.
    """

    def __init__(self, budget: MemoryBudget, share: float = 1.0, sessions_max: int = 0) -> None:
        self.common = Account("", budget)
        self._budget = budget
        self._share = share
        self._sessions_max = sessions_max
        self._by_key: dict[str, Account] = {}

    @property
    def count(self) -> int:
        """Return the number of accounts in use, without the common one."""
        return len(self._by_key)

    def limit_sessions(self, sessions_max: int) -> None:
        """Limit the sessions of each user (0 = no limit); existing sessions stay."""
        self._sessions_max = sessions_max
        for account in self._by_key.values():
            account.sessions_max = sessions_max

    def account_of(self, username: str | None, address: str) -> Account:
        """Return the account of a user; with ``username`` None, that of the anonymous clients at
        the source of ``address``."""
        key = f"user {username}"
        if username is None:
            key = f"address {source_of(address) or NO_ADDRESS}"
        return self.account_with_key(key)

    def account_with_key(self, key: str) -> Account:
        """Return the account with this key, which may be new; with an empty key, the common one."""
        if not key:
            return self.common
        account = self._by_key.get(key)
        if account is None:
            account = Account(key, self._budget, self._share, self._sessions_max, self._by_key)
        return account


def _share_of(bytes_max: int, share: float) -> int:
    """Return one user's share of a limit, at least 1; 0 = no limit for one user."""
    if bytes_max == 0 or share >= 1.0:
        return 0
    return max(1, int(bytes_max * share))


def _waiting_bytes(delivery: Delivery) -> int:
    message = delivery.message
    if delivery.offset < 0 and message is not None:  # else the log has it
        return DELIVERY_BYTES + message.size_bytes()
    return DELIVERY_BYTES
