"""Write docs/commands.md from the commands; `make check` fails while it is out of date."""

from pathlib import Path

from penstock.cli.command_page import as_markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
