"""Whatever is put back: each state and each kind of copy has a test, and the document says what
becomes of it."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.support.put_back import BEGIN, COPIES, DOCUMENT, TESTS, Cell, read_cells, written

CELLS = [pytest.param(cell, id=f"{cell.state}-{cell.copy}") for cell in read_cells()]


@cache
def texts_of(path: str) -> dict[str, str]:
    """The texts of each test of a file, with those of the constants and functions that it uses."""
    tree = ast.parse((TESTS / path).read_text())
    parts: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts[node.targets[0].id] = node.value
    found: dict[str, str] = {}
    for name in parts:
        used, waiting = set[str](), [name]
        while waiting:
            part = waiting.pop()
            if part in parts and part not in used:
                used.add(part)
                waiting += [one.id for one in ast.walk(parts[part]) if isinstance(one, ast.Name)]
        values = (one.value for part in used for one in constants_in(parts[part]))
        found[name] = "\n".join(value for value in values if isinstance(value, str))
    return found


def constants_in(node: ast.AST) -> list[ast.Constant]:
    """The constants below a node."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Constant)]


@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_names_tests_that_exist_and_check_its_sentence(cell: Cell) -> None:
    texts = []
    for name in cell.tests:
        path, _, function = name.partition("::")
        assert function in texts_of(path)
        texts.append(texts_of(path)[function])
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
