"""Whatever is put back: each state and each kind of copy has a test, and the document says what
becomes of it."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.support.put_back import BEGIN, COPIES, DOCUMENT, TESTS, Cell, read_cells, written

CELLS = [pytest.param(cell, id=f"{cell.state}-{cell.copy}") for cell in read_cells()]


@cache
def functions_in(path: str) -> tuple[set[str], str]:
    """The functions of a test file, and its texts."""
    nodes = list(ast.walk(ast.parse((TESTS / path).read_text())))
    names = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return names, "\n".join(text for text in texts if isinstance(text, str))


@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_names_tests_that_exist_and_check_its_sentence(cell: Cell) -> None:
    texts = []
    for name in cell.tests:
        path, _, function = name.partition("::")
        functions, text = functions_in(path)
        assert function in functions
        texts.append(text)
    assert cell.sentence in "\n".join(texts)


def test_no_cell_is_missing() -> None:
    cells = read_cells()
    states = dict.fromkeys(cell.state for cell in cells)
    assert [(cell.state, cell.copy) for cell in cells] == [
        (state, copy) for state in states for copy in COPIES
    ]
    assert all(cell.tests and cell.outcome for cell in cells)


def test_the_document_has_the_table() -> None:
    """`python -m tests.support.put_back` writes it."""
    text = DOCUMENT.read_text()
    assert BEGIN in text
    assert written(text) == text
