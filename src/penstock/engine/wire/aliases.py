"""Topic aliases of one connection (v5 §3.3.2.3.4): this side's own, and the peer's.

::

      first PUBLISH of a topic ─▶ "plant/7/temperature" + alias 3      it defines
      later ones               ─▶ "" + alias 3                         they use

A packet is sent at once, or deferred until a commit (``link``), and packets that are sent at once
overtake deferred ones. A packet that uses an alias must not overtake the one that defined it, and
none that defines it anew may overtake one that uses it. So each alias has the numbers of the link's
batches with which its definition and its last use are sent:

* deferred packets are sent in order, and may always use or define;
* a packet that is sent at once uses an alias only when the definition was sent, and defines it anew
  only when all its uses were sent;
* a packet that waits behind deferred packets of QoS 0, only to keep its place, has no alias.

Free aliases are assigned to new topics. When there are none, the clock algorithm replaces one: a
hand moves one step for each topic without an alias; an alias that was used since the hand passed it
last stays, any other is assigned to the new topic.
"""

from __future__ import annotations

from typing import Final, final

from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons

_TOPIC_ALIAS: Final = 0x23
_TOPIC_LENGTH_MIN: Final = 4  # an alias takes three bytes itself


@final
class _Alias:
    """One outbound alias, and the batches with which its definition and last use are sent."""

    def __init__(self, number: int) -> None:
        self.encoded = bytes((_TOPIC_ALIAS, number >> 8, number & 0xFF))
        self.topic = ""
        self.defined = 0  # the batch with which the definition is sent
        self.last = 0  # the batch with which the last packet that needs it is sent
        self.recent = False  # used since the hand passed it last


@final
class OutboundAliases:
    """The topic aliases that this side defines on one link.

    Batches are numbered by the link: ``batch`` is the one with which a packet will be sent, 0 if it
    is sent at once; ``last_sent_batch`` is the last one that was sent.

    Args:
        maximum: the peer's Topic Alias Maximum, or less; 1..65535.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._aliases: list[_Alias] = []
        self._by_topic: dict[str, _Alias] = {}
        self._hand = 0
        self._chosen: _Alias | None = None  # for ``define``

    def known(self, topic: str, batch: int, last_sent_batch: int) -> bytes:
        """Return the encoded alias property that replaces ``topic``; empty when the topic must be
        spelled out."""
        alias = self._by_topic.get(topic)
        if alias is None:
            return b""
        alias.recent = True
        if batch > 0:
            alias.last = batch
        elif alias.defined > last_sent_batch:
            return b""
        return alias.encoded

    def propose(self, topic: str, batch: int, last_sent_batch: int) -> bytes:
        """Return the encoded property that would define an alias for ``topic``; empty when no
        alias is free.

        Call ``define`` when it is certain that the packet is sent.
        """
        if len(topic) < _TOPIC_LENGTH_MIN or topic in self._by_topic:
            return b""
        count = len(self._aliases)
        if count < self._maximum:
            self._chosen = _Alias(count + 1)
            return self._chosen.encoded
        alias = self._aliases[self._hand]
        self._hand = (self._hand + 1) % count
        if alias.recent:
            alias.recent = False
            return b""
        if batch == 0 and alias.last > last_sent_batch:
            return b""
        self._chosen = alias
        return alias.encoded

    def define(self, topic: str, batch: int, last_sent_batch: int) -> None:
        """Define the alias that ``propose`` returned last: its packet is sent."""
        alias = self._chosen
        assert alias is not None
        if alias.topic:
            del self._by_topic[alias.topic]
        else:
            self._aliases.append(alias)
        alias.topic = topic
        alias.recent = True
        alias.defined = batch if batch > 0 else last_sent_batch
        alias.last = alias.defined
        self._by_topic[topic] = alias


@final
class InboundAliases:
    """The topic aliases that the peer defines on one connection.

    Args:
        maximum: our Topic Alias Maximum, 0..65535.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def topic_of(self, topic: str, alias: int) -> str:
        """Return the topic name of a PUBLISH with ``alias``; a ``topic`` that is not empty defines
        it anew.

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
