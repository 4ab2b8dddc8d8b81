"""Write docs/python_api.md from the exported names; `make check` fails while it is out of date."""

from pathlib import Path

from penstock.client.python_page import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "python_api.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
