"""Build the site of the documents in build/site, strictly; exit code 1 where a page is wrong.

::

      README.md, docs/, …  ── stage ─▶  build/pages  ── zensical build --strict ─▶  build/site

build/pages mirrors the repository, so that a link from page to page is the same in both. A link to
a file that is no page leads to the repository, at `repo_url` of zensical.toml; while that is empty,
only its text is left.

Each finds its own: scripts/check_documents.py dead links, anchors and files that are named, in the
repository; `misplaced` pages without a place in the navigation; Zensical the links and anchors of
the staged pages, thus also those that staging would have made wrong; `loaded_from_elsewhere` what
a page of the site would fetch from another one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
CONFIGURATION: Final = ROOT / "zensical.toml"
PAGES: Final = ("*.md", "docs/**/*.md", "examples/**/*.md")
IMAGES: Final = ("docs/**/*.svg",)

COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
FENCED: Final = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)", re.MULTILINE | re.DOTALL)
MARKED: Final = re.compile(r"^(```\w+) \w+$", re.MULTILINE)  # a second word, for tests
CODE: Final = re.compile(r"`[^`\n]+`")  # in which a cell of a table may have a bare pipe
LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FETCHED: Final = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|url\(["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)"""
)


def main() -> int:
    """Stage the pages and build the site; tell where it is."""
    site = settings()
    complaints = list(misplaced(site["nav"]))
    staged, built = ROOT / site["docs_dir"], ROOT / site["site_dir"]
    stage(staged, site["repo_url"])
    shutil.rmtree(built, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--config-file", str(CONFIGURATION)]
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(COLOURS.sub("", done.stdout), file=sys.stderr)
        return 1
    complaints += loaded_from_elsewhere(built)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print(f"The site is {built.relative_to(ROOT) / 'index.html'}.")
    return 1 if complaints else 0


def settings() -> dict[str, Any]:
    """The settings of the site."""
    project: dict[str, Any] = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))["project"]
    return project


def pages() -> list[Path]:
    """Every page of the site, as it lies in the repository."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def places(nav: list[Any]) -> Iterator[str]:
    """Yield the pages that a navigation names, from the root of the repository."""
    for entry in nav:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from places(below)


def misplaced(nav: list[Any]) -> Iterator[str]:
    """Yield complaints about pages without a place in the navigation, and places without one."""
    placed = list(places(nav))
    there = {str(path.relative_to(ROOT)) for path in pages()}
    for name in sorted(there - set(placed)):
        yield f"{name} has no place in `nav` of zensical.toml: add it where one would look for it."
    for name in sorted(set(placed) - there):
        yield f"zensical.toml: there is no page {name}."
    for name in sorted({name for name in placed if placed.count(name) > 1}):
        yield f"zensical.toml: {name} has two places."


def stage(staged: Path, repository: str) -> None:
    """Lay out pages and pictures below `staged`, and remove what is there of former times."""
    shutil.rmtree(staged, ignore_errors=True)
    known = {path.resolve() for path in pages()}
    images = [path for pattern in IMAGES for path in ROOT.glob(pattern)]
    known.update(path.resolve() for path in images)
    for path in images:
        copy = staged / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for path in pages():
        copy = staged / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        copy.write_text(as_staged(text, path, known, repository), encoding="utf-8")


def as_staged(text: str, path: Path, known: set[Path], repository: str) -> str:
    """Return the text of a page whose links lead to pages, or to the repository."""

    def link(match: re.Match[str]) -> str:
        target, _, _ = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = Path(os.path.normpath(path.parent / target))
        if file in known:
            return match[0]
        if not repository:
            return match["text"]
        return f"[{match['text']}]({repository}/blob/main/{file.relative_to(ROOT)})"

    def prose(part: str) -> str:
        return LINK.sub(link, CODE.sub(lambda code: code[0].replace("\\|", "|"), part))

    parts: list[str] = []
    end = 0
    for fenced in FENCED.finditer(text):
        parts += [prose(text[end : fenced.start()]), MARKED.sub(r"\1", fenced[0], 1)]
        end = fenced.end()
    return "".join([*parts, prose(text[end:])])


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield complaints about what a page, or a style of it, would fetch from another site."""
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for match in FETCHED.finditer(path.read_text(encoding="utf-8")):
            address = next(group for group in match.groups() if group)
            yield f"{path.relative_to(site)} loads {address}."


if __name__ == "__main__":
    sys.exit(main())
