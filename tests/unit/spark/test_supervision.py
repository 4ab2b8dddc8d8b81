"""A table among several: what it fails with is told, kept and forgotten. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange, StoreUnavailable
from penstock.spark.failure_file import TableFailure, read_failure
from penstock.spark.jobs import supervision
from penstock.spark.jobs.job import JobStopped
from penstock.spark.jobs.lock import JobLock, JobRunning
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.supervision import ATTEMPTS_MAX, SupervisedLanding
from penstock.spark.session import SparkFailed
from penstock.spark.tables.landed_table import TableCommitFailed
from penstock.stream.client import StreamUnavailable

Tell = Callable[[Progress], None]
Script = list[Progress | Exception]

LANDING = Progress("landing", offset=0, latest=10)


def ended(batch_id: int, rows: int, latest: int = 10) -> Progress:
    """Progress at the end of a batch."""
    return replace(LANDING, batch_id=batch_id, rows_landed=rows, offset=rows, latest=latest)


@dataclass
class Attempt:
    """A landing that follows a script: progress, and then an error or its end."""

    script: Script
    tell: Tell
    is_starting: bool = True
    is_complete: bool = False
    stopped: bool = False

    def run_locked(self) -> None:
        for step in self.script:
            if isinstance(step, Exception):
                raise step
            self.is_starting = step.batch_id is None and step.lag != 0
            self.tell(step)
        self.is_complete = True

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Scene:
    """A supervised landing whose attempts follow scripts."""

    checkpoint: Path
    scripts: list[Script]
    available_now: bool = False
    spark_failure: SparkFailed | None = None
    told: list[Progress] = field(default_factory=list)
    kept: list[TableFailure | None] = field(default_factory=list)
    """What was in the checkpoint when something was told."""
    attempts: int = 0
    then: Tell = lambda _: None

    def __post_init__(self) -> None:
        self.supervised = SupervisedLanding(
            "readings",
            self.make,
            self.checkpoint,
            available_now=self.available_now,
            on_progress=self.note,
            spark_failure=lambda: self.spark_failure,
        )

    def make(self, tell: Tell) -> Attempt:
        self.attempts += 1
        return Attempt(self.scripts[self.attempts - 1], tell)

    def note(self, progress: Progress) -> None:
        self.told.append(progress)
        self.kept.append(read_failure(self.checkpoint))
        self.then(progress)

    def run(self) -> SupervisedLanding:
        self.supervised.run()
        return self.supervised


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "PAUSE_S_MIN", 0.001)
    monkeypatch.setattr(supervision, "PAUSE_S_MAX", 0.002)


def test_a_table_that_fails_is_tried_again_until_it_lands_and_everybody_can_see_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 24, fault 2."""
    full = TableCommitFailed("the disk is full")
    away: Script = [LANDING, StoreUnavailable("away")]
    scene = Scene(tmp_path, [[ended(0, 3), full], [LANDING, full], away, [ended(1, 4)]])
    assert scene.run().error is None
    assert [(it.state, it.rows_landed, it.failure) for it in scene.told] == [
        ("landing", 3, ""),
        ("failing", 3, "the disk is full"),
        ("failing", 3, "the disk is full"),
        ("failing", 3, "the disk is full"),
        ("failing", 3, "the disk is full"),
        ("failing", 3, "away"),
        ("landing", 7, ""),
    ]
    first, _, _, third = (scene.kept[index] for index in (1, 2, 3, 5))
    assert first is not None
    assert third is not None
    assert (first.sentence, first.attempts, first.gave_up) == ("the disk is full", 1, False)
    assert (third.sentence, third.attempts, third.since) == ("away", 3, first.since)
    assert scene.kept[-1] is None, "forgotten when it lands"
    assert caplog.messages[0].startswith(
        "table readings fails: the disk is full; it is tried again"
    )
    assert caplog.messages[-1] == "table readings lands again"
    assert len(caplog.messages) == 4


@pytest.mark.parametrize(
    "error",
    [ConfigError("its topics are others"), EpochMismatch("restored"), OffsetOutOfRange("lost")],
)
def test_a_mistake_of_the_caller_is_not_tried_again(tmp_path: Path, error: Exception) -> None:
    scene = Scene(tmp_path, [[LANDING, error]])
    assert scene.run().error is error
    assert (scene.told[-1].state, scene.told[-1].failure) == ("gave up", str(error))
    kept = read_failure(tmp_path)
    assert kept is not None
    assert (kept.sentence, kept.gave_up) == (str(error), True)


def test_an_available_now_table_is_tried_a_few_times_in_a_row(tmp_path: Path) -> None:
    bad = SparkFailed("Spark ended the query")
    scripts: list[Script] = [[bad], [bad], [ended(0, 1), bad]]
    scripts += [[LANDING, bad]] * ATTEMPTS_MAX
    scene = Scene(tmp_path, scripts, available_now=True)
    assert scene.run().error is bad
    assert scene.attempts == 3 + ATTEMPTS_MAX - 1


def test_a_batch_that_ends_again_and_again_is_no_progress(tmp_path: Path) -> None:
    """Its table's commit succeeds, and Spark's own does not: it would be tried for ever."""
    bad = SparkFailed("the checkpoint cannot be written")
    again: Script = [ended(5, 1), bad]
    scene = Scene(tmp_path, [again] * 9, available_now=True)
    assert scene.run().error is bad
    assert scene.attempts == ATTEMPTS_MAX


def test_a_service_that_is_away_is_waited_for_unless_what_is_there_now_is_wanted(
    tmp_path: Path,
) -> None:
    away = StreamUnavailable("no stream service answers")
    in_vain: list[Script] = [[away]] * 5
    scene = Scene(tmp_path, [*in_vain, [ended(0, 1)]])
    assert scene.run().error is None
    assert scene.attempts == 6
    scene = Scene(tmp_path, [[away]], available_now=True)
    assert scene.run().error is away


def test_without_spark_nothing_is_tried_again(tmp_path: Path) -> None:
    gone = SparkFailed("Spark has ended")
    scene = Scene(tmp_path, [[LANDING, ValueError("connection refused")]], spark_failure=gone)
    assert scene.run().error is gone


def test_the_failure_of_a_second_job_is_not_written_into_the_checkpoint_of_the_first(
    tmp_path: Path,
) -> None:
    with JobLock(tmp_path) as first:
        first.take()
        scene = Scene(tmp_path, [], available_now=True)
        assert isinstance(scene.run().error, JobRunning)
    assert scene.attempts == 0
    assert read_failure(tmp_path) is None


def test_a_table_that_another_job_has_locked_lands_when_that_job_has_ended(tmp_path: Path) -> None:
    """Two overlapping runs gave up each other's tables for ever, and looked alive."""
    first = JobLock(tmp_path)
    first.take()

    def end_the_first(_: Progress) -> None:
        if len(scene.told) == 5:
            first.release()

    scene = Scene(tmp_path, [[ended(0, 3)]], then=end_the_first)
    landed = scene.run()
    assert [progress.state for progress in scene.told] == ["failing"] * 5 + ["landing"]
    assert landed.error is None
    assert landed.is_complete


def test_no_other_job_begins_while_a_table_pauses_after_a_failure(tmp_path: Path) -> None:
    """It had the executors of a Spark cluster then, and the other one the checkpoint: for ever."""
    other = JobLock(tmp_path)
    refused: list[JobRunning] = []

    def begin_another(_: Progress) -> None:
        try:
            other.take()
        except JobRunning as error:
            refused.append(error)

    failing: list[Script] = [[LANDING, ValueError()]] * 3
    Scene(tmp_path, [*failing, [ended(0, 3)]], then=begin_another).run()
    assert len(refused) == 7  # at each step, and in each pause
    other.take()  # it has ended
    other.release()


def test_a_checkpoint_that_is_deleted_meanwhile_is_locked_anew(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"

    def delete_and_begin_another(_: Progress) -> None:
        if len(scene.told) == 2:
            shutil.rmtree(checkpoint)
        if len(scene.told) == 3:
            with JobLock(checkpoint) as other, pytest.raises(JobRunning):
                other.take()

    scripts: list[Script] = [[LANDING, ValueError()], [ended(0, 3)]]
    scene = Scene(checkpoint, scripts, then=delete_and_begin_another)
    assert scene.run().error is None
    assert len(scene.told) == 3


def test_a_landing_that_is_stopped_before_its_end_has_not_failed_and_is_not_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = Scene(tmp_path, [[LANDING, JobStopped("stopped")]], available_now=True).run()
    assert stopped.error is None
    assert not stopped.is_complete
    assert "fails" not in caplog.text


def test_a_failure_of_a_former_run_is_there_until_the_table_lands(tmp_path: Path) -> None:
    former = Scene(tmp_path, [[LANDING, ConfigError("a typing error")]])
    former.run()
    before = read_failure(tmp_path)
    assert before is not None
    scene = Scene(tmp_path, [[LANDING, ValueError()], [replace(LANDING, offset=10)], []])
    scene.run()
    assert scene.kept[0] == before
    second = scene.kept[1]
    assert second is not None
    assert (second.since, second.attempts, second.gave_up) == (before.since, 2, False)


def test_a_quiet_table_lands_again_when_it_has_run_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "STABLE_S", 0.0)
    quiet = replace(LANDING, offset=10)
    scene = Scene(tmp_path, [[quiet, ValueError()], [quiet, quiet]])
    scene.run()
    assert scene.kept[-1] is None
    assert scene.told[-1].failure == ""


def test_a_run_that_is_stopped_does_not_wait_for_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "PAUSE_S_MIN", 3600.0)
    monkeypatch.setattr(supervision, "PAUSE_S_MAX", 3600.0)
    scene = Scene(tmp_path, [[LANDING, ValueError("x")]])
    note = scene.note

    def stop_when_it_fails(progress: Progress) -> None:
        note(progress)
        if progress.state == "failing":
            scene.supervised.stop()

    scene.supervised._on_progress = stop_when_it_fails
    assert str(scene.run().error) == "x"


def test_a_failure_that_cannot_be_kept_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "penstock-failure.json.new").mkdir()
    scene = Scene(tmp_path, [[ValueError("x")], [ended(0, 1)]])
    assert scene.run().error is None
    assert "could not be written" in caplog.text
    (tmp_path / "penstock-failure.json").write_text("{")
    assert read_failure(tmp_path) is None
