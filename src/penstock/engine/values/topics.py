"""Topic names and topic filters: when they are well formed, and which filter matches which topic.

A topic name is levels separated by ``/``. In a filter ``+`` stands for one whole
level and ``#``, as the last level, for any number of levels, none included, so
that ``a/#`` matches ``a`` too [MQTT 5 §4.7.1]. A wildcard in the first level does
not match topics that start with ``$`` [MQTT-4.7.2-1].
"""

from __future__ import annotations

from typing import Final

SHARE_PREFIX: Final = "$share/"
SYSTEM_PREFIX: Final = "$SYS/"
PENSTOCK_PREFIX: Final = "$penstock/"
EVENTS_PREFIX: Final = "$events/"
_BRIDGE_STATE_PREFIX: Final = "$SYS/broker/connection/"
FLOW_TOPIC: Final = "$penstock/flow"
TOPIC_BYTES_MAX: Final = 65535


def is_topic_name(topic: str, levels_max: int, accepts_controls: bool = True) -> bool:
    """Return whether ``topic`` is a valid topic name: not empty, no wildcard, at most
    ``levels_max`` levels, and no control characters unless they are accepted.

    The decoder has checked that it is well-formed UTF-8 without U+0000.
    """
    if not accepts_controls and _has_controls(topic):
        return False
    if not topic or "+" in topic or "#" in topic:  # [MQTT-4.7.3-1] [MQTT-3.3.2-2]
        return False
    return topic.count("/") < levels_max


def _has_controls(text: str) -> bool:
    """Return whether ``text`` has a control character, U+0001 to U+001F or U+007F to U+009F."""
    if text.isprintable():
        return False
    return any(character < " " or "\x7f" <= character <= "\x9f" for character in text)


def is_topic_filter(topic_filter: str, levels_max: int, accepts_controls: bool = True) -> bool:
    """Return whether ``topic_filter`` is well formed [MQTT-4.7.1-1] [MQTT-4.7.1-2], with at most
    ``levels_max`` levels, and without control characters unless they are accepted."""
    if not accepts_controls and _has_controls(topic_filter):
        return False
    if not topic_filter or topic_filter.count("/") >= levels_max:
        return False
    if "+" not in topic_filter and "#" not in topic_filter:
        return True
    levels = topic_filter.split("/")
    last = len(levels) - 1
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != last):
            return False
        if "+" in level and level != "+":
            return False
    return True


def is_shared(topic_filter: str) -> bool:
    """Return whether ``topic_filter`` is a shared subscription, ``$share/{group}/{filter}``
    [MQTT 5 §4.8.2]."""
    return topic_filter.startswith(SHARE_PREFIX)


def without_share_prefix(topic_filter: str) -> str:
    """Return ``topic_filter`` without the ``$share/{group}/`` of a shared subscription.

    Return an empty text if a shared subscription has no filter.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return topic_filter
    end = topic_filter.find("/", len(SHARE_PREFIX))
    return "" if end < 0 else topic_filter[end + 1 :]


def share_name(topic_filter: str) -> str:
    """Return the share name (``{group}``) of a shared subscription."""
    end = topic_filter.find("/", len(SHARE_PREFIX))
    return topic_filter[len(SHARE_PREFIX) :] if end < 0 else topic_filter[len(SHARE_PREFIX) : end]


def is_share_name(name: str, accepts_controls: bool = True) -> bool:
    """Return whether ``name`` is a valid share name [MQTT-4.8.2-1] [MQTT-4.8.2-2], without control
    characters unless they are accepted."""
    if not accepts_controls and _has_controls(name):
        return False
    return name != "" and "/" not in name and "+" not in name and "#" not in name


def is_system_topic(topic: str) -> bool:
    """Return whether only the server publishes to ``topic`` (v5 §4.7.2)."""
    if not topic.startswith("$"):
        return False
    if topic.startswith((SYSTEM_PREFIX, PENSTOCK_PREFIX, EVENTS_PREFIX)):
        return True
    return topic in ("$SYS", "$penstock", "$events")  # "$SYS/#" matches its parent too


def bridge_state_topic(name: str) -> str:
    """Return the topic of the connection state of the bridge ``name``."""
    return f"{_BRIDGE_STATE_PREFIX}{name}/state"


def is_bridge_state(topic: str) -> bool:
    """Return whether ``topic`` is the connection state of a bridge.

    The bridge publishes 1 there, and 0 by its will. Mosquitto defined the topic,
    ``$SYS/broker/connection/NAME/state``; it is the only one below ``$SYS/`` that a client may
    publish to.
    """
    if not topic.startswith(_BRIDGE_STATE_PREFIX) or not topic.endswith("/state"):
        return False
    return topic.count("/") == 4 and len(topic) > len(_BRIDGE_STATE_PREFIX) + len("/state")


def is_events_filter(topic_filter: str) -> bool:
    """Return whether ``topic_filter`` matches nothing but events of the broker."""
    return topic_filter == "$events" or topic_filter.startswith(EVENTS_PREFIX)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Return whether ``topic_filter`` matches ``topic``.

    Args:
        topic_filter: a well-formed filter.
        topic: a topic name.
    """
    if topic_filter == topic:
        return True
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):  # [MQTT-4.7.2-1]
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    depth = len(levels)
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= depth or (level != "+" and level != levels[position]):
            return False
        if position == depth - 1 and len(wanted) == depth + 1 and wanted[depth] == "#":
            return True  # "a/#" matches "a" itself
    return len(wanted) == depth


def filter_covers(wide: str, narrow: str) -> bool:
    """Return whether the filter ``wide`` matches every topic that the filter ``narrow`` matches.

    Both must be well formed.
    """
    if wide == narrow or (wide == "+/#" and narrow == "#"):
        return True
    if narrow.startswith("$") and wide[:1] in ("+", "#"):  # [MQTT-4.7.2-1]
        return False
    allowed = wide.split("/")
    wanted = narrow.split("/")
    depth = len(wanted)
    for position, level in enumerate(allowed):
        if level == "#":
            return True
        if position >= depth:
            return False
        other = wanted[position]
        if other == "#" or (level != "+" and level != other):
            return False
        if position == depth - 1 and len(allowed) == depth + 1 and allowed[depth] == "#":
            return True  # "a/#" covers "a" itself
    return len(allowed) == depth
