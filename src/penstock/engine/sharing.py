"""Shared subscriptions: of each message one member of the group gets a copy (v5 §4.8.2).

::

      message ─▶ trie ─▶ group ── choose ─▶ member: deliver ── acknowledged ─▶ done
                           ▲                   │
                           │ connection lost, unsubscribed, session ended
                           ╰───────────────────╯ what others may still get goes to others

A group is the members of one ``$share/{group}/{filter}``. Who is chosen: a member that is
connected and has room in its window or queue, by the group's strategy; else one that is away
with a session that is kept and has room; else one whose queue's overflow policy decides.

What goes back to the group, in the commit that takes it from the member:

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
from penstock.engine.clock import Now
from penstock.engine.drop_counts import Drops
from penstock.engine.effects import Effects
from penstock.engine.message import Delivery, Message, Shared
from penstock.engine.queue import PRIORITY_SHIFT
from penstock.engine.session import Session, SessionSubscription
from penstock.engine.topics import share_name

ROUND_ROBIN: Final = 0
RANDOM: Final = 1
STICKY: Final = 2
LEAST_INFLIGHT: Final = 3
HASH_CLIENT: Final = 4
HASH_TOPIC: Final = 5

STRATEGIES: Final[dict[str, int]] = {
    "round_robin": ROUND_ROBIN,
    "random": RANDOM,
    "sticky": STICKY,
    "least_inflight": LEAST_INFLIGHT,
    "hash_client": HASH_CLIENT,
    "hash_topic": HASH_TOPIC,
}

_32_BITS: Final = 0xFFFFFFFF
_HANDED_ON_MAX: Final = 1000  # at once, of what waits at one member


@final
class SharingOptions:
    """How shared subscriptions are handed out.

    Args:
        enabled: whether there are any.
        strategy: a name of ``STRATEGIES``.
        by_group: other strategies, by name of the group.
        seed: of the random strategy; the engine draws no random numbers itself.
        before_v5: clients older than MQTT 5 may use them too.
    """

    def __init__(
        self,
        enabled: bool = True,
        strategy: str = "round_robin",
        by_group: dict[str, str] | None = None,
        seed: int = 1,
        before_v5: bool = True,
    ) -> None:
        self.enabled = enabled
        self.strategy = STRATEGIES[strategy]
        self.by_group: dict[str, int] = {}
        if by_group is not None:
            for name, chosen in by_group.items():
                self.by_group[name] = STRATEGIES[chosen]
        self.seed = seed
        self.before_v5 = before_v5


@final
class Member:
    """One session in a group, with its own subscription's options."""

    def __init__(self, session: Session, entry: SessionSubscription) -> None:
        self.session = session
        self.entry = entry


@final
class Dice:
    """A small repeatable generator (xorshift, 32 bits)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """A number in [0, end)."""
        state = self._state
        state ^= state << 13 & _32_BITS
        state ^= state >> 17
        state ^= state << 5 & _32_BITS
        self._state = state
        return state % end


@final
class ShareGroup:
    """The members of one shared subscription.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        strategy: one of ``STRATEGIES``.
        dice: for the random strategy.
    """

    def __init__(self, topic_filter: str, strategy: int, dice: Dice) -> None:
        self.topic_filter = topic_filter
        self.members: list[Member] = []
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self.parked: dict[Session, None] = {}  # sessions away that hold what members may get
        self._strategy = strategy
        self._dice = dice
        self._next = 0
        self._favourite: Session | None = None

    def put(self, session: Session, entry: SessionSubscription) -> None:
        """Add a member, or change its options."""
        for member in self.members:
            if member.session is session:
                member.entry = entry
                break
        else:
            self.members.append(Member(session, entry))
        self._note_stored()

    def remove(self, session: Session) -> None:
        """``session`` is no member any more."""
        for position, member in enumerate(self.members):
            if member.session is session:
                del self.members[position]
                if position < self._next:
                    self._next -= 1
                break
        if self._favourite is session:
            self._favourite = None
        self._note_stored()

    def can_go_on(self) -> bool:
        """Whether a connected member has room."""
        for member in self.members:
            if member.session.link is not None and member.session.has_room():
                return True
        return False

    def refuses(self, size_bytes: int) -> bool:
        """Whether no member's queue has room, and all of them refuse."""
        for member in self.members:
            if member.entry.subscription.qos == 0 or not member.session.refuses(size_bytes):
                return False
        return len(self.members) > 0

    def choose(
        self, message: Message | None, apart_from: Session | None, connected: bool
    ) -> Member | None:
        """The member that gets ``message``.

        Args:
            message: what is to be delivered; None when its body is not in memory.
            apart_from: a session that must not get it.
            connected: only a connected member with room will do.
        """
        members = self.members
        count = len(members)
        if count == 0:
            return None
        if self._strategy == LEAST_INFLIGHT:
            chosen = self._least_loaded(apart_from, message)
            if chosen is not None:
                return chosen
        start = self._start(message, count)
        away: Member | None = None
        full: Member | None = None
        full_away: Member | None = None
        for step in range(count):
            position = start + step
            if position >= count:
                position -= count
            member = members[position]
            session = member.session
            if session is apart_from or not session.may_receive(message):
                continue
            if session.link is not None:
                if session.has_room():
                    self._chose(session, position)
                    return member
                full = full or member
            elif session.has_room():
                away = away or member
            else:
                full_away = full_away or member
        return None if connected else away or full or full_away

    def _start(self, message: Message | None, count: int) -> int:
        """Where to begin looking for a member that can take a message."""
        strategy = self._strategy
        if strategy == RANDOM:
            return self._dice.below(count)
        if strategy == HASH_CLIENT and message is not None:
            return crc32(message.client_id.encode()) % count
        if strategy == HASH_TOPIC and message is not None:
            return crc32(message.topic_bytes) % count
        if strategy == STICKY and self._favourite is not None:
            for position, member in enumerate(self.members):
                if member.session is self._favourite:
                    return position
        return self._next if self._next < count else 0

    def _chose(self, session: Session, position: int) -> None:
        self._next = position + 1
        if self._strategy == STICKY:
            self._favourite = session

    def _least_loaded(self, apart_from: Session | None, message: Message | None) -> Member | None:
        best: Member | None = None
        lowest = 0
        for member in self.members:
            session = member.session
            if session is apart_from or session.link is None or not session.has_room():
                continue
            if not session.may_receive(message):
                continue
            load = session.window_length + session.queue_length
            if best is None or load < lowest:
                best = member
                lowest = load
        return best

    def _note_stored(self) -> None:
        self.stored_qos = -1
        for member in self.members:
            if member.session.stored:
                self.stored_qos = max(self.stored_qos, member.entry.subscription.qos)


@final
class Sharing:
    """All shared subscriptions of one broker."""

    def __init__(self, effects: Effects, drops: Drops, options: SharingOptions) -> None:
        self.options = options
        self.groups: dict[str, ShareGroup] = {}  # by $share/{group}/{filter}
        self.uneven: dict[str, ShareGroup] = {}  # those with something parked
        self.shutting_down = False  # all members go: nothing is handed from one to the next
        self._effects = effects
        self._drops = drops
        self._dice = Dice(options.seed)

    # -- members -----------------------------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> ShareGroup | None:
        """Make ``session`` a member; the group if it is new."""
        topic_filter = entry.subscription.topic_filter
        group = self.groups.get(topic_filter)
        is_new = group is None
        if group is None:
            options = self.options
            strategy = options.by_group.get(share_name(topic_filter), options.strategy)
            group = ShareGroup(topic_filter, strategy, self._dice)
            self.groups[topic_filter] = group
        group.put(session, entry)
        return group if is_new else None

    def leave(self, session: Session, topic_filter: str) -> ShareGroup | None:
        """``session`` is no member any more; the group if it was its last."""
        group = self.groups.get(topic_filter)
        if group is None:
            return None
        group.remove(session)
        if group.members:
            return None
        del self.groups[topic_filter]
        return group

    # -- messages ----------------------------------------------------------------------

    def publish(self, group: ShareGroup, message: Message, at_once: bool, now: Now) -> bool:
        """Deliver ``message`` to one member; whether there was any."""
        member = group.choose(message, None, False)
        if member is None:
            if group.members:
                self._drops.count(reasons_to_drop.NO_PERMISSION, "", message.topic)
            return False
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
        session.deliver_shared(
            message,
            qos,
            shared.retain and subscription.retain_as_published,
            (identifier,) if identifier > 0 else (),
            shared,
            at_once,
            now,
        )
        if session.link is None:
            self._park(shared.topic_filter, session)

    def _park(self, topic_filter: str, session: Session) -> None:
        group = self.groups.get(topic_filter)
        if group is not None:
            group.parked[session] = None
            self.uneven[topic_filter] = group

    # -- members that cannot go on -------------------------------------------------------

    def unsubscribed(self, session: Session, topic_filter: str, now: Now) -> None:
        """A member left its group: what waits for it goes to others that are connected."""
        if session.took_shared:
            self._hand_on(session, _of(topic_filter, session.shared_waiting(False)), True, now)

    def left(self, session: Session, now: Now) -> None:
        """The connection of a member is gone, and its session is not."""
        if session.took_shared:
            waiting = session.shared_waiting(True)
            session.took_shared = len(waiting) > 0
            for delivery in waiting:
                assert delivery.shared is not None
                self._park(delivery.shared.topic_filter, session)
            if not self.shutting_down:
                self._hand_on(session, waiting, True, now)

    def ended(self, session: Session, now: Now) -> None:
        """The session of a member ends. It is in no group any more."""
        if session.took_shared:
            self._hand_on(session, session.shared_waiting(True), False, now)

    def ready(self, session: Session, now: Now) -> None:
        """``session`` is connected and may have room: it may take what others hold."""
        for topic_filter in list(self.uneven):
            if topic_filter in session.subscriptions:
                self._spread(self.uneven[topic_filter], now)

    def spread(self, now: Now) -> None:
        """Members that are away give to those that are connected and have room."""
        for group in list(self.uneven.values()):
            self._spread(group, now)

    def _spread(self, group: ShareGroup, now: Now) -> None:
        topic_filter = group.topic_filter
        for session in list(group.parked):
            if not group.can_go_on():
                return
            if session.link is None and not session.ended:
                waiting = _of(topic_filter, session.shared_waiting(True))
                if waiting:
                    self._hand_on(session, waiting[:_HANDED_ON_MAX], True, now)
                    continue
            del group.parked[session]
        if not group.parked or self.groups.get(topic_filter) is not group:
            self.uneven.pop(topic_filter, None)

    def _hand_on(self, holder: Session, waiting: list[Delivery], connected: bool, now: Now) -> None:
        """Give ``waiting`` of ``holder`` to other members, each as long as one can take it."""
        taken: list[Delivery] = []
        adopted: dict[Session, None] = {}
        for delivery in waiting:
            shared = delivery.shared
            assert shared is not None
            group = self.groups.get(shared.topic_filter)
            member = None
            if group is not None:
                member = group.choose(delivery.message, holder, connected)
            if member is None:
                continue
            taken.append(delivery)
            message = delivery.message
            if message is None:
                self._adopt(member, delivery, shared)
                adopted[member.session] = None
            elif message.expired(now.wall_us):
                self._drops.count(reasons_to_drop.EXPIRED, holder.client_id, message.topic)
            else:
                self._deliver(member, message, shared, False, now)
        if taken:
            holder.let_go(taken)
        for session in adopted:
            session.refill(now)

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
        session.adopt(copy, delivery.sequence >> PRIORITY_SHIFT)
        if session.link is None:
            self._park(shared.topic_filter, session)


def _of(topic_filter: str, waiting: list[Delivery]) -> list[Delivery]:
    """Those that came through this shared subscription."""
    return [
        delivery
        for delivery in waiting
        if delivery.shared is not None and delivery.shared.topic_filter == topic_filter
    ]
