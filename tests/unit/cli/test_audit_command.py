"""`penstock audit`: mistakes in its options, told before anything is started."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.audit import audit
from penstock.cli.spark_jobs import exit_on_sigterm
from penstock.errors import ConfigError
from penstock.spark.audit.job import AuditSettings, trace_message


def test_a_time_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match=r"--from must be a time such as .* not 'yesterday'"):
        audit(since="yesterday")


def test_a_report_needs_a_directory_and_a_comparison_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory to write the report to"):
        audit(output=tmp_path / "nowhere" / "report.html")
    with pytest.raises(ConfigError, match="there is no table in"):
        audit(landed=tmp_path)


def test_one_that_is_terminated_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended: list[str] = []

    @contextmanager
    def open_spark(_name: str, _master: str, log: Path) -> Iterator[Any]:
        log.write_text("Spark starts", encoding="utf-8")
        try:
            signal.raise_signal(signal.SIGTERM)
            yield None
        finally:
            ended.append("Spark")

    before = signal.getsignal(signal.SIGTERM)
    try:
        exit_on_sigterm()
        with pytest.raises(SystemExit) as left:
            trace_message(AuditSettings(), 0, open_spark)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (left.value.code, ended, list(tmp_path.iterdir())) == (143, ["Spark"], [])
