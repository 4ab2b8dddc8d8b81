"""Topic aliases of one connection (v5 §3.3.2.3.4): those of this side, and those of the peer.

::

      first PUBLISH of a topic ─▶ "plant/7/temperature" + alias 3      defines the alias
      later PUBLISH packets    ─▶ "" + alias 3                         use the alias

A packet is sent at once, or deferred until a commit (``link``), and packets that are sent at once
overtake deferred ones. A packet that uses an alias must not overtake the packet that defined it,
and a packet that redefines an alias must not overtake one that uses it. So each alias has the
numbers of the link's batches with which its definition and its last use are sent:

* deferred packets are sent in order, and may always use or define;
* a packet that is sent at once uses an alias only when the definition was sent, and defines it anew
  only when all its uses were sent;
* a QoS 0 packet that waits behind deferred QoS 0 packets, only for the order, has no alias.

Free aliases are assigned to new topics. When none is free, the clock algorithm replaces one: a hand
moves one step for each topic without an alias; an alias that was used since the hand last passed it
is kept, any other is assigned to the new topic.
"""

from __future__ import annotations

from typing import Final, final

from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons

_TOPIC_ALIAS: Final = 0x23
_TOPIC_LENGTH_MIN: Final = 4  # an alias takes three bytes, so a shorter topic gets none


@final
class _Alias:
    """One outbound alias, and the batches with which its definition and last use are sent."""

    def __init__(self, number: int) -> None:
        self.encoded = bytes((_TOPIC_ALIAS, number >> 8, number & 0xFF))
        self.topic = ""
        self.defined_in_batch = 0  # the batch with which the definition is sent
        self.last_used_in_batch = 0  # the batch with which the last packet that needs it is sent
        self.is_recently_used = False  # used since the hand last passed it


@final
class OutboundAliases:
    """The topic aliases that this side defines on one link.

    The link numbers its batches. In each method ``batch`` is the batch with which the packet will
    be sent, 0 if the packet is sent at once; ``last_sent_batch`` is the last batch that was sent.

    Args:
        maximum: the peer's Topic Alias Maximum, or less; 1..65535.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._aliases: list[_Alias] = []
        self._by_topic: dict[str, _Alias] = {}
        self._hand = 0
        self._proposed_alias: _Alias | None = None  # proposed last, for ``define``

    def known(self, topic: str, batch: int, last_sent_batch: int) -> bytes:
        """Return the encoded alias property to send instead of ``topic``; empty if the packet must
        have the topic name."""
        alias = self._by_topic.get(topic)
        if alias is None:
            return b""
        alias.is_recently_used = True
        if batch > 0:
            alias.last_used_in_batch = batch
        elif alias.defined_in_batch > last_sent_batch:
            return b""
        return alias.encoded

    def propose(self, topic: str, batch: int, last_sent_batch: int) -> bytes:
        """Return the encoded property that would define an alias for ``topic``; empty if no alias
        can be assigned now.

        The caller calls ``define`` once it is certain that the packet is sent.
        """
        if len(topic) < _TOPIC_LENGTH_MIN or topic in self._by_topic:
            return b""
        count = len(self._aliases)
        if count < self._maximum:
            self._proposed_alias = _Alias(count + 1)
            return self._proposed_alias.encoded
        alias = self._aliases[self._hand]
        self._hand = (self._hand + 1) % count
        if alias.is_recently_used:
            alias.is_recently_used = False
            return b""
        if batch == 0 and alias.last_used_in_batch > last_sent_batch:
            return b""
        self._proposed_alias = alias
        return alias.encoded

    def define(self, topic: str, batch: int, last_sent_batch: int) -> None:
        """Assign the alias that ``propose`` returned last to ``topic``: the packet is sent."""
        alias = self._proposed_alias
        assert alias is not None
        if alias.topic:
            del self._by_topic[alias.topic]
        else:
            self._aliases.append(alias)
        alias.topic = topic
        alias.is_recently_used = True
        alias.defined_in_batch = batch if batch > 0 else last_sent_batch
        alias.last_used_in_batch = alias.defined_in_batch
        self._by_topic[topic] = alias


@final
class InboundAliases:
    """The topic aliases that the peer defines on one connection.

    Args:
        maximum: the Topic Alias Maximum of this side, 0..65535.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def topic_of(self, topic: str, alias: int) -> str:
        """Return the topic name of a PUBLISH with ``alias``.

        If the packet has a ``topic``, the alias is defined, or redefined, for that topic.

        Raises:
            RemoteProtocolError: 0x94, the alias is above the maximum; 0x82, it is not defined.
        """
        if alias > self._maximum:  # [MQTT-3.3.2-9]
            raise RemoteProtocolError(
                reasons.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum"
            )
        if topic:
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"topic alias {alias} is unknown")
        return known
