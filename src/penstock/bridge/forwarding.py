"""The changes that a bridge makes to a forwarded message: another topic, a higher hop count.

::

      local ─▶ filter matches ─ remove prefix, add prefix ─▶ remote          out
      local ◀─ add prefix, remove prefix ─ filter matches ◀─ remote          in

Loops: brokers that are bridged in a ring would forward a message for ever. So each bridge counts
the hops of a message in a user property (``HOPS``), and forwards only messages with fewer hops than
it allows. MQTT before version 5 has no properties to count in: there a bridge does not send back
messages that it published itself (no local), which ends a loop of two brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from penstock.engine.api import Outlet, Passage
from penstock.engine.values.event_kinds import BRIDGED
from penstock.engine.values.message import Message
from penstock.engine.values.topic_cache import TopicCache
from penstock.engine.values.topics import SHARE_PREFIX, topic_matches
from penstock.protocol.kinds import V5
from penstock.protocol.properties import Properties, encode_properties, parse_properties

HOPS: Final = "penstock-hops"  # user property: the number of bridges that a message has passed

_TOPICS_MAX: Final = 10_000
_NO_RULE: Final = -1
_TOPIC_BYTES_MAX: Final = 65_535


@final
class Rule(Passage):
    """A rule that says which messages are forwarded, and under which topic.

    Args:
        topic_filter: matches the topics of the messages on the side they come from.
        remove: prefix that is removed from a topic; a topic without it stays whole.
        add: prefix that is put before the topic after that.
        qos_max: highest QoS of a forwarded message, 0..2.
        keeps_retain: whether RETAIN stays as it was published.
        group: share name of a shared subscription; empty for an ordinary one.
    """

    def __init__(
        self,
        topic_filter: str,
        remove: str,
        add: str,
        qos_max: int,
        keeps_retain: bool,
        group: str = "",
    ) -> None:
        super().__init__(qos_max, keeps_retain)
        self.topic_filter = topic_filter
        shared_filter = f"{SHARE_PREFIX}{group}/{topic_filter}"
        self.subscription_filter = shared_filter if group else topic_filter
        self.is_shared = group != ""
        self._prefix_removed = remove
        self._prefix_added = add

    def topic_for(self, topic: str) -> str:
        """Return the topic under which a message with ``topic`` is forwarded."""
        return self._prefix_added + topic.removeprefix(self._prefix_removed)


@final
class Forwarding:
    """One direction of a bridge: its rules and its counters.

    Args:
        rules: the rules; the first one that matches a topic applies.
        hops_max: a message that has passed this many bridges is not forwarded; 1 or more.
        user_properties: added to each forwarded message, in MQTT 5.
    """

    def __init__(
        self, rules: list[Rule], hops_max: int, user_properties: list[tuple[str, str]]
    ) -> None:
        self.rules = rules
        self.looped_messages = 0  # messages not forwarded because of their hops
        self.too_long_topics = 0  # messages not forwarded because their topic would be too long
        self._hops_max = hops_max
        self._user_properties = user_properties
        self._rule_numbers = TopicCache(_TOPICS_MAX)
        self._first_hop = encode_properties(self._with_one_more_hop(Properties(), 0))

    def rule_for(self, topic: str) -> Rule | None:
        """Return the rule that matches ``topic``; None if the topic is not forwarded."""
        place = self._rule_numbers.numbers.get(topic)
        if place is None:
            place = _NO_RULE
            for number, rule in enumerate(self.rules):
                if topic_matches(rule.topic_filter, topic):
                    place = number
                    break
            self._rule_numbers.put(topic, place)
        return None if place == _NO_RULE else self.rules[place]

    def rule_that_forwards(self, topic: str, encoded: bytes) -> Rule | None:
        """Return the rule by which a message with this topic and these properties is forwarded;
        None if it is not."""
        rule = self.rule_for(topic)
        return rule if rule is not None and self.may_forward(rule, topic, encoded) else None

    def may_forward(self, rule: Rule, topic: str, encoded: bytes) -> bool:
        """Return whether ``rule`` may forward a message with this topic and these properties.

        If not, the message is counted as looped or as too long.
        """
        if len(rule.topic_for(topic).encode()) > _TOPIC_BYTES_MAX:
            self.too_long_topics += 1
            return False
        if hops_of(encoded) >= self._hops_max:
            self.looped_messages += 1
            return False
        return True

    def properties_for(self, encoded: bytes) -> bytes:
        """Return the encoded properties of a forwarded message: the hop count raised by one, and
        the user properties of the bridge."""
        if len(encoded) == 0:
            return self._first_hop
        properties = parse_properties(encoded)
        return encode_properties(self._with_one_more_hop(properties, hops_of(encoded)))

    def _with_one_more_hop(self, properties: Properties, hops: int) -> Properties:
        others = [pair for pair in properties.user_properties or [] if pair[0] != HOPS]
        properties.user_properties = [
            *others,
            *[pair for pair in self._user_properties if pair not in others],
            (HOPS, str(hops + 1)),
        ]
        return properties


@final
class BridgeOutlet(Outlet):
    """The outlet of a bridge's session, to the remote broker.

    Args:
        forwarding: the rules for messages to the remote broker.

    Attributes:
        resent: number of PUBLISH packets that were repeats.
        acknowledged: number of messages, by PUBACK or PUBCOMP.
        note_uncounted: called with topic and payload of each message that is forwarded without a
            hop count, before MQTT 5; None if nobody asks.
    """

    def __init__(self, forwarding: Forwarding) -> None:
        super().__init__(None)
        self.is_of_settings = True
        self.acknowledged_kind = BRIDGED
        self._forwarding = forwarding
        self.resent = 0
        self.acknowledged = 0
        self.note_uncounted: Callable[[str, bytes], None] | None = None
        self._packets = 0  # PUBLISH packets that were sent, repeats included

    @property
    def sent(self) -> int:
        """Return how many messages were sent; repeats are not counted."""
        return self._packets - self.resent

    def passage(self, message: Message) -> Passage | None:
        """Return the rule by which ``message`` is forwarded; None if it is not."""
        return self._forwarding.rule_that_forwards(message.topic, message.properties)

    def outgoing(self, message: Message, passage: Passage, version: int) -> Message | None:
        """Return the forwarded form of ``message``: its topic on the other side, its properties."""
        assert isinstance(passage, Rule), "it is what ``passage`` returned"
        topic = passage.topic_for(message.topic)
        if version == V5:
            return message.copy_as(topic, self._forwarding.properties_for(message.properties))
        if self.note_uncounted is not None:
            self.note_uncounted(message.topic, message.payload)
        return message if topic == message.topic else message.copy_as(topic, b"")

    def note_sent(self) -> None:
        """Count a PUBLISH that was sent, for the first time or again."""
        self._packets += 1

    def note_resent(self) -> None:
        """Count the PUBLISH that was sent last as a repeat."""
        self.resent += 1

    def note_acknowledged(self) -> None:
        """Count a message that the remote broker acknowledged."""
        self.acknowledged += 1


def hops_of(encoded: bytes) -> int:
    """Return how many bridges a message with these encoded properties has passed.

    A hop count that is no number counts as 0.
    """
    if len(encoded) == 0 or HOPS.encode() not in encoded:
        return 0
    hops = 0
    for name, value in parse_properties(encoded).user_properties or []:
        if name == HOPS and value.isascii() and value.isdigit() and len(value) <= 4:
            hops = max(hops, int(value))
    return hops
