"""What all connections of a broker share, as the shell sees it: what is left, what to commit."""

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.batch.store_health import NO_LIMIT_BYTES
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limit_usage import WINDOW, LimitUsage
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.wire.link import Link


def at(seconds: float) -> Now:
    return Now(seconds, int(seconds * 1_000_000))


def test_a_limit_that_is_reached_is_told_once_until_nobody_watches_it() -> None:
    context = EngineContext(0)
    limit = LimitUsage("c", WINDOW)
    context.reach(limit, at(1.0))
    context.reach(limit, at(2.0))
    limit.mark_left(3.0)
    context.reach(limit, at(4.0))
    assert context.take_newly_reached() == [limit]
    limit.mark_left(5.0)
    limit.is_watched = False
    context.reach(limit, at(6.0))
    assert context.take_newly_reached() == [limit]
    assert context.take_newly_reached() == []
    assert limit.times == 3


def test_links_that_the_shell_took_are_no_longer_the_engine_s() -> None:
    context = EngineContext(0)
    link = Link(context.turn)
    link.send_now(b"\xd0\x00")
    link.close(drain=True)
    assert (context.take_ready(), context.take_closing()) == ([link], [link])
    assert (context.take_ready(), context.take_closing()) == ([], [])


def test_states_of_sessions_alone_wait_for_a_commit_that_is_needed() -> None:
    context = EngineContext(0)
    session = Session("c", 1, 3600, context, EngineLimits(), Drops())
    context.batch.changed_states.append(session)
    assert (context.needs_commit, context.has_progress) == (False, True)
    Link(context.turn).send_after_commit(b"\xd0\x00")
    assert context.needs_commit
    commit = context.seal()
    assert len(commit.progress) == len(commit.deferred_packets) == 1
    assert (context.needs_commit, context.has_progress) == (False, False)


def test_commits_are_counted_if_they_write() -> None:
    context = EngineContext(0)
    Link(context.turn).send_after_commit(b"\xd0\x00")
    context.seal()
    assert context.counters.commits == 0
    context.batch.append(Message("t", b"x"))
    context.seal()
    assert context.counters.commits == 1


def test_a_log_that_begins_elsewhere_ends_there_for_the_store_too() -> None:
    context = EngineContext(0)
    context.begin_at(70)
    assert (context.log_end, context.store_health.durable_log_end) == (70, 70)
    message = Message("t", b"x")
    context.batch.append(message)
    context.committed(context.seal())
    assert (message.offset, context.store_health.durable_log_end) == (70, 71)


def test_a_batch_of_a_failing_store_has_no_limit() -> None:
    """Nothing is written, so a batch that is full would hold up its clients for nothing."""
    context = EngineContext(0)
    context.limit_batch(1000)
    assert context.store_health.batch_bytes_max == 1000
    context.commit_failed("the disk is full")
    context.limit_batch(1000)
    assert context.store_health.batch_bytes_max == NO_LIMIT_BYTES
    assert context.store_failure == "the disk is full"
    context.store_recovered()
    context.limit_batch(1000)
    assert (context.store_health.batch_bytes_max, context.store_failure) == (1000, "")
