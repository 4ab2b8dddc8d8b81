"""The site is made of the documents as they are, and loads nothing from elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.build_site import ROOT, as_staged, loaded_from_elsewhere, misplaced, settings

PAGE = ROOT / "docs" / "flow.md"
KNOWN = {PAGE, ROOT / "README.md"}


@pytest.mark.parametrize(
    ("written", "staged"),
    [
        ("[the queue](flow.md#the-queue)", "[the queue](flow.md#the-queue)"),
        ("[home](../README.md) and [here](#bounds)", "[home](../README.md) and [here](#bounds)"),
        ("[a site](https://example.org/x)", "[a site](https://example.org/x)"),
        ("[a test](../tests/conftest.py)", "a test"),
        ("| `a\\|b` | c\\|d |", "| `a|b` | c\\|d |"),
        ("```toml decoder\n[x](../gone.py)\n```", "```toml\n[x](../gone.py)\n```"),
    ],
)
def test_links_lead_to_pages_or_are_text(written: str, staged: str) -> None:
    assert as_staged(written, PAGE, KNOWN, "") == staged


def test_links_to_files_lead_to_the_repository_where_it_is_known() -> None:
    text = as_staged("[a test](../tests/conftest.py)", PAGE, KNOWN, "https://example.org/p")
    assert text == "[a test](https://example.org/p/blob/main/tests/conftest.py)"


def test_a_page_without_a_place_is_told_and_so_is_a_place_without_a_page() -> None:
    nav = settings()["nav"]
    assert list(misplaced(nav)) == []
    said = list(misplaced([*nav[1:], {"Gone": "docs/gone.md"}, {"Twice": "docs/api.md"}]))
    assert [line.partition(":")[2].split()[-1] for line in said[1:]] == ["docs/gone.md.", "places."]
    assert said[0].startswith("README.md has no place")


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<script async src=//cdn.example/x.js>",
        '<link rel="stylesheet" href="https://fonts.example/css?family=A">',
        '<img alt="x" src="http://example.org/x.png">',
        "@font-face { src: url(https://fonts.example/a.woff2) }",
    ],
)
def test_a_file_loaded_from_elsewhere_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"<a href='https://example.org'>a link</a>{text}")
    assert len(list(loaded_from_elsewhere(tmp_path))) == 1


def test_the_site_is_built_and_its_search_finds_a_setting() -> None:
    program = Path(__file__).resolve().parents[3] / "scripts" / "build_site.py"
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    site = ROOT / settings()["site_dir"]
    assert "limits.max_inflight" in (site / "search.json").read_text("utf-8")
    pages = [path.read_text("utf-8") for path in site.rglob("*.html")]
    assert len(pages) > 50
    # The theme's script fetches these libraries where a page has such an element.
    for fetching in ('class="mermaid"', "glightbox", 'class="pyodide"'):
        assert not [page for page in pages if fetching in page]
