"""Shared subscriptions: of each message one member of the group gets a copy (v5 §4.8.2).

::

      message ─▶ trie ─▶ group ── choose ─▶ member: deliver ── acknowledged ─▶ done
                           ▲                   │
                           │ connection lost, unsubscribed, session ended
                           ╰───────────────────╯ what others may still get goes to others

Who is chosen stands in ``share_group``. What goes back to the group, in the commit that takes
it from the member:

============================  ==========================================================
the connection is lost        what waited, and QoS 1 without PUBACK, as far as members that
                              are connected have room; the rest stays until one has
the subscription is removed   what waited, likewise; what is in flight is completed
the session ends              all of that, to any member
============================  ==========================================================

QoS 2 in flight stays with its member: it is completed when that is back [MQTT-4.8.2-4], and
nobody else gets it [MQTT-4.8.2-5]. A PUBACK or PUBREC of 0x80 or above ends a message for the
whole group [MQTT-4.8.2-6].

A member without a stored session keeps in memory what it has: a crash of the broker ends it
and what was given to it, as for any session that ends with its connection.
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine import drop_counts as reasons_to_drop
from penstock.engine.away_members import Member
from penstock.engine.clock import Now
from penstock.engine.drop_counts import Drops
from penstock.engine.effects import Effects, Groups, Stored
from penstock.engine.holding import Least
from penstock.engine.message import Delivery, Message, Shared
from penstock.engine.options import SharingOptions
from penstock.engine.queue import PRIORITY_MASK, PRIORITY_SHIFT
from penstock.engine.session import Session, SessionSubscription
from penstock.engine.share_group import Dice, ShareGroup
from penstock.engine.topics import share_name

_PORTION: Final = 1000
_FIRST_LOOK: Final = 64
_REACH: Final = 16_000


@final
class Sharing(Groups):
    """All shared subscriptions of one broker."""

    def __init__(self, effects: Effects, drops: Drops, options: SharingOptions) -> None:
        self.options = options
        self.groups: dict[str, ShareGroup] = {}  # by $share/{group}/{filter}
        self.uneven: dict[str, ShareGroup] = {}  # those with something parked
        self.shutting_down = False  # all members go: nothing is handed from one to the next
        self.portion = _PORTION  # handed on at once, of what waits at one member
        self.first_look = _FIRST_LOOK  # at so many of them, before room is asked for
        self.reach = _REACH  # looked through in portions, where nobody takes what is in front
        self._effects = effects
        effects.groups = self
        self._drops = drops

    # -- members -----------------------------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> ShareGroup | None:
        """Make ``session`` a member; the group if it is new."""
        topic_filter = entry.subscription.topic_filter
        group = self.groups.get(topic_filter)
        is_new = group is None
        if group is None:
            options = self.options
            strategy = options.by_group.get(share_name(topic_filter), options.strategy)
            dice = Dice(options.seed ^ crc32(topic_filter.encode()))
            group = ShareGroup(topic_filter, strategy, dice)
            self.groups[topic_filter] = group
        group.put(session, entry)
        group.parked.ask_again()
        if session.shared_filters is None:
            session.shared_filters = {}
        session.shared_filters[topic_filter] = None
        return group if is_new else None

    def leave(self, session: Session, topic_filter: str) -> ShareGroup | None:
        """``session`` is no member any more; the group if it was its last."""
        group = self.groups.get(topic_filter)
        if group is None:
            return None
        group.remove(session)
        group.parked.remove(session)
        if session.shared_filters is not None:
            session.shared_filters.pop(topic_filter, None)
        if group.members:
            return None
        del self.groups[topic_filter]
        self.uneven.pop(topic_filter, None)
        return group

    def came(self, session: Session, now: Now) -> None:
        """``session`` is connected."""
        if session.shared_filters is None:
            return
        for topic_filter in session.shared_filters:
            group = self.groups[topic_filter]
            group.came(session)
            group.parked.remove(session)
            group.parked.ask_again()
        self.ready(session, now)

    # -- messages ----------------------------------------------------------------------

    def publish(
        self, group: ShareGroup, member: Member | None, message: Message, at_once: bool, now: Now
    ) -> bool:
        """Deliver ``message`` to the chosen member; whether there was any."""
        if member is None:
            if group.members:
                self._drops.count(reasons_to_drop.NO_PERMISSION, "", message.topic)
            return False
        group.took(member)
        shared = Shared(group.topic_filter, message.qos, message.retain)
        self._deliver(member, message, shared, at_once, now)
        return True

    def _deliver(
        self, member: Member, message: Message, shared: Shared, at_once: bool, now: Now
    ) -> None:
        session = member.session
        subscription = member.entry.subscription
        identifier = member.entry.identifier
        qos = min(shared.qos, subscription.qos)  # [MQTT-4.8.2-3]
        if session.stored and qos > 0 and message.offset < 0:
            self._effects.append(message)
        waits_there = session.link is None and (qos > 0 or session.keeps_qos0(True))
        session.deliver_shared(
            message,
            qos,
            shared.retain and subscription.retain_as_published,
            (identifier,) if identifier > 0 else (),
            shared,
            at_once,
            now,
        )
        if waits_there:
            group = self._uneven(shared.topic_filter)
            if group is not None:
                group.parked.put_message(session, message)

    def _uneven(self, topic_filter: str) -> ShareGroup | None:
        """The group of this name, for which something is parked now."""
        group = self.groups.get(topic_filter)
        if group is not None:
            self.uneven[topic_filter] = group
        return group

    def hand_back(self, holder: Stored, delivery: Delivery, message: Message, now: Now) -> bool:
        """``holder`` may not receive what was handed to it: give it to one that may, with room.

        It was in the log, where nobody saw its topic. From there ``holder`` gets nothing more
        that may stay where it is, while its permissions are what they are.
        """
        assert isinstance(holder, Session)
        shared = delivery.shared
        group = None if shared is None else self.groups.get(shared.topic_filter)
        if group is None or shared is None:
            return False
        group.bar(holder)
        member = group.choose(message, message.size_bytes(), holder, False, None)
        if member is None or not member.session.takes(message.size_bytes(), False, 0):
            return False
        if not _has_memory(member, shared):
            member = _with_memory(group, message, shared, holder)
            if member is None:
                return False
        group.took(member)
        self._hand_over(member, delivery, message, shared, now)
        return True

    # -- members that cannot go on -------------------------------------------------------

    def unsubscribed(self, session: Session, filters: set[str], now: Now) -> None:
        """A member left its groups: what waits for it goes to others that are connected."""
        if not session.took_shared:
            return
        going: set[str] = set()
        for topic_filter in sorted(filters):
            group = self._uneven(topic_filter)
            if group is not None:
                group.parked.put_unknown(session)
                if group.parked.goes_on():
                    going.add(topic_filter)
        if going:
            self._offer(session, session.shared_waiting(going, False, self.portion), False, now)

    def left(self, session: Session, now: Now) -> None:
        """The connection of a member is gone, and its session is not."""
        if session.shared_filters is not None:
            for topic_filter in session.shared_filters:
                self.groups[topic_filter].left(session)
        if session.took_shared:
            waiting = session.shared_waiting(None, True, self.portion)
            if not waiting:
                session.holds_none_shared()
            self._offer(session, waiting, True, now)

    def _offer(self, session: Session, waiting: list[Delivery], rests: bool, now: Now) -> None:
        """``waiting`` at ``session``, and what stands behind it, is for others from now on."""
        for topic_filter, deliveries in _by_group(waiting).items():
            group = self._uneven(topic_filter)
            if group is not None:
                parked = group.parked
                held = parked.put_unknown(session)
                if not self.shutting_down:
                    parked.begin()
                    self._hand_on(session, group, deliveries, rests, now)
                    if len(deliveries) >= self.portion:
                        held.stop()  # more may stand behind
                    parked.end()

    def ended(self, session: Session, now: Now) -> None:
        """The session of a member ends. It is in no group any more.

        What waits is unpacked in portions: a queue that lies in the log may be long.
        """
        if not session.took_shared:
            return
        filters = session.shared_names()
        if filters is not None:
            filters = {topic_filter for topic_filter in filters if topic_filter in self.groups}
        if not self.groups or (filters is not None and not filters):
            return
        stays = 0  # what nobody may have
        while True:
            waiting = session.shared_waiting(filters, True, stays + self.portion)
            taken = self._leave_to_any(session, waiting, now)
            if taken == 0 and len(waiting) == stays:
                return
            stays = len(waiting) - taken

    def ready(self, session: Session, now: Now) -> None:
        """``session`` is connected and may have room: it may take what others hold."""
        own = session.shared_filters
        if not self.uneven or own is None:
            return
        for topic_filter in list(self.uneven if len(self.uneven) < len(own) else own):
            group = self.uneven.get(topic_filter)
            member = None if group is None else group.members.get(session)
            if group is not None and member is not None and group.parked.may_go_on(member):
                self._spread(group, now)

    def permissions_changed(self) -> None:
        """Members may receive what nobody might, or no more what they did."""
        for group in self.groups.values():
            group.parked.ask_again()
            group.away.permissions_changed()

    def spread(self, now: Now) -> None:
        """Hand parked messages to members that are connected and have room."""
        for group in list(self.uneven.values()):
            if group.parked.goes_on():
                self._spread(group, now)

    def _spread(self, group: ShareGroup, now: Now) -> None:
        parked = group.parked
        parked.begin()
        for session in list(parked.holders):
            if session.ended or (session.link is not None and session in group.members):
                parked.remove(session)
                continue
            worth = parked.is_worth(parked.holders[session])
            if worth and not self._give(session, group, now):
                parked.remove(session)
        parked.end()
        if not parked.holders:
            self.uneven.pop(group.topic_filter, None)

    def _give(self, session: Session, group: ShareGroup, now: Now) -> bool:
        """Hand on of ``session`` what there is room for; False when it has nothing."""
        filters = {group.topic_filter}
        parked = group.parked
        held = parked.holders[session]
        given = 0
        if held.front_fits(parked.fits, parked.fits_in_memory):
            held.begin()
        limit = self.first_look if held.passed == 0 else self.portion
        while True:
            end = held.passed + limit
            waiting = session.shared_waiting(filters, session.link is None, end)
            if not held.is_at(waiting):
                held.begin()
                continue
            is_all = len(waiting) < end
            part = waiting[held.passed : held.passed + self.portion]
            if held.passed + len(part) < len(waiting):
                is_all = False
            taken = self._hand_on(session, group, part, session.link is None, now)
            given += taken
            stuck = taken < len(part)
            if is_all:
                stays = stuck or held.passed > 0 or held.least.is_any()  # that is handed back
                held.end()
                return stays
            if given >= self.portion or not parked.has_room():
                break
            if taken == 0 and limit >= self.portion:
                if end >= self.reach:
                    held.end()
                    return True
                if held.least.is_known():
                    held.go_past(part, parked.fits, parked.fits_in_memory)
                break
            if stuck:
                limit = self.portion  # those behind may be smaller
        held.stop()
        return True

    def _hand_on(
        self, holder: Session, group: ShareGroup, waiting: list[Delivery], rests: bool, now: Now
    ) -> int:
        """Give ``waiting`` of ``holder`` to connected members, as far as there is room; how many.

        What is known of ``holder`` is then the smallest that stays of this. It is away, and what
        stays ``rests`` in the log, or goes on itself.
        """
        parked = group.parked
        taken: list[Delivery] = []
        adopted: dict[Session, None] = {}
        least = Least()
        for delivery in waiting:
            shared = delivery.shared
            assert shared is not None
            message = delivery.message
            size_bytes = delivery.size_bytes if message is None else message.size_bytes()
            if message is None and size_bytes > parked.fits:
                least.in_log = min(least.in_log, size_bytes)
                continue
            if message is None and shared.qos == 0 and not holder.keeps_qos0(True):
                parked.wait_for_memory()
                continue
            member = group.choose(message, size_bytes, holder, True, None, shared.qos)
            if member is None:
                if message is None:
                    parked.refused(size_bytes)
                    least.in_log = min(least.in_log, size_bytes)
                elif not group.can_go_on():
                    least = Least(0, 0)
                    break
                else:
                    parked.stays(message, rests, least)
                continue
            group.took(member)
            taken.append(delivery)
            if self._pass_on(holder, delivery, shared, member, now):
                adopted[member.session] = None
        parked.holders[holder].found(least)
        if taken:
            holder.let_go(taken)
        for session in adopted:
            session.refill(now)
        if taken:
            parked.ask_for_room()
        return len(taken)

    def _leave_to_any(self, holder: Session, waiting: list[Delivery], now: Now) -> int:
        """Give ``waiting`` of ``holder`` to any members that may have it; how many."""
        taken: list[Delivery] = []
        adopted: dict[Session, None] = {}
        for delivery in waiting:
            shared = delivery.shared
            assert shared is not None
            group = self.groups.get(shared.topic_filter)
            if group is None:
                continue
            message = delivery.message
            size_bytes = delivery.size_bytes if message is None else message.size_bytes()
            member = group.choose(message, size_bytes, holder, False, None)
            if member is None:
                continue
            group.took(member)
            taken.append(delivery)
            if self._pass_on(holder, delivery, shared, member, now):
                adopted[member.session] = None
        if taken:
            holder.let_go(taken)
        for session in adopted:
            session.refill(now)
        return len(taken)

    def _pass_on(
        self, holder: Session, delivery: Delivery, shared: Shared, member: Member, now: Now
    ) -> bool:
        """Give one delivery of ``holder`` to ``member``; whether that must read its body yet."""
        message = delivery.message
        if message is None:
            self._adopt(member, delivery, shared)
            return True
        if message.expired(now.steady_us):
            self._drops.lose(reasons_to_drop.EXPIRED, holder.client_id, delivery)
        else:
            self._hand_over(member, delivery, message, shared, now)
        return False

    def _hand_over(
        self, member: Member, delivery: Delivery, message: Message, shared: Shared, now: Now
    ) -> None:
        """Deliver to ``member`` the ``message`` of ``delivery``, which another one had.

        Where it was in no log then, it may have come there since for others: they need it no more,
        perhaps, and then it is there no more.
        """
        if delivery.offset < 0 <= message.offset:
            message = message.for_session()
        self._effects.adopted(message.offset)
        self._deliver(member, message, shared, False, now)

    def _adopt(self, member: Member, delivery: Delivery, shared: Shared) -> None:
        session = member.session
        subscription = member.entry.subscription
        identifier = member.entry.identifier
        copy = Delivery(
            None,
            delivery.offset,
            min(shared.qos, subscription.qos),
            shared.retain and subscription.retain_as_published,
            (identifier,) if identifier > 0 else (),
        )
        copy.shared = shared
        copy.size_bytes = delivery.size_bytes
        session.adopt(copy, delivery.sequence >> PRIORITY_SHIFT & PRIORITY_MASK)
        if session.link is None:
            group = self._uneven(shared.topic_filter)
            if group is not None:
                group.parked.put(session, Least(copy.size_bytes))


def _has_memory(member: Member, shared: Shared) -> bool:
    """Whether ``member`` keeps what it gets, if it gets it at QoS 0."""
    if min(shared.qos, member.entry.subscription.qos) > 0:
        return True
    return member.session.keeps_qos0(False)


def _with_memory(
    group: ShareGroup, message: Message, shared: Shared, holder: Session
) -> Member | None:
    size_bytes = message.size_bytes()
    for member in group.members.values():
        session = member.session
        if session is holder or not _has_memory(member, shared):
            continue
        if session.may_receive(message) and session.takes(size_bytes, False, 0):
            return member
    return None


def _by_group(waiting: list[Delivery]) -> dict[str, list[Delivery]]:
    """``waiting`` by the shared subscription it came through."""
    groups: dict[str, list[Delivery]] = {}
    for delivery in waiting:
        assert delivery.shared is not None
        groups.setdefault(delivery.shared.topic_filter, []).append(delivery)
    return groups
