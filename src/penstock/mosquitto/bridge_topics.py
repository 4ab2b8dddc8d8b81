"""The `topic` lines of a bridge: filter, direction, QoS, and the prefixes at both ends."""

from __future__ import annotations

from typing import Final

from penstock.engine.values.declared_limits import TOPIC_LEVELS_MAX
from penstock.engine.values.topics import is_topic_filter

_DIRECTIONS: Final = ("out", "in", "both")


def parse_topic_line(value: str) -> tuple[str, str, int, str, str] | None:
    """Return filter, direction, QoS, local and remote prefix of a `topic` line; None if the line is
    wrong."""
    rest = value.strip()  # not parsed yet
    if rest.startswith('"') and not rest.startswith('""'):
        pattern, quote, rest = rest[1:].partition('"')
        if not quote:
            return None
        words = rest.split()
    else:
        pattern, *words = rest.split() or [""]
    pattern = "" if pattern == '""' else pattern
    for index, word in enumerate(words):
        if word.startswith("#"):
            words = words[:index]
            break
    direction = words[0].lower() if words else "out"
    qos = words[1] if len(words) > 1 else "0"
    prefixes = ["" if word == '""' else word for word in words[2:4]] + ["", ""]
    if direction not in _DIRECTIONS or qos not in ("0", "1", "2") or len(words) > 4:
        return None
    return pattern, direction, int(qos), prefixes[0], prefixes[1]


def common_level(local: str, remote: str) -> tuple[str, str, str] | None:
    """Return both prefixes, and the last level that two names of one topic have in common; None if
    their last levels differ."""
    if not local or not remote:
        return None
    above_local, _, last = local.rpartition("/")
    above_remote, _, last_remote = remote.rpartition("/")
    if last != last_remote or not last:
        return None
    return (
        f"{above_local}/" if "/" in local else "",
        f"{above_remote}/" if "/" in remote else "",
        last,
    )


def rule_mistake(pattern: str, direction: str, local: str, remote: str) -> str:
    """Return why Penstock cannot have such a forwarding rule, one sentence; empty if it can."""
    for prefix in (local, remote):
        if prefix and ("+" in prefix or "#" in prefix):
            return f"The prefix {prefix!r} has a wildcard."
        if not is_topic_filter(prefix + pattern, TOPIC_LEVELS_MAX):
            return f"{prefix + pattern!r} is not an MQTT topic filter."
    if not is_topic_filter(pattern, TOPIC_LEVELS_MAX):
        return f"{pattern!r} is not an MQTT topic filter."
    if direction != "out" and (local + pattern).startswith("$"):
        return f"{local + pattern!r} would come in below $, which is the broker's own."
    return ""
