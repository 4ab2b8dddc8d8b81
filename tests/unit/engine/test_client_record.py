"""Records of clients: bounded, in order, and never surer than what happened."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.client_record import (
    DROPPED,
    FLOW_RUNS_MAX,
    NO,
    REASON_RUNS_MAX,
    REASONS_MAX,
    TEXT_MAX,
    WINDOW_US,
    YES,
    ClientRecord,
    RecordClock,
    Run,
    RunSeries,
)
from penstock.engine.values.clock import Now

START_US = 1_800_000_000_000_000
HOUR_US = 3_600_000_000

PASSED_US = st.one_of(st.integers(0, 2 * WINDOW_US), st.integers(0, 600_000_000))
SET_BY_US = st.one_of(st.just(0), st.just(0), st.integers(-HOUR_US, HOUR_US))
OFFSETS = st.integers(-1, 60)
STEPS = st.lists(st.tuples(PASSED_US, SET_BY_US, st.lists(OFFSETS, max_size=4)), max_size=300)


def clock() -> RecordClock:
    return RecordClock(Now(0.0, START_US))


def pass_us(moment: RecordClock, by_us: int, set_by_us: int = 0) -> None:
    """Time passes, and then the wall clock may be set."""
    lead_us = moment.lead_us + set_by_us
    moment.set(Now(0.0, moment.steady_us + by_us + lead_us, lead_us))


def spans(series: RunSeries) -> list[tuple[int, int, int]]:
    """Times of all runs since the start, and how many events each has."""
    return [(run.first_us - START_US, run.last_us - START_US, run.count) for run in series.runs()]


@given(STEPS, st.booleans())
def test_a_series_is_bounded_forgets_no_event_and_claims_no_more_than_there_was(
    steps: list[tuple[int, int, list[int]]], in_batches: bool
) -> None:
    moment = clock()
    series = RunSeries(moment, FLOW_RUNS_MAX)
    noted: list[tuple[int, int]] = []
    for passed_us, set_by_us, offsets in steps:
        pass_us(moment, passed_us, set_by_us)
        batch = Run()
        for offset in offsets:
            noted.append((moment.steady_us, offset))
            if in_batches:
                batch.add(offset)
            else:
                series.note(offset)
        if batch.count:
            series.take(batch)
        assert len(series.runs()) <= FLOW_RUNS_MAX + 1
    at = 0
    for run in series.runs():
        events = noted[at : at + run.count]
        at += run.count
        assert all(run.first_us <= time_us <= run.last_us for time_us, _ in events)
        logged = [offset for _, offset in events if offset >= 0]
        assert run.logged == len(logged)
        for offset in range(-1, 62):
            verdict = run.verdict_on(offset)
            assert verdict != YES or offset in logged
            assert verdict != NO or offset not in logged
    assert at == len(noted)


def test_a_flow_is_one_run_while_its_window_is_open() -> None:
    moment = clock()
    series = RunSeries(moment, FLOW_RUNS_MAX)
    for offset in range(10, 20):
        series.note(offset)
        pass_us(moment, WINDOW_US // 11)
    pass_us(moment, WINDOW_US)
    series.note(20)
    first, second = series.runs()
    assert (first.lowest, first.highest, first.count) == (10, 19, 10)
    assert first.verdict_on(15) == YES
    assert second.first_us == second.last_us


def test_the_older_the_coarser() -> None:
    """Ten minutes of a message each 50 ms: each run lasts less than its age."""
    moment = clock()
    series = RunSeries(moment, FLOW_RUNS_MAX)
    for offset in range(12_000):
        pass_us(moment, 50_000)
        series.note(offset)
    now_us = moment.steady_us
    runs = series.runs()
    assert sum(run.count for run in runs) == 12_000
    assert all(run.last_us - run.first_us < 1 + now_us - run.last_us for run in runs[1:])
    assert runs[-1].count == 1


def test_a_clock_that_is_set_back_ends_the_run() -> None:
    moment = clock()
    series = RunSeries(moment, FLOW_RUNS_MAX)
    series.note(1)
    pass_us(moment, 10, -HOUR_US)
    series.note(2)
    assert spans(series) == [(0, 0, 1), (10, 10, 1)]
    before, after = series.runs()
    assert before.first_us + before.lead_us > after.first_us + after.lead_us
    assert before.first_us < after.first_us


def test_room_is_made_even_if_steady_time_goes_back() -> None:
    """It does not; but else the loop would stand still for ever."""
    moment = clock()
    series = RunSeries(moment, FLOW_RUNS_MAX)
    for _ in range(FLOW_RUNS_MAX):
        pass_us(moment, WINDOW_US)
        series.note(-1)
    pass_us(moment, -HOUR_US)
    for _ in range(2 * FLOW_RUNS_MAX):
        pass_us(moment, WINDOW_US)
        series.note(-1)
    assert len(series.runs()) <= FLOW_RUNS_MAX + 1
    assert sum(run.count for run in series.runs()) == 3 * FLOW_RUNS_MAX


def test_many_drops_for_one_reason_push_no_other_out() -> None:
    moment = clock()
    record = ClientRecord(moment, 0)
    record.connected_runs.note_text(-1, "main")
    record.note_reason(DROPPED, 4, 7, "a" * 1000)
    for offset in range(1000):
        pass_us(moment, 1_000_000)
        record.note_reason(DROPPED, 0, offset, "b")
    runs = record.runs()
    assert len(runs) <= 2 + REASON_RUNS_MAX + 1
    assert [entry.run.first_us for entry in runs] == sorted(entry.run.first_us for entry in runs)
    (denied,) = [entry.run for entry in runs if (entry.kind, entry.detail) == (DROPPED, 4)]
    assert (denied.lowest, len(denied.text)) == (7, TEXT_MAX)
    for reason in range(100):
        record.note_reason(DROPPED, reason, -1, "")
    assert len({entry.detail for entry in record.runs() if entry.kind == DROPPED}) == REASONS_MAX
