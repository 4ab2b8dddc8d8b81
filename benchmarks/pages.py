"""Writes parts of docs/benchmarks.md; several benchmarks write one part each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path("docs") / "benchmarks.md"
PLOTS: Final = Path("docs") / "benchmarks"

_PART: Final = re.compile(r"^<!-- part: (\w+) -->\n", re.MULTILINE)


def write_part(name: str, text: str) -> None:
    """Replace the part ``name`` of the page, or append it if there is none."""
    pieces = _PART.split(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    parts[name] = text
    page = [f"<!-- part: {part} -->\n{content.strip()}\n" for part, content in parts.items()]
    PAGE.write_text("\n".join(page), encoding="utf-8")
