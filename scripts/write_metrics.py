"""Write docs/metrics.md from the declared metrics; `make check` fails while it is out of date."""

from pathlib import Path

from penstock.control.metric_page import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
