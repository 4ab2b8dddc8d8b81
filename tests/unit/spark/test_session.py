"""What a Spark session leaves unsaid."""

from __future__ import annotations

import logging

import py4j.java_gateway  # type: ignore[import-untyped]
import pytest

from penstock.spark.session import _mute_py4j


def _log_as(pathname: str) -> None:
    root = logging.getLogger()
    record = root.makeRecord("root", logging.ERROR, pathname, 1059, "while sending", (), None)
    root.handle(record)


def test_py4j_prints_no_traceback_when_java_ends_during_a_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = list(logging.root.filters)
    with _mute_py4j():
        _log_as(str(py4j.java_gateway.__file__))
        assert caplog.records == []
        _log_as("/src/ours.py")
    assert [record.pathname for record in caplog.records] == ["/src/ours.py"]
    assert logging.root.filters == before, "other users of py4j hear it"
