"""Sessions that are built before a start: each change of the store is followed, and counted."""

from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import GROUP_KEY_PREFIX, SessionRecord, SubscriptionRecord
from penstock.protocol.packets import Subscription

SMALL = EngineLimits("small", max_inflight=1)


def record(client_id: str, number: int, limits_name: str = "", account: str = "") -> SessionRecord:
    return SessionRecord(client_id, number, 100, 0, limits_name, account=account)


def subscribed(number: int, topic_filter: str, qos: int = 1) -> SubscriptionRecord:
    return SubscriptionRecord(number, topic_filter, Subscription(topic_filter, qos), 7)


def prepared_with(*records: SessionRecord) -> PreparedSessions:
    prepared = PreparedSessions(EngineLimits(), limits_by_name={"small": SMALL})
    for one in records:
        prepared.put_session(one)
    return prepared


def kept(prepared: PreparedSessions) -> list[tuple[int, str, int]]:
    """The subscriptions: session number, filter and QoS."""
    return [
        (one.number, one.topic_filter, one.subscription.qos)
        for one in prepared.subscriptions()
        if one.subscription is not None
    ]


def test_a_session_is_taken_with_its_subscriptions_and_counts_in_its_account() -> None:
    prepared = prepared_with(record("c", 1, account="user u"))
    prepared.put_subscription(subscribed(1, "a/+", 2))
    session = prepared.take(record("c", 1))
    assert session is not None
    entry = session.subscriptions["a/+"]
    assert (entry.subscription.qos, entry.identifier) == (2, 7)
    assert session.account is prepared.context.accounts.account_with_key("user u")
    assert (session.account.sessions, session.limits) == (1, prepared.limits)
    assert prepared.take(record("c", 1)) is None


def test_a_subscription_of_a_session_that_is_not_there_is_passed_over() -> None:
    prepared = prepared_with(record(GROUP_KEY_PREFIX + "$share/g/t", 2))
    for number in (1, 2):
        prepared.put_subscription(subscribed(number, "t"))
    assert (kept(prepared), prepared.session_count) == ([], 0)


def test_subscriptions_change_as_the_store_does() -> None:
    prepared = prepared_with(record("c", 1), record("d", 2))
    for number, topic_filter, qos in (
        (2, "a", 0),
        (1, "b", 1),
        (1, "$share/g/a", 1),
        (1, "b", 2),  # replaced
        (1, "gone", 1),
        (1, "$share/g/gone", 1),
    ):
        prepared.put_subscription(subscribed(number, topic_filter, qos))
    for topic_filter in ("gone", "$share/g/gone", "never there"):
        prepared.remove_subscription(1, topic_filter)
    assert kept(prepared) == [(1, "$share/g/a", 1), (1, "b", 2), (2, "a", 0)]
    prepared.remove_subscriptions(1, 2)
    assert kept(prepared) == [(2, "a", 0)]


def test_shared_subscriptions_are_handed_over_as_records_and_once() -> None:
    prepared = prepared_with(record("c", 1), record("d", 2))
    for number, topic_filter in ((2, "$share/g/a"), (1, "$share/h/a"), (1, "$share/g/a")):
        prepared.put_subscription(subscribed(number, topic_filter))
    taken = [(one.number, one.topic_filter) for one in prepared.take_shared()]
    assert taken == [(1, "$share/g/a"), (1, "$share/h/a"), (2, "$share/g/a")]
    assert prepared.take_shared() == []


def test_a_session_with_other_limits_keeps_its_subscriptions() -> None:
    prepared = prepared_with(record("c", 1))
    prepared.put_subscription(subscribed(1, "t"))
    prepared.put_session(record("c", 1, "small"))
    assert (kept(prepared), prepared.context.budget.sessions_bytes) == (
        [(1, "t", 1)],
        bytes_of(record("c", 1, "small"), "t"),
    )
    session = prepared.take(record("c", 1))
    assert session is not None
    assert session.limits is SMALL


def bytes_of(one: SessionRecord, topic_filter: str) -> int:
    """What a session counts for that was never anything else."""
    prepared = prepared_with(one)
    prepared.put_subscription(subscribed(one.number, topic_filter))
    return int(prepared.context.budget.sessions_bytes)


def test_a_session_is_forgotten_with_the_last_of_record_and_subscriptions() -> None:
    """The store removes them one by one, in either order."""
    prepared = prepared_with(record("c", 1))
    prepared.put_subscription(subscribed(1, "t"))
    prepared.remove_session("c")
    assert prepared.session_count == 1
    prepared.remove_subscription(1, "t")
    assert (prepared.session_count, prepared.context.budget.sessions_bytes) == (0, 0)


def test_a_client_that_began_anew_has_the_new_session_alone() -> None:
    prepared = prepared_with(record("c", 1), record("c", 2))
    assert prepared.take(record("c", 1)) is None
    assert prepared.take(record("c", 2)) is not None


def test_a_change_that_was_missed_is_noticed() -> None:
    prepared = prepared_with(record("c", 1), record(GROUP_KEY_PREFIX + "g", 3))
    assert prepared.covers([record("c", 1), record(GROUP_KEY_PREFIX + "g", 3)])
    assert not prepared.covers([record("c", 1), record("d", 2)])
    assert not prepared.covers([record("c", 1, account="user u")])
    assert not prepared.covers([record("c", 1, "small")])


def test_sessions_that_nobody_took_leave_nothing_behind() -> None:
    prepared = prepared_with(record("c", 1), record("d", 2, account="user u"))
    prepared.put_subscription(subscribed(1, "t"))
    prepared.put_subscription(subscribed(2, "$share/g/t"))
    prepared.discard_rest()
    assert (kept(prepared), prepared.session_count) == ([], 0)
    assert prepared.context.budget.sessions_bytes == prepared.context.accounts.count == 0
