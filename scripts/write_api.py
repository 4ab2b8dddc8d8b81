"""Write docs/api.md from the operations of the API; `make check` fails while it is out of date."""

from pathlib import Path

from penstock.admin.api_page import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "api.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
