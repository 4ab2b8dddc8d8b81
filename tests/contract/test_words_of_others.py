"""Text of others has one way to a terminal and one into a log line; nothing goes past them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import penstock

SOURCE: Final = Path(penstock.__file__).parent
WAYS: Final = {"telemetry/terminal.py", "telemetry/logs.py", "telemetry/background.py"}
PROGRAMS: Final = ("cli/main.py", "stream/service.py")
PAST_THE_STREAM: Final = {
    "sys.stdout.buffer",
    "sys.stderr.buffer",
    "sys.__stdout__",
    "sys.__stderr__",
    "rich.print",
    "Console",
}
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def _files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if _name(path) not in WAYS)


def _name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_a_terminal_is_reached_only_through_what_escapes() -> None:
    past = [
        f"{_name(path)}: {ast.unparse(node)}"
        for path in _files()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in PAST_THE_STREAM)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in PAST_THE_STREAM)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.secho", "typer.style"))
    ]
    assert past == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_guards_its_terminals_first(program: str) -> None:
    for node in ast.walk(ast.parse((SOURCE / program).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            assert "guard_terminals()" in [ast.unparse(each) for each in node.body[:2]]
            return
    pytest.fail(f"{program} has no main")


def test_every_logger_cuts_and_escapes_its_arguments() -> None:
    past = [
        _name(path)
        for path in _files()
        for name, call in _calls(path)
        if name == "logging.getLogger"
    ]
    assert past == ["otlp/collector.py"], "which listens to a library's logger, and writes nothing"


def test_a_log_line_is_a_text_with_arguments() -> None:
    """A text that is put together has names in it that nobody cuts."""
    composed = []
    for path in _files():
        for name, call in _calls(path):
            of, _, level = name.rpartition(".")
            if of == "logger" and level in LEVELS:
                text = call.args[1 if level == "log" else 0]
            elif name in ("warn_limited", "log_limited"):
                text = call.args[4 if name == "warn_limited" else 5]
            else:
                continue
            if not isinstance(text, ast.Constant | ast.Name):
                composed.append(f"{_name(path)}:{call.lineno}")
    assert composed == []
