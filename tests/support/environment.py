"""The environment of a Penstock under test."""

import atexit
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def _bytecode() -> str:
    """Where the brokers of this run keep their bytecode, if not beside the source."""
    directory = tempfile.TemporaryDirectory(prefix="penstock-bytecode-")
    atexit.register(directory.cleanup)
    return directory.name


def environment(settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """The environment of a Penstock under test: ``settings`` ("group.name") and no others.

    Where Python writes no bytecode, each start would compile a source tree anew, which takes three
    times as long as the rest of it: so its bytecode is kept elsewhere for as long as the tests run.
    Packages that are installed have theirs.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    if "PYTHONPATH" in clean:
        paths = clean["PYTHONPATH"].split(os.pathsep)
        clean["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths)
    if "PYTHONPATH" in clean and clean.pop("PYTHONDONTWRITEBYTECODE", ""):
        clean["PYTHONPYCACHEPREFIX"] = _bytecode()
    for setting, value in (settings or {}).items():
        clean[f"PENSTOCK_{setting.replace('.', '__')}".upper()] = str(value)
    return clean
