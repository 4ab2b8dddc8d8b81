"""A machine of its own for the commands of a document, without a copy of this one.

A shell that runs ``LAY_OVER`` in a mount namespace has a file system of its own over each directory
that is written to: the machine's below, the test's above. What it writes is in the test's directory
and gone with it::

      unshare --mount sh -c "$LAY_OVER …" NAME OVER      OVER/…/upper has what was written
"""

from __future__ import annotations

import os
import shutil
from typing import Final

NO_OVERLAYS: Final = 98
"""Exit code of a shell where file systems cannot be laid over each other."""

LAY_OVER: Final = f"""
set -eu
over=$1
mount --make-rprivate /
lay_over() {{
    for place; do
        [ -d $place ] || continue
        name=$(echo $place | tr / _)
        mkdir -p "$over/$name/upper" "$over/$name/work"
        own="upperdir=$over/$name/upper,workdir=$over/$name/work"
        mount -t overlay overlay -o "lowerdir=$place,$own" $place || exit {NO_OVERLAYS}
    done
}}
"""


def missing(*programs: str) -> str:
    """Why this cannot be had here; empty where it can, and all programs are there."""
    if os.geteuid() != 0:
        return "only root installs services"
    gone = [name for name in ("unshare", *programs) if shutil.which(name) is None]
    return f"{gone[0]} is not installed" if gone else ""
