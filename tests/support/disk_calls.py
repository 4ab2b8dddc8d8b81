"""What a traced process did to a directory: creations, writes, renames, removals, syncs.

Read from the lines that ``strace -f -yy -xx`` wrote (``system_calls``). Mapped pages are written
without a system call; ``tests/crash/recorded_broker.py`` announces each such write by one to a
shadow file (``MAPPED_SUFFIX``), just before, and it stands here as a ``MAPPED`` change of the file
itself: from then on the page may reach the disk at any time.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.system_calls import whole_lines

TRACED: Final = (
    "write,pwrite64,writev,pwritev,sendto,sendmsg,read,readv,recvfrom,recvmsg,"
    "fdatasync,fsync,msync,openat,creat,rename,renameat,renameat2,link,linkat,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,ftruncate,truncate,fallocate"
)
TRACED_CHANGES: Final = ",".join(
    name for name in TRACED.split(",") if not name.startswith(("read", "recv"))
)
MAPPED_SUFFIX: Final = ".mapped"

CREATE: Final = "create"  # opened for writing with O_CREAT
CUT: Final = "truncate"
WRITE: Final = "write"
MAPPED: Final = "mapped"
RENAME: Final = "rename"
LINK: Final = "link"
REMOVE: Final = "remove"
MAKE_DIRECTORY: Final = "mkdir"
SYNC: Final = "sync"

_STRING: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_FIRST_FD: Final = re.compile(r"\w+\((\d+)<(.*?)>[,)]")
_RESULT: Final = re.compile(r"\)\s+= (-?\d+)")
_OFFSET: Final = re.compile(r", (\d+)\)\s+= -?\d+")
_FLAGS: Final = re.compile(r'", (O_[A-Z_|]+)')
_FALLOCATE: Final = re.compile(r">, ([^,]+), (\d+), (\d+)\)")
_FLAG_APPEND: Final = "O_APPEND"
_FLAG_SYNC: Final = "O_SYNC"
_DIRECTORY_FD: Final = re.compile(r"\w+\(\d+<(.*?)>, \"")
_READS: Final = ("read", "readv", "recvfrom", "recvmsg")
_RESULT_LENGTH_MAX: Final = 20_000  # it may name a file, in hexadecimal
_NAMED: Final = {
    "rename": RENAME,
    "renameat": RENAME,
    "renameat2": RENAME,
    "link": LINK,
    "linkat": LINK,
    "unlink": REMOVE,
    "unlinkat": REMOVE,
    "rmdir": REMOVE,
    "mkdir": MAKE_DIRECTORY,
    "mkdirat": MAKE_DIRECTORY,
}


class DiskCall(NamedTuple):
    """One change or sync.

    Args:
        started: position at its entry; ``finished`` at its exit.
        kind: of those above.
        path: what it changes; for a rename or link what it was called before.
        target: its new name, else "".
        offset: where it writes; -1 where the last write to the file ended, -2 at its end.
            The new size for a truncation; 1 for a creation that truncates.
        data: what it writes.
    """

    started: int
    finished: int
    kind: str
    path: str
    target: str = ""
    offset: int = 0
    data: bytes = b""


def was_done(call: DiskCall, root: str, left: Path) -> bool:
    """Return whether a call that a kill cut short did what it should, by what it left.

    Args:
        call: the call; a sync changes nothing to be seen.
        root: the directory below which it was recorded.
        left: where the files of that directory are now.
    """
    named = left / Path(call.path).relative_to(root)
    if call.kind == WRITE:
        content = named.read_bytes() if named.exists() else b""
        begin = call.offset if call.offset >= 0 else max(0, len(content) - len(call.data))
        return content[begin : begin + len(call.data)] == call.data
    if call.kind == REMOVE:
        return not named.exists()
    if call.kind in (RENAME, LINK):
        is_there = (left / Path(call.target).relative_to(root)).exists()
        return is_there and (call.kind == LINK or not named.exists())
    if call.kind == CREATE:
        return named.exists() and (call.offset == 0 or named.stat().st_size == 0)  # or truncated
    return call.kind == MAKE_DIRECTORY and named.exists()


def read_disk_calls(lines: Iterable[str], root: str, end: int) -> list[DiskCall]:
    """Everything done below ``root``, in the order in which it finished.

    A call that a kill cut short counts as finished at ``end``: the caller compares what it should
    have done with what is there.
    """
    found: list[DiskCall] = []
    appending: set[str] = set()
    syncing: set[str] = set()  # files of which each write is synced
    prefix = root.rstrip("/") + "/"
    for line in whole_lines(lines):
        name = line.text[:20].partition("(")[0]
        if name in _READS:
            continue
        finished = end if line.finished is None else line.finished
        if line.finished is not None:
            results = _RESULT.findall(line.text[-_RESULT_LENGTH_MAX:])
            if not results or int(results[-1]) < 0:
                continue
        for call in _read(line.started, finished, name, line.text, line.finished is None):
            if call.path.startswith(prefix) or call.path == root:
                if call.kind == CREATE:
                    _note(call.path, appending, _FLAG_APPEND in line.text)
                    _note(call.path, syncing, _FLAG_SYNC in line.text)
                at_end = call.kind == WRITE and call.offset == -1 and call.path in appending
                found.append(call._replace(offset=-2) if at_end else call)
                if call.kind == WRITE and call.path in syncing and line.finished is not None:
                    found.append(DiskCall(finished + 1, finished, SYNC, call.path))
    return found


def _note(path: str, paths: set[str], belongs: bool) -> None:
    (paths.add if belongs else paths.discard)(path)


def _read(started: int, finished: int, name: str, text: str, cut: bool) -> Iterator[DiskCall]:
    if name in ("openat", "creat"):
        yield from _opened(started, finished, text)
    elif name in _NAMED:
        paths = [_text(match.group(1)) for match in _STRING.finditer(text)]
        above = _DIRECTORY_FD.match(text)
        if above is not None:
            paths[0] = f"{_text(above.group(1))}/{paths[0]}"
        assert all(path.startswith("/") for path in paths), text
        target = paths[1] if len(paths) > 1 else ""
        yield DiskCall(started, finished, _NAMED[name], paths[0], target)
    else:
        head = _FIRST_FD.match(text)
        if head is not None:
            path = _text(head.group(2)) if "\\x" in head.group(2) else head.group(2)
            if path.startswith("/") and not path.endswith(" (deleted)"):
                yield from _of_descriptor(started, finished, name, path, text, cut)


def _opened(started: int, finished: int, text: str) -> Iterator[DiskCall]:
    flags = _FLAGS.search(text)
    path = _STRING.search(text)
    if flags is None or path is None or "O_CREAT" not in flags.group(1):
        return
    name = _text(path.group(1))
    if name.startswith("/") and not name.endswith(MAPPED_SUFFIX):
        truncates = int("O_TRUNC" in flags.group(1))
        yield DiskCall(started, finished, CREATE, name, offset=truncates)


def _of_descriptor(
    started: int, finished: int, name: str, path: str, text: str, cut: bool
) -> Iterator[DiskCall]:
    if name in ("fsync", "fdatasync"):
        if not cut:
            yield DiskCall(started, finished, SYNC, path)
    elif name == "ftruncate":
        size = int(text.rpartition(", ")[2].partition(")")[0])
        yield DiskCall(started, finished, CUT, path, offset=size)
    elif name == "fallocate":
        arguments = _FALLOCATE.search(text)
        assert arguments is not None, text
        assert "KEEP_SIZE" in arguments.group(1), f"not understood: {text}"
    elif name in ("write", "pwrite64", "writev", "pwritev"):
        yield from _written(started, finished, name, path, text, cut)


def _written(
    started: int, finished: int, name: str, path: str, text: str, cut: bool
) -> Iterator[DiskCall]:
    assert name != "pwritev", text
    pieces = []
    for match in _STRING.finditer(text):
        assert match.group(2) is None, f"strace cut a string written to {path}"
        pieces.append(bytes.fromhex(match.group(1).replace("\\x", "")))
    data = b"".join(pieces)
    offset = -1
    if not cut:
        data = data[: int(_RESULT.findall(text[-_RESULT_LENGTH_MAX:])[-1])]
        if name == "pwrite64":
            where = _OFFSET.search(text)
            assert where is not None, text
            offset = int(where.group(1))
    elif name == "pwrite64":
        offset = int(text.rpartition(", ")[2].rstrip(") "))
    if path.endswith(MAPPED_SUFFIX):
        path = path.removesuffix(MAPPED_SUFFIX)
        yield DiskCall(started, finished, MAPPED, path, offset=offset, data=data)
        return
    yield DiskCall(started, finished, WRITE, path, offset=offset, data=data)


def _text(escaped: str) -> str:
    return bytes.fromhex(escaped.replace("\\x", "")).decode()
