"""The check of documents finds modules that are named and do not exist."""

from pathlib import Path

import pytest

from scripts.check_documents import ROOT, missing_modules

OURS = "penstock"  # whole names of modules that are gone would be found in this file, too
SOURCE = ROOT / "src/penstock/store/archive.py"
DOCUMENT = ROOT / "docs/tables.md"


@pytest.mark.parametrize(
    "text",
    [
        "python -m penstock.cli",
        "the logger `penstock.store.archive`",
        'EntryPoint("penstock.store.archive:Archive")',
        "penstock.store.archive.Archive",
        "penstock.Client, penstock.__version__ and penstock.toml",
        "python -m benchmarks.landing",
        "src/penstock.store.gone and x.penstock.store.gone are other things",
    ],
)
def test_modules_and_their_names_may_be_named(text: str) -> None:
    assert list(missing_modules(text, DOCUMENT)) == []


@pytest.mark.parametrize(
    "name",
    [
        f"{OURS}.store.gone",
        f"{OURS}.gone.archive",
        f"{OURS}.gone",
        f"{OURS}.store.archive.Gone",
        f"{OURS}.spark.tables.gone.Table",
        f"pyspark_{OURS}.gone",
        f"{'benchmarks'}.gone",
    ],
)
@pytest.mark.parametrize("text", ["{}", 'name = "{}"', "see `{}`.", "python -m {} --help"])
def test_a_module_that_is_gone_may_not_be_named(name: str, text: str) -> None:
    assert list(missing_modules(text.format(name), DOCUMENT)) == [name]


@pytest.mark.parametrize("path", [SOURCE, DOCUMENT])
def test_a_source_file_names_modules_by_their_package(path: Path) -> None:
    text = "`store.archive`, `archive.Archive`, `spark.readStream`, `store.gone` and `a.b`"
    expected = ["store.gone"] if path == SOURCE else []
    assert list(missing_modules(text, path)) == expected
