"""Write docs/configuration.md from the settings; a test fails while it is out of date."""

from pathlib import Path

from penstock.config.describe import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
