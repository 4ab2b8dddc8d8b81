"""Shell scripts that start a program, written once and reused."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def private_directory() -> Path:
    """Return a directory of ours: in the virtual environment if this is one, else in the cache."""
    environment = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and os.access(environment, os.W_OK):
        return environment / "share" / "penstock"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "penstock"


def write_script(path: Path, script: str) -> None:
    """Write an executable file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        made.write_text(script, encoding="utf-8")
        made.chmod(0o755)
        made.replace(path)
