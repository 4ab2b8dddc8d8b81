"""What waits for clients in memory, counted anew: what ``accounts`` should have counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.server.server import Server
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.session import Session
from penstock.engine.values.limits import SMALL_BYTES
from penstock.engine.values.memory_costs import DELIVERY_BYTES, IDENTIFIER_BYTES, PACKED_BYTES
from penstock.engine.values.message import Delivery
from penstock.engine.wire.link import Link
from penstock.store.memory import MemoryStore


@final
class Counted:
    """The sums of one account, or of all together."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self.qos0_bytes = 0
        self.packed_bytes = 0
        self.inbound_bytes = 0
        self.unreleased_bytes = 0
        self._bodies: set[int] = set()
        self._qos0_bodies: set[int] = set()

    @property
    def sums(self) -> tuple[int, int, int, int, int]:
        """All of them, to compare."""
        return _sums(self)

    def body(self, delivery: Delivery) -> None:
        """A body that waits: a small one with each delivery, a large one once."""
        message = delivery.message
        if message is None:
            return
        if message.size_bytes() > SMALL_BYTES:
            if id(message) in self._bodies:
                return
            self._bodies.add(id(message))
        self.waiting_bytes += message.size_bytes()

    def qos0(self, delivery: Delivery, once: bool) -> None:
        """A QoS 0 delivery in a queue; one body of many counts ``once`` if the log has it not."""
        self.qos0_bytes += DELIVERY_BYTES
        message = delivery.message
        if delivery.offset >= 0:
            self.body(delivery)
        elif message is not None and not (once and id(message) in self._qos0_bodies):
            self._qos0_bodies.add(id(message))
            self.qos0_bytes += message.size_bytes()

    def session(self, session: Session, once: bool) -> None:
        """Everything that one session holds."""
        for entry in session.transmission.window._entries.values():
            if entry.is_in_account:
                self.waiting_bytes += DELIVERY_BYTES
                self.body(entry)
        self.queue(session.backlog, once)
        self.inbound_bytes += len(session.inbound) * IDENTIFIER_BYTES
        unreleased = session.inbound.unreleased
        if unreleased is not None:
            self.unreleased_bytes += sum(item.size_bytes for item in unreleased._entries.values())

    def queue(self, backlog: Backlog, once: bool) -> None:
        """Everything that waits in one queue."""
        for lane in backlog.queue._lanes.values():
            self.packed_bytes += (
                0 if lane._tail is None else PACKED_BYTES * lane._tail.packed_count()
            )
            for delivery in lane._unpacked_items():
                if delivery.is_removed:
                    continue
                if delivery.qos == 0:
                    self.qos0(delivery, once)
                else:
                    self.waiting_bytes += DELIVERY_BYTES
                    self.body(delivery)


def forget_who_waits(store: MemoryStore) -> None:
    """A process that ends leaves its counts nowhere; a store in memory gives the same messages."""
    for message in store._log.values():
        message.deliveries_by_pool = None


def check_waiting(server: Server, links: Iterable[Link] | None = None) -> None:
    """Assert that what was counted is what there is: in all, and in the account of each user.

    Args:
        server: the broker.
        links: of all sockets that stand; without, what they buffer is not compared.
    """
    context = server.context
    budget = context.budget
    everything = Counted()
    known = [context.accounts.common, *context.accounts._by_key.values()]
    accounts = {account: Counted() for account in known}
    for session in server.registry.sessions.values():
        everything.session(session, True)
        accounts[session.account].session(session, False)
    queues = [group.queue for group in server.router.sharing.groups.values()]
    for queue in queues:
        everything.queue(queue.backlog, True)
        accounts[queue.account].queue(queue.backlog, False)
    for client_id, connection in server.connections.items():
        pending_bytes = getattr(connection, "pending_publish_bytes", 0)
        everything.inbound_bytes += pending_bytes
        session = server.registry.sessions[client_id]
        accounts[session.account].inbound_bytes += pending_bytes
    assert everything.sums == _sums(budget)
    for account, counted in accounts.items():
        assert counted.sums == _sums(account), account.key
    sessions = server.registry.sessions.values()
    fetching = sum(session.transmission.fetching_bytes for session in sessions)
    assert budget.fetching_bytes == fetching + sum(queue._fetching_bytes for queue in queues)
    if links is not None:
        _check_links(server, list(links), accounts)


def check_session(session: Session, context: EngineContext) -> None:
    """Assert the same where there is one session, of either role."""
    counted = Counted()
    counted.session(session, True)
    assert counted.sums == _sums(context.budget) == _sums(session.account)
    assert context.budget.fetching_bytes == session.transmission.fetching_bytes


def _sums(counts: Pool | Counted) -> tuple[int, int, int, int, int]:
    return (
        counts.waiting_bytes,
        counts.inbound_bytes,
        counts.qos0_bytes,
        counts.packed_bytes,
        counts.unreleased_bytes,
    )


def _check_links(server: Server, links: list[Link], accounts: dict[Pool, Counted]) -> None:
    context = server.context
    assert context.turn.buffered_bytes == sum(link.buffered_bytes for link in links)
    assert context.turn.unsent_bytes >= sum(link.pending_bytes for link in links)
    for account in accounts:
        buffered = sum(link.buffered_bytes for link in links if link.account is account)
        assert account.buffered_bytes == buffered, account.key
