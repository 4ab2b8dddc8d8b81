"""Write docs/spark_options.md from the declared options; `make check` fails while it is old."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.spark.declared_options import SINK_OPTIONS, SOURCE_OPTIONS, DeclaredOption

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "spark_options.md"
_INTRODUCTION: Final = """\
# Spark options

<!-- Written by `make docs` from src/penstock/spark/declared_options.py; change it there. -->

The options of `format("penstock")`; [spark.md](spark.md) shows them at work. Case does not matter.
All are checked before anything runs: an unknown name, or two options that contradict each other,
are reported in one sentence.
"""


def as_markdown() -> str:
    """Return the text of docs/spark_options.md."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## The source",
            "",
            "The options of `spark.read` and `spark.readStream`.",
            "",
            *_table(SOURCE_OPTIONS),
            "",
            "## The sink",
            "",
            "The options of `df.write` and `df.writeStream`.",
            "",
            *_table(SINK_OPTIONS),
            "",
        ]
    )


def _table(options: Iterable[DeclaredOption]) -> list[str]:
    rows = [f"| `{one.name}` | {one.default} | {one.text} |" for one in options]
    return ["| Option | Default | Meaning |", "|---|---|---|", *rows]


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
