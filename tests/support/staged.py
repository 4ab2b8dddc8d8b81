"""What a broker's staging area holds, seen from outside while the broker removes it."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.store.staging import STAGED_DIRECTORY


def staged_files(data_dir: Path, suffix: str = "") -> list[Path]:
    """The files below ``data_dir``'s staging area whose names end so.

    `Path.glob` fails where a directory goes between being listed and being looked into; this takes
    it as what it is, a directory without files.
    """
    walk = os.walk(data_dir / STAGED_DIRECTORY)
    paths = (Path(place, name) for place, _, names in walk for name in names)
    return [path for path in paths if path.name.endswith(suffix)]
