"""Finds the birth certificates that define the metrics of a Sparkplug message.

    …/spBv1.0/GROUP/NBIRTH/NODE           defines the metrics of   NDATA, NCMD, NDEATH of the node
    …/spBv1.0/GROUP/DBIRTH/NODE/DEVICE    defines those of         DDATA, DCMD, DDEATH of the device

The last birth before a message counts, wherever a batch or a task begins: a message at one offset
always has the same births. A birth of the node ends the definitions of its devices: each of them is
born again (tck-id-message-flow-device-birth-publish-nbirth-wait). A death ends none, because types
stay what they are until the next birth.

    ── DBIRTH d ── DDATA d ── NBIRTH ── DDATA d ── DBIRTH d ── DDATA d ──▶ offset
                   defined             undefined               defined

Behind a *gap*, a range of offsets whose births are unknown, nothing is defined by a birth before
it: one of the lost messages may have been a birth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.decoding.decoder import DecodingPostponed

NO_END: Final = 2**63
"""The end of births that are complete."""

NAMESPACE: Final = "spBv1.0"
"""The level of topics at which the namespace of Sparkplug B begins."""

PREFIX_LEVELS_MAX: Final = 4
"""Most levels before the namespace that a # in a table's topics stands for: bridges add some."""

_NODE_LEVELS: Final = 4
_DEVICE_LEVELS: Final = 5

Gaps = Sequence[tuple[int, int]]
"""Ranges of offsets, from the first up to, not including, the second; ascending."""


@dataclass(frozen=True, slots=True)
class Birth:
    """A birth certificate in the log: its offset, and where its payload is."""

    offset: int
    payloads: pa.ChunkedArray
    position: int

    @property
    def payload(self) -> bytes:
        """The payload."""
        return self.payloads[self.position].as_py() or b""


@dataclass(frozen=True, slots=True)
class DefiningBirths:
    """The births that define the metrics of a message.

    Attributes:
        own: the birth of the message's node or device; None without one.
        node: the birth of the node, which has the definitions of templates; None without one.
        missing: why `own` is None, to follow "Metric x has no data type, and"; else empty.
    """

    own: Birth | None
    node: Birth | None
    missing: str = ""


class Births:
    """The births of nodes and devices in the order of the log.

    Args:
        tables: births, with the columns offset, topic and payload; in any order.
        gaps: ranges whose births are unknown.
        end: the offset before which all births are known, except those in gaps.
    """

    def __init__(self, tables: Iterable[pa.Table] = (), gaps: Gaps = (), end: int = NO_END) -> None:
        self._gaps = sorted(gaps)
        self._end = end
        self._by_topic: dict[str, dict[int, Birth]] = {}
        self._topics: dict[str, tuple[str, str] | None] = {}
        for table in tables:
            payloads = table.column("payload")
            offsets, topics = (table.column(name).to_pylist() for name in ("offset", "topic"))
            for position, (offset, topic) in enumerate(zip(offsets, topics, strict=True)):
                births = self._by_topic.setdefault(topic, {})
                births[offset] = Birth(offset, payloads, position)
        self._offsets = {topic: sorted(births) for topic, births in self._by_topic.items()}

    def find(self, topic: str, offset: int) -> DefiningBirths:
        """Return the births that define the metrics of a message.

        Raises:
            DecodingPostponed: births before the message may be missing here.
        """
        if offset >= self._end:
            raise DecodingPostponed(
                f"births before offset {offset} are needed, and known only before {self._end}"
            )
        if topic not in self._topics:
            self._topics[topic] = birth_topics(topic)
        topics = self._topics[topic]
        if topics is None:
            return DefiningBirths(None, None, "its topic is that of no Sparkplug node")
        node_topic, device_topic = topics
        node, is_device = self._last(node_topic, offset), bool(device_topic)
        own = self._last(device_topic, offset) if is_device else node
        begin = max((end for start, end in self._gaps if start < offset), default=0)
        if node is not None and node.offset < begin:
            node = None
        if own is None or own.offset < begin:
            what = "DBIRTH of its device" if is_device else "NBIRTH of its node"
            lost = f" (messages before offset {begin} are unknown)" if begin else ""
            return DefiningBirths(None, node, f"no {what} is known{lost}")
        if node is not None and node.offset > own.offset:
            return DefiningBirths(
                None,
                node,
                f"its device was not born again after the NBIRTH at offset {node.offset}",
            )
        return DefiningBirths(own, node)

    def _last(self, topic: str, offset: int) -> Birth | None:
        offsets = self._offsets.get(topic)
        place = bisect_left(offsets, offset) if offsets else 0
        if not offsets or not place:
            return None
        return self._by_topic[topic][offsets[place - 1]]


def births_among(offsets: pa.Array, topics: pa.Array, payloads: pa.Array) -> pa.Table:
    """Return the births among messages, as `Births` takes them."""
    encoded = pa.array(topics).dictionary_encode()
    are_births = pa.array(list(map(is_birth, encoded.dictionary.to_pylist())), pa.bool_())
    table = pa.table({"offset": offsets, "topic": topics, "payload": payloads})
    return table.filter(are_births.take(encoded.indices))


def is_birth(topic: str) -> bool:
    """Return whether a topic is that of an NBIRTH or DBIRTH."""
    topics = birth_topics(topic)
    return topics is not None and topic in topics


def birth_topics(topic: str) -> tuple[str, str] | None:
    """Return the topics of the births of a message's node and device.

    The second is empty for a message of a node. None if the topic is not one of Sparkplug B.
    """
    levels = topic.split("/")
    if NAMESPACE not in levels:
        return None
    first = levels.index(NAMESPACE)
    above, below = levels[: first + 1], levels[first:]
    if len(below) not in (_NODE_LEVELS, _DEVICE_LEVELS):
        return None
    node = "/".join([*above, below[1], "NBIRTH", below[3]])
    if len(below) == _NODE_LEVELS:
        return node, ""
    return node, "/".join([*above, below[1], "DBIRTH", *below[3:]])


def birth_filters(topic_filter: str) -> tuple[str, ...]:
    """Return topic filters of the births that define the metrics of messages.

    Args:
        topic_filter: the MQTT topic filter of these messages.
    """
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        levels = levels[:-1] + ["+"] * (PREFIX_LEVELS_MAX + _DEVICE_LEVELS)
        lengths = range(_NODE_LEVELS, _DEVICE_LEVELS + 1)
    else:
        lengths = range(0)
    found: dict[str, None] = {}
    named = levels.index(NAMESPACE) if NAMESPACE in levels else None
    for first in range(len(levels)) if named is None else (named,):
        below = levels[first:]
        if below[0] not in (NAMESPACE, "+"):
            continue
        for length in lengths or (len(below),):
            if length not in (_NODE_LEVELS, _DEVICE_LEVELS) or length > len(below):
                continue
            above = [*levels[:first], NAMESPACE]
            found["/".join([*above, below[1], "NBIRTH", below[3]])] = None
            if length == _DEVICE_LEVELS:
                found["/".join([*above, below[1], "DBIRTH", below[3], below[4]])] = None
    return tuple(found)
