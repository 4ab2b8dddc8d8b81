"""Manual pages are made of docs/commands.md without a warning of groff."""

import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from penstock.cli.main import app
from scripts.man_pages import man_pages, write_man_pages

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "commands.md"


def test_every_command_has_its_page() -> None:
    pages = man_pages(DOCUMENT.read_text("utf-8"), "1.2.3")
    commands = getattr(typer.main.get_command(app), "commands")  # noqa: B009 - not in its type
    assert pages.keys() == {"penstock.1", *(f"penstock-{name}.1" for name in commands)}
    assert ".TH PENSTOCK-SERVE 1" in pages["penstock-serve.1"]
    assert "penstock-serve \\- Run the broker" in pages["penstock-serve.1"].replace("\\-s", "-s")
    assert r".B \-\-data\-dir DIR" in pages["penstock-serve.1"]


def test_a_line_that_troff_would_obey_is_text() -> None:
    document = "# Commands\n\n## penstock x\n\n.so /etc/passwd\n\n| `--a\\|b` | 'quoted' \\n |\n"
    text = man_pages(document, "1")["penstock-x.1"]
    assert "\n\\&.so /etc/passwd\n" in text
    assert "\\(aqquoted\\(aq \\en" in text


def test_groff_has_nothing_to_say(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    files = write_man_pages(DOCUMENT, "1.2.3", tmp_path)
    assert len(files) > 20
    command = ["groff", "-K", "utf8", "-man", "-Tutf8", "-ww", "-z", *files]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stderr == ""


def test_without_the_document_there_are_no_pages(tmp_path: Path) -> None:
    assert write_man_pages(tmp_path / "gone.md", "1", tmp_path / "man") == []
