"""Retained messages: the last known good value of each topic (v3.1 §2.1 RETAIN).

They are a tree of topic levels, so that a new subscription with wildcards visits only the nodes
that it matches. An empty payload removes the message and is not itself retained [MQTT-3.3.1-6].

A subscription may match a million messages. A *walk* finds them a few nodes at a time, with memory
only for the nodes still to be visited, while the tree changes::

      parent ─▶ child ⇄ child ⇄ child        in the order in which they were added
                          ╰─ a removed child keeps its ``next``, so that a walk whose next node
                             it is continues with the children that were added after it

A walk skips messages that were retained after it began: those reached the subscriber as they were
published, and an older value must not follow a newer one.

A *delivery* hands the messages of a walk to a session, in portions::

      SUBSCRIBE ─▶ RetainedDelivery ── next ─▶ session ─▶ window ─▶ link     while there is room
                        ╰── end of a portion ─▶ continued in the next turn

The session takes the next message when its window has room, so that any number of messages is
delivered, and only the messages in flight take memory. Another SUBSCRIBE with the same filter
replaces the delivery, and UNSUBSCRIBE ends it.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.values.clock import Now
from penstock.engine.values.memory_costs import levels_bytes
from penstock.engine.values.message import Message

PORTION: Final = 256  # nodes of the tree that a delivery visits in one turn

_EVERYTHING: Final = -1  # instead of a depth: below a "#"


@final
class _Node:
    def __init__(self, is_system: bool) -> None:
        self.is_system = is_system  # at the first level and under "$": no wildcard matches it
        self.children: dict[str, _Node] = {}
        self.first: _Node | None = None
        self.last: _Node | None = None
        self.next: _Node | None = None
        self.previous: _Node | None = None
        self.message: Message | None = None
        self.account: Pool | None = None  # the account in which the message counts
        self.serial = 0

    def add(self, name: str, child: _Node) -> None:
        """Append ``child`` as the last child."""
        self.children[name] = child
        last = self.last
        if last is None:
            self.first = child
        else:
            last.next = child
            child.previous = last
        self.last = child

    def remove(self, name: str, child: _Node) -> None:
        """Remove ``child``; its ``next`` stays, for a walk whose next node it is."""
        del self.children[name]
        if child.previous is None:
            self.first = child.next
        else:
            child.previous.next = child.next
        if child.next is None:
            self.last = child.previous
        else:
            child.next.previous = child.previous


@final
class RetainedMessages:
    """At most ``limit`` retained messages, one for each topic.

    Args:
        limit: the number of messages.
        bytes_max: bytes of all messages and their nodes, approximately; 0 = no limit.
    """

    def __init__(self, limit: int, bytes_max: int = 0) -> None:
        self.size_bytes = 0
        self.limit = limit
        self._bytes_max = bytes_max
        self._root = _Node(False)
        self._count = 0
        self._serial = 0  # serial number of the latest message

    def __len__(self) -> int:
        return self._count

    def has_room(self, message: Message, account: Pool | None = None) -> bool:
        """Return whether there is room to retain ``message``, within the limits of ``account`` too
        if it is given."""
        delta_bytes = _memory_bytes(message)
        is_new_too = self._count < self.limit and not self._is_beyond(delta_bytes)
        if is_new_too and (account is None or account.has_room_for_retained(delta_bytes)):
            return True
        node = self._node(message.topic)
        known = None if node is None else node.message
        if node is None or known is None:
            return False
        if self._is_beyond(delta_bytes - _memory_bytes(known)):
            return False
        if account is None:
            return True
        own_bytes = _memory_bytes(known) if node.account is account else 0
        return account.has_room_for_retained(delta_bytes - own_bytes)

    def put(self, message: Message, account: Pool | None = None) -> bool:
        """Retain ``message`` for its topic; return False if there is no room for it.

        The message counts in ``account``; a replaced message is subtracted from its own account.
        """
        if not self.has_room(message, account):
            return False
        self.restore(message, account)
        return True

    def restore(self, message: Message, account: Pool | None = None) -> None:
        """Retain ``message``, regardless of the limits."""
        node = self._root
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = _Node(node is self._root and level.startswith("$"))
                node.add(level, child)
            node = child
        if node.message is None:
            self._count += 1
        else:
            self._count_bytes(node, -_memory_bytes(node.message))
        node.account = account
        self._count_bytes(node, _memory_bytes(message))
        node.message = message
        self._serial += 1
        node.serial = self._serial

    def remove(self, topic: str) -> bool:
        """Remove the message of ``topic``; return whether there was one."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                return False
            path.append((node, level))
            node = child
        if node.message is None:
            return False
        self._count_bytes(node, -_memory_bytes(node.message))
        node.account = None
        node.message = None
        self._count -= 1
        while path and _is_unused(node):
            parent, level = path.pop()
            parent.remove(level, node)
            node = parent
        return True

    def get(self, topic: str) -> Message | None:
        """Return the retained message of exactly ``topic``, or None."""
        node = self._node(topic)
        return None if node is None else node.message

    def _node(self, topic: str) -> _Node | None:
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                return None
            node = child
        return node

    def _count_bytes(self, node: _Node, delta_bytes: int) -> None:
        self.size_bytes += delta_bytes
        if node.account is not None:
            node.account.count_retained(delta_bytes)

    def match(self, topic_filter: str) -> list[Message]:
        """Return the retained messages whose topics ``topic_filter`` matches."""
        found: list[Message] = []
        walk = self.walk(topic_filter)
        while not walk.is_finished:
            message = walk.step()
            if message is not None:
                found.append(message)
        return found

    def may_match(self, topic_filter: str) -> bool:
        """Return whether ``topic_filter`` may match a retained message: the first level is known.

        Most clients subscribe to what nobody retains, and need no walk.
        """
        level = topic_filter.partition("/")[0]
        return level in self._root.children or level in ("+", "#")

    def walk(self, topic_filter: str) -> RetainedWalk:
        """Return a walk over the retained messages whose topics ``topic_filter`` matches."""
        return RetainedWalk(self._root, self._serial, topic_filter)

    def _is_beyond(self, delta_bytes: int) -> bool:
        return 0 < self._bytes_max < self.size_bytes + delta_bytes


@final
class RetainedWalk:
    """A walk over the retained messages that one filter matches, a node at a time.

    Args:
        root: the root of the tree.
        serial: serial number of the latest message at the beginning; later ones are skipped.
        topic_filter: a valid filter.
    """

    def __init__(self, root: _Node, serial: int, topic_filter: str) -> None:
        self._serial = serial
        self._levels = topic_filter.split("/")
        # nodes to visit, last first: (node, depth, whether its later siblings are visited too)
        self._nodes_to_visit: list[tuple[_Node, int, bool]] = [(root, 0, False)]

    @property
    def is_finished(self) -> bool:
        """Return whether all matching nodes were visited."""
        return not self._nodes_to_visit

    def step(self) -> Message | None:
        """Visit the next node; return its message if it has one that matches, else None.

        The walk must not be finished.
        """
        assert self._nodes_to_visit, "the walk is finished"
        node, depth, siblings = self._nodes_to_visit.pop()
        if siblings:
            if node.next is not None:
                self._nodes_to_visit.append((node.next, depth, True))
            if node.is_system:
                return None
        if depth == len(self._levels):
            return self._message(node)
        level = "#" if depth == _EVERYTHING else self._levels[depth]
        if level == "#":
            if node.first is not None:
                self._nodes_to_visit.append((node.first, _EVERYTHING, True))
            return self._message(node)
        if level == "+":
            if node.first is not None:
                self._nodes_to_visit.append((node.first, depth + 1, True))
        else:
            exact = node.children.get(level)
            if exact is not None:
                self._nodes_to_visit.append((exact, depth + 1, False))
        return None

    def _message(self, node: _Node) -> Message | None:
        return node.message if node.serial <= self._serial else None


@final
class RetainedDelivery:
    """The retained messages that are not delivered yet for one subscription.

    Args:
        retained: the retained messages.
        topic_filter: the filter of the subscription.
        qos: the granted QoS.
        subscription_ids: subscription identifiers to send with each message.
        excluded_client_id: the client identifier whose messages are omitted (No Local), or None.
        is_logged: whether messages delivered at QoS 1 or 2 are appended to the log, for a stored
            session.
        context: the parts of the broker that it acts on.
    """

    def __init__(
        self,
        retained: RetainedMessages,
        topic_filter: str,
        qos: int,
        subscription_ids: tuple[int, ...],
        excluded_client_id: str | None,
        is_logged: bool,
        context: EngineContext,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.subscription_ids = subscription_ids
        self.visits_left = 0  # nodes that ``next`` may visit
        self._retained_messages = retained
        self._walk = retained.walk(topic_filter)
        self._excluded_client_id = excluded_client_id
        self._is_logged = is_logged
        self._context = context

    @property
    def is_finished(self) -> bool:
        """Return whether all retained messages were visited."""
        return self._walk.is_finished

    def next(self, now: Now) -> Message | None:
        """Return the next message; None if all were visited, or ``visits_left`` is 0."""
        before = self.visits_left
        message = self._find(now)
        self._context.turn.work_budget.work_done += before - self.visits_left
        return message

    def _find(self, now: Now) -> Message | None:
        walk = self._walk
        while self.visits_left > 0 and not walk.is_finished:
            self.visits_left -= 1
            message = walk.step()
            if message is None:
                continue
            if message.is_expired(now.steady_us):
                self._retained_messages.remove(message.topic)
                self._context.batch.put_retained(message.topic, None)
            elif self._excluded_client_id is None or message.client_id != self._excluded_client_id:
                if self._is_logged and min(message.qos, self.qos) > 0:
                    message = message.copy_for_session()
                    self._context.batch.append(message)
                return message
        return None


def _memory_bytes(message: Message) -> int:
    """Return about how many bytes ``message`` and the nodes of its topic take, if no other topic
    shares these nodes."""
    return message.size_bytes() + levels_bytes(message.topic)


def _is_unused(node: _Node) -> bool:
    # A separate function: after `node.message = None` the type checker takes the message of the
    # next node for None too, and the compiled code would rely on that.
    return not node.children and node.message is None
