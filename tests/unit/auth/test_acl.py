"""The access list: who may publish and subscribe where."""

from pathlib import Path

import pytest

from penstock.auth.acl import CACHED_TOPICS_MAX, NOTHING, AccessList, Rule
from penstock.auth.acl_file import read_access_list
from penstock.engine.values.access import Permissions
from penstock.engine.values.topics import filter_covers, topic_matches

LIST = """\
# clients without a user name
topic read public/#

user alice
topic read plant/#
topic write plant/line 1/+
topic deny plant/secret/#
topic readwrite both ways
topic one-word

client gateway
topic write gateway/#

pattern write devices/%c/up
pattern read users/%u/#
pattern deny private/%u/#
"""


@pytest.fixture
def access_list(tmp_path: Path) -> AccessList:
    path = tmp_path / "acl"
    path.write_text(LIST)
    return read_access_list(path)


def alice(access_list: AccessList, client_id: str = "c") -> Permissions:
    return access_list.permissions("alice", client_id)


def test_a_topic_that_no_line_grants_is_refused(access_list: AccessList) -> None:
    for permissions in (alice(access_list), NOTHING, AccessList().permissions("bob", "b")):
        assert not permissions.may_publish("other")
        assert not permissions.may_receive("other")
        assert not permissions.may_subscribe("other")


def test_read_and_write_are_different_grants(access_list: AccessList) -> None:
    permissions = alice(access_list)
    assert permissions.may_receive("plant/x")
    assert not permissions.may_publish("plant/x")
    assert permissions.may_publish("plant/line 1/t"), "a filter may have spaces"
    assert permissions.may_publish("both ways")
    assert permissions.may_publish("one-word")
    assert permissions.may_receive("both ways")


def test_a_deny_goes_before_every_grant(access_list: AccessList) -> None:
    permissions = alice(access_list)
    assert not permissions.may_receive("plant/secret/x")
    assert not permissions.may_subscribe("plant/secret/x")
    assert not permissions.may_subscribe("plant/secret/#")
    assert permissions.may_subscribe("plant/#"), "granted, and what is denied is not delivered"


@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("plant/#", True),
        ("plant/+/x", True),
        ("plant", True),
        ("#", False),
        ("+/x", False),
        ("+/#", False),
        ("$SYS/#", False),
    ],
)
def test_a_subscription_must_be_covered_as_a_whole(
    access_list: AccessList, topic_filter: str, granted: bool
) -> None:
    assert alice(access_list).may_subscribe(topic_filter) is granted


def test_lines_before_any_user_are_for_anonymous_clients(access_list: AccessList) -> None:
    assert access_list.permissions(None, "c").may_receive("public/x")
    assert not alice(access_list).may_receive("public/x")


def test_by_client_identifier(access_list: AccessList) -> None:
    for username in (None, "alice", "bob"):
        assert access_list.permissions(username, "gateway").may_publish("gateway/x")
        assert not access_list.permissions(username, "other").may_publish("gateway/x")


def test_patterns_stand_for_the_clients_own_names(access_list: AccessList) -> None:
    bob = access_list.permissions("bob", "d7")
    assert bob.may_publish("devices/d7/up")
    assert not bob.may_publish("devices/d8/up")
    assert bob.may_subscribe("users/bob/#")
    assert not bob.may_subscribe("users/alice/#")
    assert not access_list.permissions(None, "d7").may_receive("users/bob/x")


@pytest.mark.parametrize("name", ["+", "#", "d7/#", "a/b", "d+", "", "/"])
def test_a_name_cannot_widen_a_pattern(access_list: AccessList, name: str) -> None:
    by_client = access_list.permissions("bob", name)
    by_user = access_list.permissions(name, "c")
    for topic in ("devices/d7/up", "devices/a/b/up", f"devices/{name}/up"):
        assert not by_client.may_publish(topic)
    for topic in ("users/bob/x", "users/a/b/x", f"users/{name}/x"):
        assert not by_user.may_receive(topic)


def test_a_name_cannot_reach_the_brokers_own_topics() -> None:
    everyone = AccessList(patterns=[Rule("readwrite", "%c/#")])
    assert everyone.permissions("u", "mine").may_subscribe("mine/#")
    permissions = everyone.permissions("u", "$SYS")
    assert not permissions.may_subscribe("$SYS/#")
    assert not permissions.may_receive("$SYS/broker/uptime")


def test_a_name_that_looks_like_a_pattern_is_not_one() -> None:
    everyone = AccessList(patterns=[Rule("read", "%c/%u")])
    permissions = everyone.permissions("bob", "%u")
    assert permissions.may_receive("%u/bob")
    assert not permissions.may_receive("bob/bob")


@pytest.mark.parametrize("name", ["a/b", "x"])
def test_a_pattern_that_denies_takes_any_name(name: str) -> None:
    rules = AccessList(
        users={name: [Rule("readwrite", "private/#")]},
        patterns=[Rule("deny", "private/%u/#")],
    )
    permissions = rules.permissions(name, "c")
    assert not permissions.may_publish(f"private/{name}/x")
    assert permissions.may_publish("private/other/x")


def test_answers_are_remembered_within_a_bound() -> None:
    permissions = AccessList(anonymous=[Rule("write", "a/#")]).permissions(None, "c")
    for _ in range(2):
        for number in range(3 * CACHED_TOPICS_MAX):
            assert permissions.may_publish(f"a/{number}")
            assert not permissions.may_publish(f"b/{number}")
    assert len(permissions._publishes.numbers) <= CACHED_TOPICS_MAX


FILTERS = ("#", "+", "+/#", "a", "a/#", "a/+", "+/b", "a/+/#", "a/b", "a/b/#", "$SYS/#", "$SYS/a")
TOPICS = ("a", "b", "a/b", "a/c", "b/b", "a/b/c", "a/", "/", "/b", "$SYS/a", "$SYS", "a/b/c/d")


@pytest.mark.parametrize("wide", FILTERS)
@pytest.mark.parametrize("narrow", FILTERS)
def test_covering_agrees_with_matching(wide: str, narrow: str) -> None:
    """On topics of every shape that can tell these filters apart."""
    by_topics = all(topic_matches(wide, topic) for topic in TOPICS if topic_matches(narrow, topic))
    assert filter_covers(wide, narrow) is by_topics
