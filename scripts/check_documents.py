"""Check that the documents agree with the tree; print each disagreement, exit code 1 if any.

links           a relative link in a Markdown file leads to a file, and its anchor to a heading
paths           a file that a document or a source file names in backquotes exists
modules         a module that a document, a setting of a tool or a source file names, as
                penstock.store.archive or below src also as `store.archive`, exists, and has
                the name that stands behind it
architecture    docs/architecture.md names every package under src/penstock and every file of
                the engine, and so does the engine's own list; neither names one that is gone
dependencies    docs/dependencies.md names every package that pyproject.toml asks for
written         pages of reference are what `make docs` writes: configuration.md, commands.md,
                metrics.md, api.md, spark_options.md, python_api.md
settings        a setting that a document names in backquotes exists
proofs          docs/flow_proofs.md names tests that exist
changelog       CHANGELOG.md has a section for what is not released yet
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.config.mistakes import settings_of
from penstock.config.settings import Settings

ROOT: Final = Path(__file__).resolve().parent.parent
NOT_OURS: Final = {".venv", ".git", "build", "dist", "node_modules"}

WRITTEN: Final = {  # by a script of this directory
    "configuration.md": "write_configuration.py",
    "commands.md": "write_commands.py",
    "metrics.md": "write_metrics.py",
    "api.md": "write_api.py",
    "spark_options.md": "write_spark_options.py",
    "python_api.md": "write_python_api.py",
}
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCED: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
PROOF: Final = re.compile(r"\[([^\]]+)\]\((\.\./tests/[^)]+\.py)\)")
PATH: Final = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|toml))`")
MODULE: Final = re.compile(
    r"(?<![\w./-])(penstock|pyspark_penstock|benchmarks|examples|tests)((?:\.[A-Za-z_]\w*)+)"
)
SHORT_MODULE: Final = re.compile(r"`(\w+)(?!\.py`|\.readStream\b)((?:\.[A-Za-z_]\w*)+)`")
# Files, units, properties of tables and options, tables, and loggers of tests.
NO_MODULES: Final = re.compile(
    "md|toml|bash|fish|lock|sock|log|service|sysusers|tmpfiles|server|epoch|commitId|startOffset|endOffset|sparkplug_b|NAME|readings|a|x|y"
)
INLINE_CODE: Final = re.compile(r"`[^`\n]*`")
HEADING: Final = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
ENGINE_FILES: Final = re.compile(r"^    (\w+(?:, \w+)*)  +\S", re.MULTILINE)
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")


def main() -> int:
    """Run all checks."""
    complaints = [
        *check_links(),
        *check_paths(),
        *check_modules(),
        *check_architecture(),
        *check_dependencies(),
        *check_written(),
        *check_settings(),
        *check_proofs(),
        *check_changelog(),
    ]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print("The documents agree with the tree.")
    return 1 if complaints else 0


def documents() -> list[Path]:
    """All Markdown files of the project."""
    found = ROOT.glob("**/*.md")
    return sorted(path for path in found if not NOT_OURS & set(path.relative_to(ROOT).parts))


def sources() -> list[Path]:
    """All Python files of the project below its directories."""
    top = ("src", "tests", "examples", "benchmarks", "scripts")
    return sorted(path for name in top for path in (ROOT / name).rglob("*.py"))


def check_links() -> Iterator[str]:
    """Relative links; those to other sites are not followed."""
    for document in documents():
        text = INLINE_CODE.sub("", FENCED.sub("", document.read_text(encoding="utf-8")))
        for match in LINK.finditer(text):
            target = match[1] or match[2]
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = target.partition("#")
            path = (document.parent / place).resolve() if place else document
            name = document.relative_to(ROOT)
            if not path.exists():
                yield f"{name}: the link {target} leads nowhere."
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{name}: the link {target} names no heading of {path.relative_to(ROOT)}."


def check_paths() -> Iterator[str]:
    """Yield complaints about files named in backquotes, from the root, from src/penstock or from
    where they are named."""
    for document in (*documents(), *sources()):
        if document == ROOT / "CHANGELOG.md":  # what it names may be gone
            continue
        text = FENCED.sub("", document.read_text(encoding="utf-8"))
        for name in PATH.findall(text):
            bases = (ROOT, ROOT / "src/penstock", document.parent)
            if not any((base / name).exists() for base in bases):
                yield f"{document.relative_to(ROOT)}: there is no file {name}."


def check_modules() -> Iterator[str]:
    """Yield complaints about modules that are named and do not exist."""
    tools = [path for suffix in ("toml", "yml", "py") for path in ROOT.glob(f"*.{suffix}")]
    for path in (*documents(), *sources(), *tools, ROOT / "Makefile"):
        if path == ROOT / "CHANGELOG.md":
            continue
        text = path.read_text(encoding="utf-8")
        for name in missing_modules(text, path):
            yield f"{path.relative_to(ROOT)}: there is no {name}."


def missing_modules(text: str, path: Path) -> Iterator[str]:
    """Yield names of modules, or of what is in them, that `text`, which is in `path`, should not
    name: there is no such thing."""
    for top, names in MODULE.findall(text):
        base = ROOT / "src" / top if (ROOT / "src" / top).is_dir() else ROOT / top
        if not _has(base, names.split(".")[1:]):
            yield top + names
    package = ROOT / "src/penstock"
    if path.is_relative_to(package):
        for top, names in SHORT_MODULE.findall(text):
            if (path.parent / f"{top}.py").is_file() or not (package / top).is_dir():
                continue  # a module beside it, or no package of ours
            if not _has(package / top, names.split(".")[1:]):
                yield top + names


def _has(base: Path, names: list[str]) -> bool:
    """Return whether `names` lead from a package to a module, or to a word in one."""
    if base.parent in (ROOT, ROOT / "src") and NO_MODULES.fullmatch(names[0]):
        return True
    for number, name in enumerate(names):
        file = base / f"{name}.py"
        if (base / name).is_dir():
            base /= name
            continue
        words = names[number + 1 :] if file.is_file() else names[number:]
        if not file.is_file():
            file = base / "__init__.py"
        if not words or words[0].startswith("__"):
            return True
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        return re.search(rf"\b{words[0]}\b", text) is not None
    return True


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
        for heading in HEADING.finditer(text)
    }


def check_architecture() -> Iterator[str]:
    """Every package has its line in the picture of the whole."""
    yield from missing_names(
        "docs/architecture.md",
        [
            f"{package.parent.name}/"
            for package in sorted((ROOT / "src/penstock").glob("*/__init__.py"))
        ],
    )
    engine = ROOT / "src/penstock/engine"
    for introduction in (engine / "__init__.py", *sorted(engine.glob("*/__init__.py"))):
        package = introduction.parent
        there = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
        there |= {path.parent.name for path in package.glob("*/__init__.py")}
        docstring = ast.get_docstring(ast.parse(introduction.read_text(encoding="utf-8")))
        listed = {
            name
            for names in ENGINE_FILES.findall(docstring or "")
            for name in re.split(r",\s*", names)
        }
        for name in sorted(there ^ listed):
            yield f"{introduction.relative_to(ROOT)} and its files do not agree on {name}."


def check_dependencies() -> Iterator[str]:
    """Every dependency has its reason written down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    asked = [*project["project"]["dependencies"], *(one for extra in extras for one in extra)]
    names = {name[0] for one in asked if (name := REQUIREMENT.match(one))}
    yield from missing_names("docs/dependencies.md", [f"`{name}`" for name in sorted(names)])


def check_written() -> Iterator[str]:
    """What is made from the source is not edited."""
    for name, script in WRITTEN.items():
        document = ROOT / "docs" / name
        as_markdown = runpy.run_path(str(ROOT / "scripts" / script))["as_markdown"]
        if not document.exists() or document.read_text(encoding="utf-8") != as_markdown():
            yield f"docs/{name} is out of date: run `make docs`."


def check_settings() -> Iterator[str]:
    """`limits.max_inflight` and the like."""
    groups = "|".join(Settings.model_fields)
    for document in documents():
        text = FENCED.sub("", document.read_text(encoding="utf-8"))
        for group, name in re.findall(rf"`({groups})\.([a-z0-9_]+)`", text):
            if name != "py" and name not in settings_of(group):
                yield f"{document.relative_to(ROOT)}: {group}.{name} is not a setting."


def check_proofs() -> Iterator[str]:
    """A link to a test says its name, without `test_` and with spaces."""
    document = ROOT / "docs/flow_proofs.md"
    for title, place in PROOF.findall(document.read_text(encoding="utf-8")):
        name = "test_" + title.replace(" ", "_")
        path = document.parent / place
        if not path.exists() or f"def {name}(" not in path.read_text(encoding="utf-8"):
            yield f"docs/flow_proofs.md: there is no {name} in {place}."


def check_changelog() -> Iterator[str]:
    """There is a place for the next change."""
    path = ROOT / "CHANGELOG.md"
    if not path.exists() or "\n## Unreleased\n" not in path.read_text(encoding="utf-8"):
        yield 'CHANGELOG.md has no section "## Unreleased".'


def missing_names(name: str, wanted: list[str]) -> Iterator[str]:
    """Complaints about names a document should contain."""
    document = ROOT / name
    if not document.exists():
        yield f"{name} does not exist."
        return
    text = document.read_text(encoding="utf-8")
    for one in wanted:
        if one not in text:
            yield f"{name} does not name {one}."


if __name__ == "__main__":
    sys.exit(main())
