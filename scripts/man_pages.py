"""Make manual pages of docs/commands.md: penstock(1), and one for each command below it.

setup.py calls this while a wheel is built, where neither Typer nor Penstock can be imported; so it
reads the document that `make docs` made of the commands, and needs the standard library only. Of
Markdown it knows what `scripts/write_commands.py` writes: headings, paragraphs, fenced blocks,
tables of two columns, code, links.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SECTION: Final = re.compile(r"^## (penstock [\w-]+)$", re.MULTILINE)
LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
ROW: Final = re.compile(r"^\| (.*?) \| ?(.*?) ?\|$")
NAME_WORDS_MAX: Final = 12  # of the one line that apropos(1) prints


def man_pages(document: str, version: str) -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    parts = SECTION.split(document)
    pages = {"penstock.1": _main_page(parts[0], version)}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        name = title.replace(" ", "-")
        first, _, _ = body.strip().partition("\n")
        lines = [*_head(name, first, version), ".SH DESCRIPTION", *_body(body)]
        lines += [".SH SEE ALSO", ".BR penstock (1)"]
        pages[f"{name}.1"] = "\n".join(lines) + "\n"
    return pages


def write_man_pages(document: Path, version: str, directory: Path) -> list[str]:
    """Write all pages into a directory; return the files, none where there is no document."""
    if not document.exists():
        return []
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in man_pages(document.read_text(encoding="utf-8"), version).items():
        (directory / name).write_text(text, encoding="utf-8")
        files.append(str(directory / name))
    return files


def _main_page(introduction: str, version: str) -> str:
    about = "An MQTT broker whose acknowledged messages reach a table exactly once."
    lines = [
        *_head("penstock", about, version),
        ".SH SYNOPSIS",
        r".B penstock",
        "COMMAND [OPTIONS]",
        ".SH DESCRIPTION",
        *_body(re.sub(r"^# .*|^<!--.*-->", "", introduction, flags=re.MULTILINE)),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, about: str, version: str) -> list[str]:
    words = re.split(r"[:;.] |\.$", _plain(about))[0].split()
    short = " ".join(words[:NAME_WORDS_MAX])
    return [
        f'.TH {name.upper()} 1 "" "penstock {version}" "Penstock"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(short)}",
    ]


def _body(text: str) -> Iterator[str]:
    """Yield the lines of a page for some Markdown."""
    is_block = False
    for line in text.splitlines():
        if line.startswith("```"):
            is_block = not is_block
            yield from ((".PP", ".nf") if is_block else (".fi",))
        elif is_block:
            yield _roff(line)
        elif line.startswith("###"):
            yield f'.SH "{_roff(line.lstrip("# ").upper())}"'
        elif row := ROW.match(line):
            yield from _row(row[1], row[2])
        elif line.strip() and not line.startswith("|"):
            yield _roff(_plain(line))
        elif not line.strip():
            yield ".PP"


def _row(name: str, text: str) -> Iterator[str]:
    """Yield a line of a table as a tagged paragraph; nothing for the line of headings."""
    if name in ("Argument or option", "Command"):
        return
    yield from (".TP", f".B {_roff(_plain(name))}")
    yield _roff(_plain(text)) or r"\&"


def _plain(text: str) -> str:
    """Return Markdown without its marks."""
    text = LINK.sub(r"\1", text).replace("\\|", "|").replace("`", "")
    return re.sub(r"\\([*_<\[])", r"\1", text)


def _roff(text: str) -> str:
    """Return text in which troff finds no command, and no dash but the one that can be copied."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    text = text.replace("^", r"\(ha").replace("~", r"\(ti").replace('"', r"\(dq")
    return f"\\&{text}" if text.startswith(".") else text


if __name__ == "__main__":  # man_pages.py DOCUMENT VERSION DIRECTORY
    write_man_pages(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
