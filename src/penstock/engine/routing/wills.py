"""Wills: messages published when a client's connection is lost.

::

      CONNECT with a will ─▶ armed ── DISCONNECT (0x00) ─────────────▶ deleted
                               │
                               │ connection lost, or DISCONNECT 0x04
                               ▼
                             delayed ── the session is resumed ───────▶ deleted
                               │
                               │ will delay passed, or the session ended
                               ▼
                            published

An armed will is in the store: when the broker itself crashes, its clients lose their connections,
and their wills are published after the restart [MQTT 5 §3.1.2.5]. A will is published and deleted
in one commit. A will is dropped if its client has no permission to publish it any more.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.router import Router
from penstock.engine.values.access import Authorize
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.drop_reasons import NO_PERMISSION
from penstock.engine.values.limits import OUT_OF_DATE_MAX
from penstock.engine.values.memory_costs import will_bytes
from penstock.engine.values.records import WillRecord
from penstock.engine.values.topics import is_bridge_state


@final
class Wills:
    """The wills of one broker, at most one for each client identifier.

    Args:
        context: the parts of the broker that it acts on.
        router: publishes the wills.
        drops: counts a will that may not be published.
        authorize: returns the permissions of a client when its will is due.
    """

    def __init__(
        self, context: EngineContext, router: Router, drops: Drops, authorize: Authorize
    ) -> None:
        self.authorize = authorize
        self._drops = drops
        self._context = context
        self._router = router
        self._wills: dict[str, WillRecord] = {}
        self._accounts: dict[str, Pool] = {}  # of the wills that do not count in the common one
        self._due: list[tuple[int, str]] = []  # a heap (time, client identifier), partly outdated

    def arm(self, client_id: str, record: WillRecord, account: Pool | None) -> None:
        """Store the will of a connection that was accepted; it counts in ``account``, None = the
        common one."""
        self._delete(client_id)
        self._set(client_id, record, account)
        self._context.batch.put_will(client_id, record)

    def armed_bytes(self, client_id: str) -> int:
        """Return the bytes of memory of the will of ``client_id``; 0 if it has none."""
        record = self._wills.get(client_id)
        return 0 if record is None else will_bytes(record.message.size_bytes())

    def disarm(self, client_id: str) -> None:
        """Delete the will: the client sent DISCONNECT, or resumed its session within the delay."""
        if self._delete(client_id) is not None:
            self._context.batch.put_will(client_id, None)

    def connection_lost(self, client_id: str, session_expiry_s: int, now: Now) -> None:
        """Publish the will now or after its delay: the connection ended without DISCONNECT
        [MQTT-3.1.2-8].

        Args:
            client_id: the client identifier.
            session_expiry_s: seconds after which the session ends; a longer will delay is cut.
            now: the time of the turn.
        """
        record = self._wills.get(client_id)
        if record is None:
            return
        delay_s = min(record.delay_s, session_expiry_s)
        if delay_s == 0:
            self.publish(client_id, now)
            return
        record = record.due_at(now.steady_us + delay_s * MICROSECONDS)
        self._wills[client_id] = record
        self._context.batch.put_will(client_id, record)
        self._schedule(client_id, record)

    def publish(self, client_id: str, now: Now) -> None:
        """Publish and delete the will of ``client_id``, if there is one."""
        account = self._accounts.get(client_id)
        record = self._delete(client_id)
        if record is None:
            return
        self._context.batch.put_will(client_id, None)
        message = record.message
        is_state = is_bridge_state(message.topic)
        is_own = is_state and not self._router.is_foreign_bridge_state(message.topic)
        if is_own or not self._is_permitted(client_id, record):
            self._drops.count(NO_PERMISSION, client_id, message.topic)
            return
        if is_state:
            self._router.publish_bridge_state(message.topic, message.payload, now)
            return
        message.set_received_at(now.wall_us, now.lead_us)
        self._router.publish(message, None, now, account)

    def publish_due(self, now: Now) -> None:
        """Publish the wills whose delay has passed."""
        while self._due and self._due[0][0] <= now.steady_us:
            entry = heappop(self._due)
            if self._is_due(entry):
                self.publish(entry[1], now)

    def recover(
        self,
        client_id: str,
        record: WillRecord,
        session_expiry_s: int,
        now: Now,
        account: Pool | None = None,
    ) -> None:
        """Restore a will from the store at a start; publish it, or set its delay, if it was armed.

        Its client lost its connection when the broker stopped.
        """
        self._set(client_id, record, account)
        if record.due_at_us == 0:
            self.connection_lost(client_id, session_expiry_s, now)
        else:
            self._schedule(client_id, record)

    def _is_permitted(self, client_id: str, record: WillRecord) -> bool:
        """Return whether the client may publish its will now.

        The rules of a login of its own are gone after a start: what they allowed at CONNECT holds.
        """
        if record.has_own_authorize and record.authorize is None:
            return True
        authorize = record.authorize or self.authorize
        permissions = authorize.permissions(record.username, client_id)
        return permissions is None or permissions.may_publish(record.message.topic)

    def _set(self, client_id: str, record: WillRecord, account: Pool | None) -> None:
        self._wills[client_id] = record
        if account is not None:
            self._accounts[client_id] = account
        self._account_of(client_id).count_will(record.message.size_bytes(), 1)

    def _delete(self, client_id: str) -> WillRecord | None:
        record = self._wills.pop(client_id, None)
        if record is not None:
            self._account_of(client_id).count_will(record.message.size_bytes(), -1)
            self._accounts.pop(client_id, None)
        return record

    def _account_of(self, client_id: str) -> Pool:
        return self._accounts.get(client_id) or self._context.accounts.common

    def _schedule(self, client_id: str, record: WillRecord) -> None:
        heappush(self._due, (record.due_at_us, client_id))
        if len(self._due) > 2 * len(self._wills) + OUT_OF_DATE_MAX:
            self._due = [entry for entry in self._due if self._is_due(entry)]
            heapify(self._due)

    def _is_due(self, entry: tuple[int, str]) -> bool:
        record = self._wills.get(entry[1])
        return record is not None and record.due_at_us == entry[0]
