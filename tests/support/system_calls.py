"""What ``strace -f -yy -xx`` wrote, as a list of finished system calls.

Two lines of one call that another thread interrupted are put together::

      7 fdatasync(9</d/000004.log> <unfinished ...>        started: this line
      8 write(5<TCP:[...]>, "\\x40\\x02", 2) = 2
      7 <... fdatasync resumed>) = 0                       finished: this line

strace stops a thread at the entry and at the exit of each call, and writes the line there. So a
call finished before another started, exactly if its line comes first.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

TRACED: Final = "write,pwrite64,writev,sendto,sendmsg,read,readv,recvfrom,recvmsg,fdatasync,fsync"
_STRING_BYTES_MAX: Final = 1_048_576

_NO_RESULT: Final = "= ?"  # the kill came first
_UNFINISHED: Final = " <unfinished ...>"
_RESUMED: Final = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_CALL: Final = re.compile(r"(\w+)\((\d+)<(.*?)>[,)]")
_STRING: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_RESULT_LENGTH_MAX: Final = 20_000  # it may name a file, in hexadecimal
_RESULT: Final = re.compile(r"\)\s+= (-?\d+)")


class Call(NamedTuple):
    """One finished call on a file or socket.

    Args:
        started: number of the line at its entry.
        finished: number of the line at its exit.
        name: of the system call.
        target: what its descriptor stands for: a path, or ``TCP:[local->peer]``.
        data: the bytes written or read.
        result: what it returned.
    """

    started: int
    finished: int
    name: str
    target: str
    data: bytes
    result: int


class Line(NamedTuple):
    """The text of one finished call, and the numbers of the lines at its entry and exit.

    ``thread`` is who called; ``finished`` is None for a call that a kill cut short.
    """

    started: int
    finished: int | None
    thread: str
    text: str


def command(output: Path, traced: str = TRACED) -> list[str]:
    """The words before a command that have it traced, with the process itself as our child."""
    strace = shutil.which("strace")
    assert strace is not None
    return [
        strace,
        "-D",
        "-f",
        "-yy",
        "-xx",
        "-s",
        str(_STRING_BYTES_MAX),
        "--seccomp-bpf",
        "-e",
        f"trace={traced}",
        "-e",
        "signal=none",
        "-o",
        str(output),
    ]


def read_calls(lines: list[str]) -> list[Call]:
    """The calls in the order in which they finished; failed and interrupted ones are left out."""
    calls: list[Call] = []
    for line in whole_lines(lines):
        # Most of a trace are files that are read; they do not matter, and take time to parse.
        is_file = line.text.startswith("read(") and "<TCP" not in line.text[:200]
        if line.finished is not None and not is_file:
            call = _read_call(line.started, line.finished, line.text)
            if call is not None:
                calls.append(call)
    return calls


def whole_lines(lines: Iterable[str]) -> Iterator[Line]:
    """The calls, each as one line, in the order in which they finished; those cut short last."""
    pending: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        thread, _, text = line.strip().partition(" ")
        text = text.strip()
        started = number
        if text.endswith(_UNFINISHED):
            pending[thread] = (number, text.removesuffix(_UNFINISHED))
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            started, beginning = pending.pop(thread)
            text = beginning + resumed.group(2)
        if text.endswith(_NO_RESULT):
            pending[thread] = (started, text.removesuffix(_NO_RESULT))
            continue
        yield Line(started, number, thread, text)
    for thread, (started, text) in pending.items():
        yield Line(started, None, thread, text)


def _read_call(started: int, finished: int, text: str) -> Call | None:
    head = _CALL.match(text)
    results = _RESULT.findall(text[-_RESULT_LENGTH_MAX:])
    if head is None or not results or int(results[-1]) < 0:
        return None
    name, _, target = head.groups()
    if "\\x" in target:  # -xx writes paths in hexadecimal too
        target = _unescape(target)
    result = int(results[-1])
    pieces = []
    for match in _STRING.finditer(text, head.end()):
        assert match.group(2) is None, f"line {finished}: strace cut a string"
        pieces.append(_unescape_bytes(match.group(1)))
    data = b"".join(pieces)
    return Call(started, finished, name, target, data[:result] if data else data, result)


def _unescape_bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _unescape(escaped: str) -> str:
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match.group(1), 16)), escaped)
