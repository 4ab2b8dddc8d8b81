"""The one sentence in what Spark makes of an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.errors import OffsetOutOfRange, PenstockError
from penstock.spark.failures import (
    SENTENCE_CHARACTERS_MAX,
    error_sentence,
    find_cause,
    translate_spark_error,
)
from penstock.spark.session import SparkFailed
from penstock.spark.tables.landed_table import TableCommitFailed

TRACEBACK = "Traceback (most recent call last):"

IN_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted \
due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/sorting.py", line 70, in __call__
    return found[index]
           ~~~~~^^^^^^^
KeyError: 'Field "client_id" does not exist in schema'

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
	at java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: Task failed
	... 25 more
"""

OWN_IN_THE_PLANNER = """[STREAM_FAILED] Query [id = 1] terminated with exception: planner SQLSTATE
Traceback (most recent call last):
  File "/x/source.py", line 190, in _lose
penstock.errors.OffsetOutOfRange: the offsets 10 to 19 were not read before retention removed them
"""

IN_JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: cannot write SQLSTATE: X
	at org.apache.spark.X
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed
	at org.apache.spark.Y
Caused by: java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


def test_the_exception_of_a_worker_is_the_sentence_and_the_rest_is_not(tmp_path: Path) -> None:
    """Issue 24, fault 2: it stood second to last among 25 lines, behind a log that was not."""
    error = translate_spark_error(RuntimeError(IN_A_TASK), tmp_path / "spark.log")
    assert isinstance(error, SparkFailed)
    assert (
        str(error)
        == "Spark ended the query: KeyError: 'Field \"client_id\" does not exist in schema'"
    )


def test_a_log_is_named_where_there_is_one(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.touch()
    error = translate_spark_error(RuntimeError(IN_JAVA), log)
    assert str(error).endswith(f": IOException: No space left on device (its output is in {log})")


def test_an_error_of_ours_is_found_again() -> None:
    error = translate_spark_error(RuntimeError(OWN_IN_THE_PLANNER), Path("spark.log"))
    assert type(error) is OffsetOutOfRange
    assert str(error) == "the offsets 10 to 19 were not read before retention removed them"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the first line\nand the second", "the first line"),
        ("Traceback (most recent call last):\n  File x\nMemoryError\n", "MemoryError"),
        (
            f"{TRACEBACK}\n  File x\na.First: 1\n\n{TRACEBACK}\na.b.Second: of\nlines\n",
            "Second: of",
        ),
        ("Traceback (most recent call last):\n  cut off", "Traceback (most recent call last):"),
        ("y" * 10_000, "y" * SENTENCE_CHARACTERS_MAX + "…"),
    ],
)
def test_any_text_has_one_line(text: str, sentence: str) -> None:
    assert find_cause(text) == sentence


def test_errors_of_others_are_named_by_their_class() -> None:
    assert error_sentence(PenstockError("It is so.")) == "It is so."
    assert error_sentence(OSError(28, "No space left on device")).startswith(
        "OSError: [Errno 28] No"
    )
    assert error_sentence(MemoryError()) == "MemoryError"


def test_an_error_of_several_lines_from_a_library_is_one_sentence() -> None:
    """As deltalake says that a file cannot be opened."""
    said = "Generic error\n          \x1b[31m↳\x1b[0m Not a directory (os error 20)\n"
    error = TableCommitFailed(f"batch 0 could not be committed: {said}")
    assert str(error) == (
        "batch 0 could not be committed: Generic error ↳ Not a directory (os error 20)"
    )


class _OfJava(Py4JError):  # type: ignore[misc]  # it has no types
    """Its text is asked of Java, as that of an exception of Java is."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_of_a_java_that_has_ended_is_a_sentence(tmp_path: Path) -> None:
    """The command ended with a traceback: the text is asked of Java when it is shown."""
    assert error_sentence(_OfJava()).startswith("_OfJava: what it was cannot be told, because Java")
    told = translate_spark_error(_OfJava(), tmp_path / "spark.log")
    assert "because Java has ended" in str(told)
