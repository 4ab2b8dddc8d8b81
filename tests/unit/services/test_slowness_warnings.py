"""A slow loop and a slow commit are logged once, with the cause that took most of the time."""

import logging
from typing import cast, final

import pytest

from penstock.engine.values.clock import Now
from penstock.runtime.driver import Driver
from penstock.runtime.measures import LoopMeasures
from penstock.services.slowness_warnings import SlownessWarnings
from penstock.telemetry.logs import REPEAT_INTERVAL_S

LOOP_S = 0.5
COMMIT_S = 1.0


@final
class Measured:
    """A driver of which only the measurements are there, and the lines that were logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "penstock")
        self.measures = LoopMeasures()
        self.waits_s = 0.0
        self.store_fails = False
        self._caplog = caplog
        self._now_s = 100.0
        self.warnings = SlownessWarnings(cast(Driver, self), LOOP_S, COMMIT_S)

    def commit_waits_s(self) -> float:
        return self.waits_s

    def tick(self, after_s: float = 0.25) -> list[str]:
        self._now_s += after_s
        self.warnings.tick(Now(self._now_s, 0))
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def measured(caplog: pytest.LogCaptureFixture) -> Measured:
    return Measured(caplog)


def test_a_client_that_keeps_the_loop_busy_is_named(measured: Measured) -> None:
    measured.measures.record_slow_read("press-7 at 10.0.0.7:4711", 0.7)
    measured.measures.record_slow_read("other at 10.0.0.8:4712", 0.2)
    measured.measures.record_tick(0.9, 0.8)
    (line,) = measured.tick()
    assert line.startswith("all clients waited: the event loop ran 0.9 s late: what client press-7")
    assert "kept it busy for 0.7 s" in line


def test_a_large_commit_that_is_encoded_is_a_cause(measured: Measured) -> None:
    measured.measures.record_seal(100_000, 2**24)
    measured.measures.record_slow_encoding(0.6)
    measured.measures.record_tick(0.7, 0.7)
    (line,) = measured.tick()
    assert "encoding a commit of 100000 messages took 0.6 s" in line


def test_a_processor_that_others_have_is_a_cause(measured: Measured) -> None:
    measured.measures.record_tick(2.0, 0.01)
    (line,) = measured.tick()
    assert "had the processor for 0.0 s of that time only" in line


def test_a_client_is_not_blamed_for_a_processor_that_others_had(measured: Measured) -> None:
    """What it sent was being handled when the machine stopped."""
    measured.measures.record_slow_read("press-7 at 10.0.0.7:4711", 1.9)
    measured.measures.record_tick(2.0, 0.1)
    (line,) = measured.tick()
    assert "press-7" not in line
    assert "had the processor for 0.1 s of that time only" in line


def test_a_warning_without_a_single_cause_says_so(measured: Measured) -> None:
    measured.measures.record_tick(0.6, 0.8)
    (line,) = measured.tick()
    assert "nothing that stands out" in line


def test_a_little_lag_is_no_line_and_much_of_it_is_one_in_ten_seconds(measured: Measured) -> None:
    measured.measures.record_tick(LOOP_S - 0.1, 1.0)
    assert measured.tick() == []
    for _ in range(3):
        measured.measures.record_tick(LOOP_S, 1.0)
        measured.tick()
    measured.measures.record_tick(LOOP_S, 1.0)
    (line,) = measured.tick(REPEAT_INTERVAL_S)
    assert line.endswith("(and 2 more like this since the last line)")


def test_a_slow_write_is_the_disk_and_else_it_is_the_processor(measured: Measured) -> None:
    measured.measures.record_seal(12, 3_000)
    measured.measures.record_commit(2.0, 1.9)
    (line,) = measured.tick()
    assert line.startswith("acknowledgements waited 2.0 s for a commit of 12 messages, 3000 bytes:")
    assert "look at the disk" in line
    measured.measures.record_seal(1, 10)
    measured.measures.record_commit(2.0, 0.1)
    (line,) = measured.tick(REPEAT_INTERVAL_S)
    assert "the processor was busy" in line


def test_a_commit_that_hangs_is_told_while_it_does(measured: Measured) -> None:
    measured.waits_s = 3.0
    (line,) = measured.tick()
    assert line.startswith("a commit has taken 3.0 s until now")
    measured.waits_s = 20.0
    measured.store_fails = True  # the driver has told why
    assert measured.tick(REPEAT_INTERVAL_S) == []


def test_a_commit_that_outlasted_an_outage_is_not_told_again(measured: Measured) -> None:
    measured.measures.record_seal(1, 10)
    measured.measures.outages += 1
    measured.measures.record_commit(60.0, 0.01)
    assert measured.tick() == []


def test_zero_is_no_warning(measured: Measured) -> None:
    measured.warnings.loop_s = measured.warnings.commit_s = 0.0
    measured.measures.record_tick(9.0, 9.0)
    measured.measures.record_commit(9.0, 9.0)
    measured.waits_s = 9.0
    assert measured.tick() == []


def test_a_slow_commit_of_a_cluster_is_not_blamed_on_the_disk(measured: Measured) -> None:
    measured.warnings.is_replicated = True
    measured.waits_s = 3.0
    (line,) = measured.tick()
    assert "acknowledgements wait for it: the cluster's log has not answered yet" in line
    assert "disk" not in line
    measured.waits_s = 0.0
    measured.measures.record_commit(3.0, 2.9)
    (line,) = measured.tick(REPEAT_INTERVAL_S)
    assert "2.9 s of it; look at the cluster's log with 'penstock cluster status'" in line
