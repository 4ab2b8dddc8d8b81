"""Writes shell scripts that start another program, to a directory where they are reused."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def private_directory() -> Path:
    """Return the directory for scripts: in the virtual environment, else in the user's cache."""
    environment = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and os.access(environment, os.W_OK):
        return environment / "share" / "penstock"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "penstock"


def write_script(path: Path, script: str) -> None:
    """Write an executable script, whole or not at all, replacing an earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        unfinished = Path(scratch) / path.name
        unfinished.write_text(script, encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.replace(path)
