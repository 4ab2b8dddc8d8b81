"""What a disk may hold after a power cut, from the changes and syncs before it.

The model promises no more than POSIX does. A file's bytes are certain once an fsync or fdatasync of
it that began after they were written has finished; a name (a creation, a rename, a removal) once an
fsync of its directory has. ``Names.WITH_FILES`` promises more: there the sync of a file or
directory makes its own name and those of the directories above it certain, too, as ext4, XFS and
Btrfs do. Everything else is open::

      changes ──▶ pending ── sync ─▶ durable
                     │
                     ╰── cut ─▶ any part of it, by ``Style``; files in sectors, names one by one

A sector holds what it held after one of the writes that touched it: never a later write without the
earlier ones. A call under way at the cut may have reached the page cache up to any byte.
"""

import enum
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, final

from tests.support.disk_calls import (
    CREATE,
    CUT,
    LINK,
    MAKE_DIRECTORY,
    MAPPED,
    REMOVE,
    RENAME,
    SYNC,
    WRITE,
    DiskCall,
)

SECTORS_BYTES: Final = (512, 4096)


class Style(enum.Enum):
    """What of the unsynced survives."""

    NOTHING = "nothing"
    """A disk that writes nothing before it must."""

    EVERYTHING = "everything"
    """As after kill -9."""

    ORDERED = "ordered"
    """All up to some moment, in the order it was done, the last write torn at a sector."""

    SCATTERED = "scattered"
    """Each sector and each name by itself: it survives, or an older state of it does."""

    SIZES = "sizes"
    """All names and sizes, but of the data only what was synced: zeros, or whatever lay there."""


class Names(enum.Enum):
    """When a name is certain."""

    POSIX = "posix"
    """Once its directory was synced."""

    WITH_FILES = "with files"
    """Also once what it stands for was synced; and so is each name above it."""


class Change(NamedTuple):
    """A pending change of a file's bytes; ``size`` is set where it is truncated."""

    at: int
    offset: int
    data: bytes
    size: int | None = None


class Naming(NamedTuple):
    """A pending change of names, atomic: what each stands for from then on (None: nothing).

    ``beside`` is the other directory where something was moved from one to another.
    """

    at: int
    names: dict[str, "File | Directory | None"]
    beside: "Directory | None" = None


@final
class File:
    """One inode."""

    def __init__(self) -> None:
        self.durable = b""
        self.pending: list[Change] = []
        self.position = 0  # of the next write of a stream
        self.size = 0

    def change(self, change: Change) -> None:
        """Written to the page cache."""
        self.pending.append(change)
        self.size = change.size if change.size is not None else max(self.size, _end(change))

    def sync(self, began: int) -> None:
        """All that was written before ``began`` is certain."""
        done = [change for change in self.pending if change.at < began]
        if done:
            content = bytearray(self.durable)
            for change in done:
                apply(content, change)
            self.durable = bytes(content)
            self.pending = [change for change in self.pending if change.at >= began]

    def content(self) -> bytes:
        """As a process reads it."""
        content = bytearray(self.durable)
        for change in self.pending:
            apply(content, change)
        return bytes(content)


@final
class Directory:
    """One directory."""

    def __init__(self) -> None:
        self.names: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}
        self.pending: list[Naming] = []

    def change(self, naming: Naming) -> None:
        """Done in the page cache."""
        self.pending.append(naming)
        _name(self.names, naming)

    def sync(self, began: int, name: str | None = None, journal: bool = False) -> None:
        """All names given before ``began`` are certain, or all changes of this ``name``; with a
        ``journal`` something moved has left the other directory, or is there, too.
        """
        done = [
            naming
            for naming in self.pending
            if naming.at < began and (name is None or name in naming.names)
        ]
        self.pending = [naming for naming in self.pending if naming not in done]
        for naming in done:
            _name(self.durable, naming)
            if journal and naming.beside is not None:
                for other in [one for one in naming.beside.pending if one.at == naming.at]:
                    naming.beside.sync(began, next(iter(other.names)), journal)


def apply(content: bytearray, change: Change) -> None:
    """Change ``content`` as a write or truncation does."""
    size = change.size
    if size is not None:
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : _end(change)] = change.data


def _end(change: Change) -> int:
    return change.offset + len(change.data)


def _name(names: dict[str, File | Directory], naming: Naming) -> None:
    for name, node in naming.names.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


@final
class Disk:
    """A directory tree as one process changes it.

    Args:
        root: the directory below which changes count; it exists and is certain.
        certain: when a name is certain.
    """

    def __init__(self, root: str, certain: Names = Names.POSIX) -> None:
        self._root = root.rstrip("/")
        self._certain = certain
        self._top = Directory()

    def do(self, call: DiskCall) -> None:
        """One finished call."""
        at = call.finished
        if call.kind == SYNC:
            node = self._find(call.path)
            if node is not None:
                self._sync(node, call)
            return
        if call.kind in (RENAME, LINK, REMOVE):
            for changed, naming in self._namings(call, at):
                changed.change(naming)
            return
        directory, name = self._place(call.path)
        if call.kind in (CREATE, MAKE_DIRECTORY):
            if name not in directory.names:
                made = File() if call.kind == CREATE else Directory()
                directory.change(Naming(at, {name: made}))
            elif call.kind == CREATE:
                self._reopen(directory, name, call)
        else:
            file = directory.names.get(name)
            if isinstance(file, File):
                self._write(file, call)

    def _sync(self, node: File | Directory, call: DiskCall) -> None:
        if self._certain is Names.POSIX:
            node.sync(call.started)
            return
        if isinstance(node, Directory):
            node.sync(call.started, journal=True)
        else:
            node.sync(call.started)
        above: File | Directory | None = self._top
        for name in call.path.removeprefix(self._root).split("/"):
            if name and isinstance(above, Directory):
                above.sync(call.started, name, journal=True)
                above = above.names.get(name)

    def _reopen(self, directory: Directory, name: str, call: DiskCall) -> None:
        file = directory.names[name]
        assert isinstance(file, File), call
        file.position = 0
        if call.offset and file.size:
            file.change(Change(call.finished, 0, b"", 0))

    def _write(self, file: File, call: DiskCall) -> None:
        change = self._change(file, call)
        file.change(change)
        if call.kind == WRITE and call.offset < 0:
            file.position = _end(change)

    def _change(self, file: File, call: DiskCall) -> Change:
        if call.kind == CUT:
            return Change(call.finished, 0, b"", call.offset)
        offset = {-1: file.position, -2: file.size}.get(call.offset, call.offset)
        return Change(call.finished, offset, call.data)

    def _namings(self, call: DiskCall, at: int) -> list[tuple[Directory, Naming]]:
        """The change of names in each directory that a rename, link or removal changes.

        The directory of what is removed may be gone: another thread removes it, and is seen first.
        """
        if call.kind == REMOVE and self._find(call.path) is None:
            return []
        directory, name = self._place(call.path)
        node = directory.names.get(name)
        if call.kind == REMOVE:
            return [(directory, Naming(at, {name: None}))]
        assert node is not None, call
        target_directory, target = self._place(call.target)
        if call.kind == LINK:
            return [(target_directory, Naming(at, {target: node}))]
        if target_directory is directory:
            return [(directory, Naming(at, {name: None, target: node}))]
        return [
            (target_directory, Naming(at, {target: node}, directory)),
            (directory, Naming(at, {name: None}, target_directory)),
        ]

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        directory = self._find(parent)
        assert isinstance(directory, Directory), path
        return directory, name

    def _find(self, path: str) -> File | Directory | None:
        node: File | Directory | None = self._top
        for name in path.removeprefix(self._root).split("/"):
            if name:
                node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    # -- what is there -----------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """Every file below the root as a process sees it, by its path there."""
        found: dict[str, bytes] = {}
        _collect(self._top, "", found)
        return found

    def cut(self, draw: Random, style: Style, under_way: list[DiskCall], to: Path) -> None:
        """Write what is left after a power cut to the new directory ``to``.

        Args:
            draw: decides what is open.
            style: how it decides.
            under_way: calls that had begun and not finished.
            to: where.
        """
        _Cut(self, draw, style, under_way).write(self._top, to)

    def torn(
        self, call: DiskCall, draw: Random
    ) -> list[tuple[File, Change] | tuple[Directory, Naming]]:
        """The changes that a call under way may have made by now; none if they cannot be seen."""
        if call.kind in (RENAME, LINK, REMOVE):
            return [*self._namings(call, call.finished)]
        if call.kind in (WRITE, MAPPED, CUT):
            directory, name = self._place(call.path)
            file = directory.names.get(name)
            if isinstance(file, File):
                change = self._change(file, call)
                length = draw.randint(0, len(change.data))
                return [(file, change._replace(data=change.data[:length]))]
        return []


def _collect(directory: Directory, prefix: str, found: dict[str, bytes]) -> None:
    for name, node in directory.names.items():
        if isinstance(node, Directory):
            _collect(node, f"{prefix}{name}/", found)
        else:
            found[prefix + name] = node.content()


@final
class _Cut:
    """One power cut."""

    def __init__(self, disk: Disk, draw: Random, style: Style, under_way: list[DiskCall]) -> None:
        self._draw = draw
        self._style = style
        self._changes: dict[int, list[Change]] = {}
        self._namings: dict[int, list[Naming]] = {}
        for call in under_way:
            for changed, change in disk.torn(call, draw):
                if isinstance(change, Change):
                    self._changes.setdefault(id(changed), []).append(change)
                else:
                    self._namings.setdefault(id(changed), []).append(change)
        self._sector_bytes = draw.choice(SECTORS_BYTES)
        self._survival = draw.choice((0.1, 0.5, 0.9))
        self._garbage = draw.random() < 0.5
        self._moved: dict[int, bool] = {}
        moments = self._moments(disk._top)
        self._until = draw.choice(moments) if moments else 0

    def _moments(self, directory: Directory) -> list[int]:
        found = [naming.at for naming in self._of_directory(directory)]
        for node in directory.names.values():
            if isinstance(node, Directory):
                found += self._moments(node)
            else:
                found += [change.at for change in self._of_file(node)]
        return found

    def _of_file(self, file: File) -> list[Change]:
        return file.pending + self._changes.get(id(file), [])

    def _of_directory(self, directory: Directory) -> list[Naming]:
        return directory.pending + self._namings.get(id(directory), [])

    def write(self, directory: Directory, to: Path) -> None:
        """Write ``directory`` and all below it."""
        to.mkdir()
        names = dict(directory.durable)
        for naming in self._of_directory(directory):
            if self._is_named(naming):
                _name(names, naming)
        for name, node in names.items():
            if isinstance(node, Directory):
                self.write(node, to / name)
            else:
                (to / name).write_bytes(self._content(node))

    def _is_named(self, naming: Naming) -> bool:
        """Whether a change of names survives; of something moved both or none."""
        if naming.beside is None:
            return self._survives(naming.at)
        return self._moved.setdefault(naming.at, self._survives(naming.at))

    def _survives(self, at: int) -> bool:
        if self._style is Style.NOTHING:
            return False
        if self._style is Style.ORDERED:
            return at <= self._until
        if self._style is Style.SCATTERED:
            return self._draw.random() < self._survival
        return True

    def _content(self, file: File) -> bytes:
        content = bytearray(file.durable)
        pending = self._of_file(file)
        if self._style is Style.SCATTERED:
            self._scatter(content, pending)
        elif self._style is Style.SIZES:
            size = len(file.content())
            for change in pending:
                if change.size is not None:
                    apply(content, change)
            if size > len(content):
                missing = size - len(content)
                content += self._draw.randbytes(missing) if self._garbage else bytes(missing)
        else:
            for change in pending:
                if self._survives(change.at):
                    apply(content, self._tear(change))
        return bytes(content)

    def _tear(self, change: Change) -> Change:
        """The last write before the moment of an ordered cut: some of its first sectors."""
        if self._style is not Style.ORDERED or change.at != self._until or change.size is not None:
            return change
        ends = change.offset + self._draw.randint(0, len(change.data))
        ends -= ends % self._sector_bytes if self._draw.random() < 0.7 else 0
        return change._replace(data=change.data[: max(0, ends - change.offset)])

    def _scatter(self, content: bytearray, pending: list[Change]) -> None:
        """Each sector as it was after one of the writes to it, or before them."""
        latest: dict[int, int] = {}
        sector_bytes = self._sector_bytes
        for number, change in enumerate(pending):
            if change.size is not None:
                if self._draw.random() < self._survival:
                    apply(content, change)
                continue
            for sector in range(change.offset // sector_bytes, -(-_end(change) // sector_bytes)):
                if sector not in latest:
                    whole = self._draw.random() < self._survival
                    latest[sector] = (
                        len(pending) if whole else self._draw.randint(-1, len(pending) - 1)
                    )
                if number <= latest[sector]:
                    begin = max(change.offset, sector * sector_bytes)
                    end = min(_end(change), (sector + 1) * sector_bytes)
                    piece = change.data[begin - change.offset : end - change.offset]
                    apply(content, Change(change.at, begin, piece))
