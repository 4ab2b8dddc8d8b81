"""Log lines on standard error, and a brake for warnings that would repeat for every message.

One line per event, time first in UTC, level, part of Penstock, text:

    2026-11-21T07:52:06.120Z WARNING runtime.driver: dropped 2 messages (client m-7): queue full

Names in a line are written by others: client identifiers, users, topics, a server's reason string.
So a log line is a text of ours with *arguments*, and each argument is cut, escaped and rid of
passwords before any handler sees it (``get_logger``):

    logger.info("client %s left: %s", client_id, Sentence(because))
                        │  text: 128 characters  │ a sentence that quotes names, an error, a path:
                        │                        │ 1,024

A cause that strikes ten thousand times a second must not write ten thousand lines: a
`RepeatLimiter` lets the first of each kind through, then one per interval, with the number of lines
it suppressed. It is pure: the caller passes the time.
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
from penstock.telemetry.journal import WithPriority, is_journal
from penstock.telemetry.log_file import LogFileHandler

ROOT: Final = "penstock"
REPEAT_INTERVAL_S: Final = 10.0
REPEAT_KEYS_MAX: Final = 1000
_STDERR: Final = 2
NAME_CHARACTERS_MAX: Final = 128
"""Length of a client identifier, user name, topic or other text in a line, before escaping."""

SENTENCE_CHARACTERS_MAX: Final = 1024
"""Length of a sentence, an error or a path in a line, before escaping."""

_READ_CHARACTERS_MAX: Final = 4 * SENTENCE_CHARACTERS_MAX
"""Length of an argument that is searched for passwords: one may end behind what is shown."""

_KIND_CHARACTERS_MAX: Final = 256  # kept of each kind of warning

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

_ENDS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Sentence(str):
    """A sentence as an argument of a log line: it may be longer than a name."""

    __slots__ = ()


def get_logger(name: str) -> logging.Logger:
    """Return the logger `name`, which cuts, escapes and masks the arguments of its lines.

    It does so for all handlers, those of a program included that uses the client library.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_quote_arguments)
    return logger


def _quote_arguments(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_quoted(argument) for argument in record.args)
    return True


def _quoted(argument: object) -> object:
    """Return `argument`, or as text the part of it that a line may have."""
    if argument is None or isinstance(argument, int | float):
        return argument
    try:
        text = str(argument)
    except Exception:  # of a program's own class; what is logged must go on
        return type(argument).__name__
    is_name = type(argument) is str
    characters_max = NAME_CHARACTERS_MAX if is_name else SENTENCE_CHARACTERS_MAX
    shown = printable(_cut(mask_secrets(text[:_READ_CHARACTERS_MAX]), characters_max))
    return argument if shown == text else shown


def printable(text: str) -> str:
    r"""Return `text` with everything escaped that would not show as a character of its own.

    Client identifiers and topics may hold line breaks, which forge lines, and the control
    characters that terminals obey. The escapes are those that JSON has: ``\\n``, ``\\u001b``.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _escape(character) for character in text
    )


def one_line(text: str) -> str:
    """Return a library's text of several lines, perhaps with colours, as one plain line."""
    return " ".join(_COLOUR.sub("", text).split())


def _escape(character: str) -> str:
    if character in _ENDS:
        return _ENDS[character]
    units = character.encode("utf-16-be", "surrogatepass").hex()  # one, or two of a pair
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class OneLine(logging.Formatter):
    """Time, level, logger and message on one line; a traceback follows only where one is given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`, its message in printable characters only: see
        `printable`."""
        time_text = _time_text(record)
        name = record.name.removeprefix(f"{ROOT}.")
        line = f"{time_text} {record.levelname} {name}: {printable(record.getMessage())}"
        if record.exc_info:
            traceback_lines = mask_secrets(self.formatException(record.exc_info)).split("\n")
            line = "\n".join([line, *(printable(each) for each in traceback_lines)])
        return line


class OneObject(logging.Formatter):
    """One JSON object on one line: time, level, logger, message, and exception where one is."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object for `record`; control characters are escaped in it, too."""
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
    """Return a name in the length that a log line has for one: at most 128 characters."""
    return _cut(name, NAME_CHARACTERS_MAX)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send Penstock's log lines of `level` and above to `stream`; repeating replaces the set-up.

    Args:
        level: "debug", "info", "warning" or "error".
        stream: standard error if None.

    Raises:
        KeyError: the level is none of these; `config` does not let another through.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(OneLine())
    _use(handler, level)


def configure_broker_logs(
    level: str, form: str, file: str, file_bytes_max: int, files_max: int
) -> None:
    """Send log lines to standard error or to a file, from a thread: see ``background``.

    Args:
        level: as for ``configure_logs``.
        form: "text" or "json".
        file: its path; empty for standard error.
        file_bytes_max: size of the file above which it is renamed to FILE.1 and a new one begins.
        files_max: files beside it, FILE.1 the newest; at least 1.

    Raises:
        OSError: the file cannot be written.
    """
    target: logging.Handler = DescriptorHandler(_STDERR)
    lines = OneObject() if form == "json" else OneLine()
    target.setFormatter(WithPriority(lines) if is_journal(_STDERR, os.environ) else lines)
    if file:
        target = LogFileHandler(file, file_bytes_max, files_max, target)
        target.setFormatter(lines)
    _use(BackgroundHandler(target), level)


def _use(handler: logging.Handler, level: str) -> None:
    logger = logging.getLogger(ROOT)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        if isinstance(old, BackgroundHandler):
            old.retire()
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[level])
    logger.propagate = False


class RepeatLimiter:
    """At most one line per kind and interval, with a count of suppressed lines.

    It remembers `keys_max` kinds; beyond that the one not seen for longest is forgotten, which may
    let one line too many through and never suppresses a new kind.

    Args:
        interval_s: seconds between two lines of one kind, above 0.
        keys_max: kinds remembered, at least 1.
    """

    def __init__(
        self, interval_s: float = REPEAT_INTERVAL_S, keys_max: int = REPEAT_KEYS_MAX
    ) -> None:
        self.interval_s = interval_s
        self.keys_max = keys_max
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()  # (last line, held back)

    def admit(self, key: str, now_s: float, count: int = 1) -> int | None:
        """Ask to write a line of kind `key` at `now_s`, in seconds of any steady clock.

        ``count`` is how many things the line is about.

        Returns:
            None to stay silent, else how many things of this kind were suppressed before this line.
        """
        key = key[:_KIND_CHARACTERS_MAX]  # it may have names of 65,535 bytes in it
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= self.keys_max:
                self._seen.popitem(last=False)
            self._seen[key] = (now_s, 0)
            return 0
        self._seen.move_to_end(key)
        last_s, suppressed = seen
        if now_s - last_s < self.interval_s:
            self._seen[key] = (last_s, suppressed + count)
            return None
        self._seen[key] = (now_s, 0)
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
    """Log a line of kind `key` unless `limiter` suppresses it; it counts those suppressed before.

    ``count`` is how many things the line is about.
    """
    suppressed = limiter.admit(key, now_s, count)
    if suppressed is None:
        return
    if suppressed:
        message += " (and %d more like this since the last line)"
        args = (*args, suppressed)
    logger.log(level, message, *args)
