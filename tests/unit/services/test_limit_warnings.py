"""A client that stays at a limit is named once, and once more when it recovered."""

import logging

import pytest

from penstock.engine.values.limit_usage import INBOUND, QUEUE, WINDOW, WRITE_BUFFER, LimitUsage
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.packets import Connect, Puback
from penstock.services.limit_warnings import LINES_INTERVAL_S, LINES_MAX, RECHECK_S, LimitWarnings
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import Pair

WARNING_S = 30.0


class Watched:
    """A broker whose clients' limits are watched; the lines that were logged."""

    def __init__(
        self, caplog: pytest.LogCaptureFixture, bench: Bench, warning_s: float = WARNING_S
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")
        self._caplog = caplog
        self.bench = bench
        self.warnings = LimitWarnings(bench.server.context, warning_s)

    def pass_s(self, seconds: float) -> list[str]:
        self.bench.pass_s(seconds)
        self.warnings.tick(self.bench.now)
        lines = [f"{record.levelname} {record.getMessage()}" for record in self._caplog.records]
        self._caplog.clear()
        return lines

    def reach(self, at_limit: LimitUsage) -> None:
        self.bench.server.context.reach(at_limit, self.bench.now)

    def leave(self, at_limit: LimitUsage) -> None:
        at_limit.mark_left(self.bench.now.monotonic_s)


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(caplog, Bench())


def test_a_slow_subscriber_is_named_and_then_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair(EngineLimits(max_inflight=1))
    watched = Watched(caplog, pair.bench)
    pair.publish(b"1", b"2")
    pair.bench.commit()
    assert watched.pass_s(WARNING_S - 1) == []
    (line,) = watched.pass_s(1)
    assert line.startswith("WARNING client s is at its limit for 30 s: its in-flight window is")
    assert "max_inflight" in line
    assert watched.pass_s(100) == [], "once"
    pair.line.send(*[Puback(message.packet_id) for message in publishes(pair.line.read())])
    (line,) = watched.pass_s(RECHECK_S)
    assert line == "INFO client s is below its limit again, after 131 s (window)"
    assert watched.pass_s(1000) == []


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [(WINDOW, "max_inflight"), (WRITE_BUFFER, "network"), (INBOUND, "receive_maximum")],
)
def test_every_line_says_what_to_do(watched: Watched, limit: int, remedy: str) -> None:
    watched.reach(LimitUsage("s", limit))
    assert watched.pass_s(0) == []
    (line,) = watched.pass_s(WARNING_S)
    assert remedy in line


def test_a_full_queue_has_its_own_lines_from_what_it_drops(watched: Watched) -> None:
    watched.reach(LimitUsage("s", QUEUE))
    assert watched.pass_s(0) + watched.pass_s(1000) == []


def test_flow_control_at_work_is_no_news(watched: Watched) -> None:
    at_limit = LimitUsage("s", WINDOW)
    for _ in range(10):
        watched.reach(at_limit)
        assert watched.pass_s(WARNING_S - 1) == []
        watched.leave(at_limit)
        assert watched.pass_s(0.5) == []
    assert at_limit.times == 10


def test_after_its_recovery_a_client_is_watched_anew(watched: Watched) -> None:
    at_limit = LimitUsage("s", WINDOW)
    for _ in range(2):
        watched.reach(at_limit)
        watched.pass_s(0)
        assert len(watched.pass_s(WARNING_S)) == 1
        watched.leave(at_limit)
        assert len(watched.pass_s(RECHECK_S)) == 1
        assert not at_limit.is_watched


def test_an_instant_below_the_limit_is_no_recovery(watched: Watched) -> None:
    at_limit = LimitUsage("s", WINDOW)
    watched.reach(at_limit)
    watched.pass_s(0)
    watched.pass_s(WARNING_S)
    watched.leave(at_limit)
    watched.reach(at_limit)
    assert watched.pass_s(RECHECK_S) == []
    watched.leave(at_limit)
    assert len(watched.pass_s(RECHECK_S)) == 1


def test_a_crowd_is_a_number(watched: Watched) -> None:
    for number in range(LINES_MAX + 5):
        watched.reach(LimitUsage(f"c{number}", WINDOW))
    watched.pass_s(0)
    assert len(watched.pass_s(WARNING_S)) == LINES_MAX
    assert watched.pass_s(LINES_INTERVAL_S) == [
        "WARNING 5 more clients reached or left their limits: see `penstock flow`"
    ]


def test_zero_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog, Bench(), warning_s=0)
    at_limit = LimitUsage("s", WINDOW)
    watched.reach(at_limit)
    assert watched.pass_s(0) + watched.pass_s(1000) == []
    assert not at_limit.is_watched, "nobody holds on to it"


def test_sessions_that_were_refused_are_counted_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(EngineLimits(sessions_bytes_max=1))
    watched = Watched(caplog, bench)
    watched.pass_s(LINES_INTERVAL_S)
    bench.join("first", durable=True)
    for number in range(3):
        assert bench.connect(Connect(f"c{number}", 5, True, 0))[1].reason_code == 0x97
    (line,) = [line for line in watched.pass_s(LINES_INTERVAL_S) if "refused" in line]
    assert line.startswith("WARNING 3 sessions, subscriptions or wills were refused")
    assert "memory.sessions_bytes_max" in line
    assert watched.pass_s(LINES_INTERVAL_S) == []
