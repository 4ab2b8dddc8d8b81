"""Log lines, and a rate limit for warnings that would repeat for every message.

One line per event, with time in UTC, level, part of Penstock, text:

    2026-11-21T07:52:06.120Z WARNING runtime.driver: dropped 2 messages (client m-7): queue full

Clients choose names that appear in a line: client identifiers, users, topics, reason strings. So a
log line is a constant text with *arguments*, and each argument is cut, escaped and its passwords
masked before any handler sees it (``get_logger``):

    logger.info("client %s left: %s", client_id, Sentence(reason))
                        │  text: 128 characters  │ a sentence that quotes names, an error, a path:
                        │                        │ 1,024

A cause that repeats ten thousand times a second must not write ten thousand lines: a
`RepeatLimiter` admits the first line of each kind, then one per interval, with the number of lines
that it suppressed. It is pure: the caller passes the time.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final, TextIO

from penstock.masking import mask_secrets
from penstock.telemetry.background import BackgroundHandler, DescriptorHandler
from penstock.telemetry.journal import PriorityFormatter, is_journal
from penstock.telemetry.log_file import LogFileHandler

ROOT: Final = "penstock"
REPEAT_INTERVAL_S: Final = 10.0
REPEAT_KEYS_MAX: Final = 1000
_STDERR: Final = 2
NAME_CHARACTERS_MAX: Final = 128
"""Longest client identifier, user name, topic or other text in a line, before escaping."""

SENTENCE_CHARACTERS_MAX: Final = 1024
"""Longest sentence, error or path in a line, before escaping."""

_MASKED_CHARACTERS_MAX: Final = 4 * SENTENCE_CHARACTERS_MAX
"""Number of characters of an argument that are searched for passwords: a password may end after
the characters that are shown."""

_KIND_CHARACTERS_MAX: Final = 256  # characters of a kind of warning that are compared

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

_ENDS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Sentence(str):
    """An argument of a log line that may be as long as a sentence, and not only as a name."""

    __slots__ = ()


def get_logger(name: str) -> logging.Logger:
    """Return the logger `name`, which cuts, escapes and masks the arguments of its lines.

    The arguments are the same for all handlers, also those of a program that uses the client
    library.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_quote_arguments)
    return logger


def _quote_arguments(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_quote(argument) for argument in record.args)
    return True


def _quote(argument: object) -> object:
    """Return `argument` if it may appear in a line unchanged, else its text cut, escaped and
    masked."""
    if argument is None or isinstance(argument, int | float):
        return argument
    try:
        text = str(argument)
    except Exception:  # of a program's own class; logging must not fail
        return type(argument).__name__
    is_name = type(argument) is str
    characters_max = NAME_CHARACTERS_MAX if is_name else SENTENCE_CHARACTERS_MAX
    shown = printable(_cut(mask_secrets(text[:_MASKED_CHARACTERS_MAX]), characters_max))
    return argument if shown == text else shown


def printable(text: str) -> str:
    r"""Return `text` with all characters escaped that are not printable.

    Client identifiers and topics may contain line breaks, which forge lines, and control characters
    that terminals execute. The escapes are those of JSON: ``\\n``, ``\\u001b``.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _escape(character) for character in text
    )


def one_line(text: str) -> str:
    """Return a text of several lines, perhaps with terminal colours, as one plain line."""
    return " ".join(_COLOUR.sub("", text).split())


def _escape(character: str) -> str:
    if character in _ENDS:
        return _ENDS[character]
    units = character.encode("utf-16-be", "surrogatepass").hex()  # one, or two of a pair
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class LineFormatter(logging.Formatter):
    """Formats a record as one line with time, level, logger and message; a traceback follows on
    further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`, with its message escaped by `printable`."""
        time_text = _time_text(record)
        name = record.name.removeprefix(f"{ROOT}.")
        line = f"{time_text} {record.levelname} {name}: {printable(record.getMessage())}"
        if record.exc_info:
            traceback_lines = mask_secrets(self.formatException(record.exc_info)).split("\n")
            line = "\n".join([line, *(printable(each) for each in traceback_lines)])
        return line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line: time, level, logger, message, and exception if
    there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object for `record`."""
        found = {
            "time": _time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{ROOT}."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = mask_secrets(self.formatException(record.exc_info))
        return json.dumps(found)


def _time_text(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def short(name: str) -> str:
    """Return a name cut to ``NAME_CHARACTERS_MAX``, with an ellipsis if it was longer."""
    return _cut(name, NAME_CHARACTERS_MAX)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send Penstock's log lines of `level` and above to `stream`; a later call replaces this
    configuration.

    Args:
        level: "debug", "info", "warning" or "error".
        stream: the stream; None for standard error.

    Raises:
        KeyError: the level is unknown; `config` accepts only known levels.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter())
    _set_handler(handler, level)


def configure_broker_logs(
    level: str, form: str, file: str, file_bytes_max: int, files_max: int
) -> None:
    """Send log lines to standard error or to a file, from a thread: see ``background``.

    Args:
        level: as for ``configure_logs``.
        form: "text" or "json".
        file: the path of the log file; empty for standard error.
        file_bytes_max: size in bytes above which the file is renamed to FILE.1 and a new file
            begins.
        files_max: the number of renamed files that are kept, FILE.1 the newest; at least 1.

    Raises:
        OSError: the file cannot be written.
    """
    target: logging.Handler = DescriptorHandler(_STDERR)
    formatter = JsonFormatter() if form == "json" else LineFormatter()
    target.setFormatter(
        PriorityFormatter(formatter) if is_journal(_STDERR, os.environ) else formatter
    )
    if file:
        target = LogFileHandler(file, file_bytes_max, files_max, target)
        target.setFormatter(formatter)
    _set_handler(BackgroundHandler(target), level)


def _set_handler(handler: logging.Handler, level: str) -> None:
    logger = logging.getLogger(ROOT)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        if isinstance(old, BackgroundHandler):
            old.retire()
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[level])
    logger.propagate = False


class RepeatLimiter:
    """Admits at most one line per kind and interval, and counts the suppressed lines.

    The limiter remembers `keys_max` kinds; beyond that the kind not seen for longest is forgotten,
    which may admit one line too many and never suppresses a new kind.

    Args:
        interval_s: seconds between two lines of one kind, above 0.
        keys_max: the number of kinds that are remembered, at least 1.
    """

    def __init__(
        self, interval_s: float = REPEAT_INTERVAL_S, keys_max: int = REPEAT_KEYS_MAX
    ) -> None:
        self.interval_s = interval_s
        self.keys_max = keys_max
        self._limits: OrderedDict[str, tuple[float, int]] = OrderedDict()  # last line, suppressed

    def admit(self, key: str, now_s: float, count: int = 1) -> int | None:
        """Return whether a line of kind `key` may be written now.

        Args:
            key: the kind of the line.
            now_s: the time of any monotonic clock, in seconds.
            count: the number of occurrences that the line reports.

        Returns:
            None if the line is suppressed, else the number of occurrences of this kind that were
            suppressed before it.
        """
        key = key[:_KIND_CHARACTERS_MAX]  # it may contain names of 65,535 bytes
        seen = self._limits.get(key)
        if seen is None:
            if len(self._limits) >= self.keys_max:
                self._limits.popitem(last=False)
            self._limits[key] = (now_s, 0)
            return 0
        self._limits.move_to_end(key)
        last_s, suppressed = seen
        if now_s - last_s < self.interval_s:
            self._limits[key] = (last_s, suppressed + count)
            return None
        self._limits[key] = (now_s, 0)
        return suppressed


def warn_limited(
    logger: logging.Logger,
    limiter: RepeatLimiter,
    now_s: float,
    key: str,
    message: str,
    *args: object,
    count: int = 1,
) -> None:
    """Log a warning as `log_limited` does."""
    log_limited(logger, logging.WARNING, limiter, now_s, key, message, *args, count=count)


def log_limited(
    logger: logging.Logger,
    level: int,
    limiter: RepeatLimiter,
    now_s: float,
    key: str,
    message: str,
    *args: object,
    count: int = 1,
) -> None:
    """Log a line of kind `key` unless `limiter` suppresses it; the line has the number of
    occurrences suppressed before.

    Args:
        logger: the logger.
        level: the level of the line.
        limiter: the limiter of the logger.
        now_s: the time of any monotonic clock, in seconds.
        key: the kind of the line.
        message: the format of the line.
        args: the arguments of the format.
        count: the number of occurrences that the line reports.
    """
    suppressed = limiter.admit(key, now_s, count)
    if suppressed is None:
        return
    if suppressed:
        message += " (and %d more like this since the last line)"
        args = (*args, suppressed)
    logger.log(level, message, *args)
