"""``python -m tests.released.write``: write the archive of the version that is being released.

It is done once for each version, with the code that is released (CONTRIBUTING.md, How a release is
made); an archive that is there is never written again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from penstock.auth.tokens import OWN_FILE
from penstock.services.own_secrets import LOGIN_SECRET_FILE
from penstock.version import __version__
from tests.released.content import write_content
from tests.released.found import find_content

HERE: Final = Path(__file__).resolve().parent
PARTS: Final = ("data", "box")
SIZE_BYTES_MAX: Final = 65_536
"""Of an archive: what is committed stays in every clone."""

LINE_CHARS: Final = 110

NOT_KEPT: Final = {OWN_FILE, LOGIN_SECRET_FILE, "control", "secondary", "LOG", "LOCK"}
"""Secrets, and what RocksDB and the broker make anew."""


def main() -> None:
    """Write ``VERSION.tar.xz`` and ``VERSION.json``."""
    archive = HERE / f"{__version__}.tar.xz"
    if archive.exists():
        sys.exit(f"{archive} is there: what a released version wrote is not written again.")
    with tempfile.TemporaryDirectory() as scratch:
        written, copy = Path(scratch) / "written", Path(scratch) / "copy"
        written.mkdir()
        write_content(written)
        draft = Path(scratch) / archive.name
        pack(written, draft)
        unpack(draft, copy)
        facts = find_content(copy)
        size_bytes = draft.stat().st_size
        if size_bytes > SIZE_BYTES_MAX:
            sys.exit(f"{size_bytes} bytes are more than {SIZE_BYTES_MAX}.")
        archive.with_suffix("").with_suffix(".json").write_text(f"{as_json(facts)}\n")
        shutil.copyfile(draft, archive)
    print(f"{archive}: {size_bytes} bytes")


def pack(directory: Path, archive: Path) -> None:
    """Write what belongs to a store and an outbox, without owners and times."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for part in PARTS:
            for path in sorted((directory / part).rglob("*")):
                name = path.name.partition(".old.")[0]  # of RocksDB's own log
                if path.is_file() and name not in NOT_KEPT:
                    member = tarfile.TarInfo(str(path.relative_to(directory)))
                    member.size, member.mode = path.stat().st_size, 0o600
                    with path.open("rb") as content:
                        packed.addfile(member, content)


def unpack(archive: Path, directory: Path) -> None:
    """Write the files of an archive; by hand, for Python 3.11.2 knows no filters of tarfile."""
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member)
            assert content is not None
            path = directory / member.name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file:
                shutil.copyfileobj(content, file)


def as_json(value: object, indent: str = "") -> str:
    """Return it as JSON for people who compare: what fits into a line stands in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= LINE_CHARS or not isinstance(value, dict | list):
        return line
    deeper = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {as_json(one, deeper)}" for name, one in value.items()]
        begin, end = "{}"
    else:
        parts = [as_json(one, deeper) for one in value]
        begin, end = "[]"
    body = ",\n".join(deeper + part for part in parts)
    return f"{begin}\n{body}\n{indent}{end}"


if __name__ == "__main__":
    main()
