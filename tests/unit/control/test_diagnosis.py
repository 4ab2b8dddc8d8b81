"""The likeliest reason, by facts: each cause, and which goes before which."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.control.diagnosis import CAUSES, REMEDIES, Case, LoggedMessage, diagnose
from penstock.control.explanation import (
    ExplainedGroup,
    Explanation,
    MatchingSubscription,
    ReachedLimit,
)
from penstock.engine.values.drop_reasons import REASONS, slug_of

MESSAGE = LoggedMessage(7, 1_800_000_000_000_000, "press", 1)
CONNECTED = {"connected": True, "window": 3, "window_size": 32, "queue": 0}
AWAY = {**CONNECTED, "connected": False, "queue": 5}
NOTHING: dict[str, Any] = {
    "banned_because": None,
    "store_fails": False,
    "draining": False,
    "topic": "a/b",
    "session": CONNECTED,
    "filters": ["a/+"],
    "subscriptions": [MatchingSubscription("a/+", 1, False)],
}


def case(messages: tuple[LoggedMessage, ...] | None = (MESSAGE,), **facts: Any) -> Case:
    """A client that gets its messages, but for what is given."""
    return Case(Explanation(client_id="c", **{**NOTHING, **facts}), messages)


CASES = {
    "banned": (case(session=None, banned_because="client c: guesses"), "'c' is banned (client c"),
    "unknown": (case(session=None), "no session of 'c'"),
    "store": (case(store_fails=True), "cannot write to its disk"),
    "no subscription": (case(filters=[], subscriptions=[]), "has no subscription at all"),
    "another topic": (
        case(topic="A/b", filters=["x/y", "a/+"], subscriptions=[]),
        "none of its 2 subscriptions matches 'A/b'; the nearest is 'a/+'",
    ),
    "no permission": (
        case(may_receive=False, receive_rule="is denied by 'deny a/#' (acl line 3)"),
        "may not receive 'a/b': is denied by 'deny a/#' (acl line 3)",
    ),
    "no local": (
        case((LoggedMessage(7, 1, "c", 1),), subscriptions=[MatchingSubscription("a/+", 1, True)]),
        "came from 'c' itself",
    ),
    "away": (
        case(session=AWAY, disconnected_because="nothing heard for 1.5 x keep alive"),
        "is not connected (nothing heard for 1.5 x keep alive); 5 messages wait",
    ),
    "does not read": (case(reads=False), "has not read from its connection"),
    "window": (
        case(limits=[ReachedLimit("window", 12.5, 1)], states={"7": "in_flight"}),
        "window is full (3 of 32) for 12.5 s",
    ),
    "dropped": (
        case(
            drops={"queue_full": 4, "expired": 9},
            last_drops=[{"reason": "queue_full", "topic": "a/b", "offset": 7}],
            states={"7": "dropped:queue_full"},
        ),
        "4 messages for it were dropped: queue full, the last at offset 7",
    ),
    "nothing published": (case(()), "no message of 'a/b' that was published lately"),
    "shared": (
        case(
            subscriptions=[MatchingSubscription("$share/g/a/+", 1, False)],
            groups=[ExplainedGroup("$share/g/a/+", 3, 2, ["c", "d"], 0)],
        ),
        "shares '$share/g/a/+' with 2 others, of which 1 are connected (d)",
    ),
    "waits": (case(states={"7": "waiting"}), "wait in its queue"),
    "in flight": (case(states={"7": "in_flight"}), "has not acknowledged it yet"),
    "delivered": (case(), "the last 1 messages of 'a/b' left for 'c'"),
    "drops without a topic": (case(None, topic="", drops={"expired": 2}), "2 messages"),
    "nothing at all": (case(None, topic="", drops={}), "nothing stands between"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_likeliest_reason(name: str) -> None:
    facts, expected = CASES[name]
    assert expected in diagnose(facts).reason


def test_every_cause_is_met_by_one_of_the_cases() -> None:
    met = {
        next((cause for cause in CAUSES if cause(facts) is not None), None)
        for facts, _ in CASES.values()
    }
    assert set(CAUSES) <= met


def test_reasons_and_settings_that_are_named_exist() -> None:
    assert set(REMEDIES) <= {slug_of(number) for number in range(len(REASONS))}
    page = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
    settings = page.read_text(encoding="utf-8")
    for remedy in REMEDIES.values():
        for name in re.findall(r"`([a-z_.]+)`", remedy):
            assert f"`{name}`" in settings


def test_an_answer_can_be_read_back() -> None:
    facts = case().facts
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Explanation) == facts
