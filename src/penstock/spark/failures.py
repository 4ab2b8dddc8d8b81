"""Finds the cause of an error in the text of Spark's exception, as one sentence for people.

The planner and the executors run in other processes. An error raised there comes back as text
inside a Java exception inside a Python one, with stack traces of all three:

    [STREAM_FAILED] Query [id = …] terminated with exception: Job aborted due to stage failure: …
    org.apache.spark.api.python.PythonException: Traceback (most recent call last):
      File "…", line …
    penstock.errors.OffsetOutOfRange: the offsets 10 to 19 were not read before …   ◀── this
            at org.apache.spark.api.python.…
    Caused by: java.io.IOException: No space left on device                          ◀── or this
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.decoding.registry import RegistryUnavailable
from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreUnavailable,
)
from penstock.spark.session import SparkFailed
from penstock.stream.client import StreamUnavailable
from penstock.telemetry.logs import one_line

SENTENCE_CHARACTERS_MAX: Final = 500
"""Most characters that are quoted of an error of another library."""

_KINDS: Final[dict[str, type[PenstockError]]] = {
    kind.__name__: kind
    for kind in (
        ConfigError,
        EpochMismatch,
        OffsetOutOfRange,
        RegistryUnavailable,
        StoreUnavailable,
        StreamUnavailable,
    )
}
_PENSTOCK_ERROR: Final = re.compile(
    rf"^\W*penstock\.[\w.]+\.({'|'.join(_KINDS)}): (.+)$", re.MULTILINE
)

_TRACEBACK: Final = "Traceback (most recent call last):"
_EXCEPTION_LINE: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*)(?:: (.*))?$")
"""The last line of a traceback: the exception's class, and its message."""

_CAUSE: Final = re.compile(r"^\s*Caused by: (?:[\w$]+\.)+([\w$]+)(?:: (.+))?$", re.MULTILINE)


def translate_spark_error(error: Exception, log: Path) -> PenstockError:
    """Return the Penstock error that made Spark raise `error`; SparkFailed if it was another one.

    Args:
        error: the error that Spark raised or reported.
        log: file with Spark's output, named in a SparkFailed if it exists.
    """
    text = _text_of(error)
    found = _PENSTOCK_ERROR.search(text)
    if found is not None:
        return _KINDS[found[1]](found[2].strip())
    more = f" (its output is in {log})" if log.exists() else ""
    return SparkFailed(f"Spark ended the query: {find_cause(text)}{more}")


def error_sentence(error: BaseException) -> str:
    """Return an error in one sentence, with its class if it is not one of Penstock's."""
    if isinstance(error, PenstockError):
        return str(error)
    return _describe(type(error).__name__, _text_of(error))


def _text_of(error: BaseException) -> str:
    """Return the text of an error; that of a Java exception is asked of Java, which may have
    ended."""
    try:
        return str(error)
    except (OSError, Py4JError):
        return "what it was cannot be told, because Java has ended"


def find_cause(text: str) -> str:
    """Return the cause in the text of an exception of Spark, in one line.

    The cause is the exception of a Python worker; else the innermost one of Java; else the first
    line of the text.
    """
    raised = _find_python_exception(text)
    if raised is not None:
        return raised
    causes = _CAUSE.findall(text)
    if causes:
        return _describe(*causes[-1])
    return _first_line(text)


def _find_python_exception(text: str) -> str | None:
    """Return class and message at the end of the last Python traceback; None without one."""
    _, found, traceback = text.rpartition(_TRACEBACK)
    if not found:
        return None
    for line in traceback.splitlines()[1:]:
        if line[:1].isspace() or not line:
            continue
        raised = _EXCEPTION_LINE.match(line)
        return None if raised is None else _describe(raised[1], raised[2] or "")
    return None


def _describe(kind: str, message: str) -> str:
    first = _first_line(message)
    return f"{kind}: {first}" if first else kind


def _first_line(text: str) -> str:
    line = one_line(text.strip().partition("\n")[0])
    if len(line) <= SENTENCE_CHARACTERS_MAX:
        return line
    return f"{line[:SENTENCE_CHARACTERS_MAX]}…"
