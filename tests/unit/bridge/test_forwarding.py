"""What a bridge makes of a message on its way."""

from __future__ import annotations

import pytest

from penstock.bridge.forwarding import HOPS, BridgeOutlet, Forwarding, Rule, hops_of
from penstock.engine.values.message import Message
from penstock.protocol.properties import Properties, encode_properties, parse_properties

NOW_US = 1_000_000


def forwarding(
    *rules: Rule, hops_max: int = 1, added: tuple[tuple[str, str], ...] = ()
) -> Forwarding:
    return Forwarding(list(rules) or [Rule("#", "", "", 2, True)], hops_max, list(added))


def forwarded(bridge: Forwarding, original: Message, version: int) -> Message:
    """What the remote broker gets."""
    outlet = BridgeOutlet(bridge)
    rule = bridge.rule_for(original.topic)
    assert rule is not None
    changed = outlet.outgoing(original, rule, version)
    assert changed is not None
    return changed


def message(topic: str, **properties: object) -> Message:
    encoded = encode_properties(Properties(**properties)) if properties else b""  # type: ignore[arg-type]
    return Message(topic, b"x", 1, False, "c", NOW_US, encoded, 7)


@pytest.mark.parametrize(
    ("remove", "add", "topic", "expected"),
    [
        ("", "", "a/b", "a/b"),
        ("plant/7/", "berlin/", "plant/7/heat", "berlin/heat"),
        ("plant/7/", "", "plant/7/heat", "heat"),
        ("", "berlin/", "heat", "berlin/heat"),
        ("plant/7/", "berlin/", "plant/7", "berlin/plant/7"),
    ],
)
def test_prefixes(remove: str, add: str, topic: str, expected: str) -> None:
    changed = forwarded(forwarding(Rule("#", remove, add, 2, True)), message(topic), 4)
    assert (changed.topic, changed.payload, changed.properties) == (expected, b"x", b"")
    assert changed.offset == 7


def test_the_first_rule_that_matches_counts() -> None:
    two = forwarding(Rule("a/#", "", "1/", 1, True), Rule("a/b", "", "2/", 0, False))
    rule = two.rule_for("a/b")
    assert rule is not None
    assert (rule.qos_max, rule.topic_for("a/b")) == (1, "1/a/b")
    assert two.rule_for("b") is None


def test_a_message_counts_its_hops_and_gets_the_properties_of_the_bridge_once() -> None:
    bridge = forwarding(hops_max=3, added=(("site", "berlin"),))
    first = forwarded(bridge, message("t", content_type="text"), 5)
    again = forwarded(bridge, first, 5)
    for hops, changed in ((1, first), (2, again)):
        said = parse_properties(changed.properties)
        assert said.content_type == "text"
        assert said.user_properties == [("site", "berlin"), (HOPS, str(hops))]
        assert hops_of(changed.properties) == hops
    (rule,) = bridge.rules
    assert bridge.may_forward(rule, again.topic, again.properties)
    assert not bridge.may_forward(rule, again.topic, forwarded(bridge, again, 5).properties)
    assert bridge.looped_messages == 1


@pytest.mark.parametrize("value", ["", "-1", "x", "²", "99999"])
def test_a_count_that_is_none_is_no_hop(value: str) -> None:
    assert hops_of(encode_properties(Properties(user_properties=[(HOPS, value)]))) == 0


def test_a_message_still_expires_when_it_did() -> None:
    changed = forwarded(forwarding(), message("t", message_expiry_interval=10), 5)
    assert changed.expires_at_us == NOW_US + 10_000_000
    left = parse_properties(changed.properties_for(NOW_US + 4_000_000, ()))
    assert left.message_expiry_interval == 6


def test_a_topic_that_would_be_too_long_is_not_handed_on() -> None:
    longer = forwarding(Rule("#", "", "site/", 2, True))
    (rule,) = longer.rules
    assert longer.may_forward(rule, "x" * 65_530, b"")
    assert not longer.may_forward(rule, "x" * 65_531, b"")
    assert longer.too_long_topics == 1
