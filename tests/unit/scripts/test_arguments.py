"""Programs with argparse read only arguments that they declare: no type checker sees that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = [
    path
    for folder in ("benchmarks", "examples", "packaging", "scripts", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "add_argument(" in path.read_text(encoding="utf-8") and path != Path(__file__)
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_argument_that_is_read_is_declared(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    declared = set(declared_arguments(tree))
    read = set(read_arguments(tree))
    assert read <= declared


def declared_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield the attribute that each argument gets."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in {"add_argument", "add_subparsers"}:
            continue
        chosen = [word.value for word in node.keywords if word.arg == "dest"]
        names = chosen or [one for one in node.args if isinstance(one, ast.Constant)]
        texts = [str(one.value) for one in names if isinstance(one, ast.Constant)]
        long = [text for text in texts if text.startswith("--")] or texts
        yield from (text.lstrip("-").replace("-", "_") for text in long[:1])


def read_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes of each variable that parsed arguments are assigned to."""
    parsed = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "parse_args(" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in parsed:
                yield node.attr
