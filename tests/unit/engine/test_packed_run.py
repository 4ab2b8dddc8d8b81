"""Runs joined to longer ones hold the same deliveries."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.packed_run import RUN_LEN_MAX, Kind, PackedRun, append_run

KINDS = st.builds(
    lambda qos, retain, ids: (qos, retain, tuple(ids), None),
    st.integers(1, 2),
    st.booleans(),
    st.lists(st.integers(1, 3), max_size=2),
)
Row = tuple[int, int, Kind]


def rows_of(runs: list[PackedRun]) -> list[tuple[int, int, int, Kind]]:
    """Sequence, offset, size and kind of each."""
    return [
        (run.first + at, run.offsets[at], run.sizes[at], run.table[run.kinds[at]])
        for run in runs
        for at in range(len(run))
    ]


def run_of(first: int, rows: list[Row]) -> PackedRun:
    run = PackedRun(first)
    for at, (offset, size, kind) in enumerate(rows):
        assert run.add(first + at, offset, size, kind)
    return run


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 999), KINDS), min_size=1),
        ),
        max_size=8,
    )
)
def test_nothing_changes_but_the_number_of_runs(pieces: list[tuple[int, list[Row]]]) -> None:
    joined: list[PackedRun] = []
    sequence, gaps = 1, 0
    expected: list[tuple[int, int, int, Kind]] = []
    for number, (gap, rows) in enumerate(pieces):
        sequence += gap
        gaps += gap > 0 or number == 0
        run = run_of(sequence, rows)
        expected += rows_of([run])
        append_run(joined, run)
        sequence += len(rows)
    assert rows_of(joined) == expected
    assert len(joined) == gaps


def different(first: int, count: int) -> PackedRun:
    """A run of which no two deliveries are of one kind."""
    rows: list[Row] = [(at, 1, (1, False, (first + at,), None)) for at in range(count)]
    return run_of(first, rows)


def test_a_run_that_does_not_fit_stays_one_of_its_own() -> None:
    full = run_of(1, [(at, 1, (1, False, (), None)) for at in range(RUN_LEN_MAX)])
    runs: list[PackedRun] = []
    append_run(runs, full)
    append_run(runs, different(RUN_LEN_MAX + 1, 200))
    append_run(runs, different(RUN_LEN_MAX + 201, 100))
    assert [len(run) for run in runs] == [RUN_LEN_MAX, 200, 100]
    assert rows_of(runs[1:]) == rows_of(
        [different(RUN_LEN_MAX + 1, 200), different(RUN_LEN_MAX + 201, 100)]
    )
