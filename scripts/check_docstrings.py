"""Check that docstrings below src are sentences, that names of tests have a subject, and that the
tests of the engine are found by module; print each that is not, exit code 1 if any.

everywhere      A docstring begins neither with a pronoun nor with a clause without its subject
                ("Who asks for it", "Those that wait", "Where it is"): it says what a thing is, or
                what is done. A variable may be described by "How long …" or "When …".
functions       The first word is a verb in the imperative: "Return the line of …", "Yield peers
                whose …". A property is a value, and its docstring may be a noun phrase. What is
                returned has its verb too: "…; return whether …", and not "…; whether …".
errors          A public function that raises an error by itself says so, or names the port it
                implements ("see ``Store.commit``"). A command's docstring is its help text.
arguments       What stands behind the name of an argument, attribute or error is a noun phrase
                or a sentence: "the epoch of the log", and not "that of the log".
tests           The name of a test is a sentence with its subject: "an unacknowledged message is
                sent again", and neither "what is not acknowledged is …" nor "it is …".
engine          The tests of engine/PACKAGE/MODULE.py are in tests/unit/engine/test_MODULE.py. What
                several modules do together is a scenario, in tests/unit/engine/scenarios.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "src"
TESTS: Final = ROOT / "tests"
ENGINE: Final = "src/penstock/engine"
ENGINE_TESTS: Final = "tests/unit/engine"
SCENARIOS: Final = "scenarios"

WITHOUT_TESTS: Final[Mapping[str, str]] = {
    "api": "it names what passes the door; import-linter proves that nothing else does",
    "values/event_kinds": "it is a list of names; test_events.py and test_event_log.py use them",
    "values/memory_costs": "it is estimates in bytes, with two sums; test_pool.py counts by them",
}
"""Modules of the engine without behaviour of their own, and why they need no tests."""

HEADLESS: Final = re.compile(
    "who(m|se|ever)?|what(ever)?|which|where(ver)?|whether|how|when|while|if|because|since|as"
    "|this|that|these|those|it|they|he|she|nobody|none|neither"
)
OF_VARIABLES: Final = re.compile("how|when|neither")
NO_VERBS: Final = re.compile(
    "the|an?|its|their|his|her|our|your|my|true|false|yes|no|not|all|every|each|any|some|both|one"
    "|another|other|only|same|such|also|and|or|but|so|in|on|at|of|for|to|by|with|without|from|up"
    "|after|before|until|unless|during|between|there|here|then"
    r"|\w*[^s]s"  # a plural, or the third person
)
NOUNS_DECORATED: Final = re.compile(r"property|callback")  # a callback's docstring is a help text
FIRST_WORD: Final = re.compile(r"\W*([\w'-]+)")
RETURNED: Final = re.compile(r"; (whether)\b")
ARGUMENT: Final = re.compile(
    r"^ +(\w+): (?:who|whom|whose|what|those|these|that|where|which)\b.*", re.MULTILINE
)
NAME_OF_A_TEST: Final = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
HEADLESS_NAME: Final = re.compile(
    "test_(who(m|se|ever)?|what(ever)?|which|where(ver)?|whether|how|when(ever)?|why"
    "|that|these|those|it|its|they|their)(_|$)"
)

NO_ERRORS: Final = frozenset(("AssertionError", "Exit", "NotImplementedError"))
COMMANDS: Final = "cli"  # the package whose docstrings users read

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef
Documented = ast.Module | ast.ClassDef | Function


def main() -> int:
    """Check all files below src and tests, and where the tests of the engine are."""
    complaints = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in sorted(SOURCES.rglob("*.py"))
        for complaint in complaints_about(
            path.read_text(encoding="utf-8"), COMMANDS in path.relative_to(SOURCES).parts
        )
    ]
    complaints += [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for complaint in complaints_about_names(path.read_text(encoding="utf-8"))
    ]
    complaints += complaints_about_places(
        [path.relative_to(ROOT / ENGINE).as_posix() for path in (ROOT / ENGINE).rglob("*.py")],
        {
            path.relative_to(ROOT / ENGINE_TESTS).as_posix(): path.read_text(encoding="utf-8")
            for path in (ROOT / ENGINE_TESTS).rglob("test_*.py")
        },
    )
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print(
            "The docstrings are sentences; tests have a subject, and those of the engine a module."
        )
    return 1 if complaints else 0


def complaints_about(source: str, is_of_commands: bool = False) -> Iterator[str]:
    """Yield a complaint, with its line, about each docstring of a module that is no sentence, or
    silent about an error."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            yield from _about_docstring(node)
            yield from _about_variables(node.body)
        if isinstance(node, Scope) and not is_of_commands:
            for function in node.body:
                if isinstance(function, Function) and not function.name.startswith("_"):
                    yield from _about_errors(function)


def complaints_about_names(source: str) -> Iterator[str]:
    """Yield a complaint, with its line, about each test of a module whose name has no subject."""
    for found in NAME_OF_A_TEST.finditer(source):
        if HEADLESS_NAME.match(found[1]):
            line = source.count("\n", 0, found.start()) + 1
            yield f"{line}: the name {found[1]} has no subject: say who or what it is about."


def complaints_about_places(
    modules: Collection[str],
    files: Mapping[str, str],
    without_tests: Collection[str] = WITHOUT_TESTS,
) -> Iterator[str]:
    """Yield a complaint about each module of the engine without a file of tests, and about each
    file of tests without a module.

    Args:
        modules: the paths of the engine's files below ``ENGINE``.
        files: the text of each file of tests, by its path below ``ENGINE_TESTS``.
        without_tests: the paths of modules that need no tests, without their ending.
    """
    by_name: dict[str, str] = {}
    for module in sorted(modules):
        path = PurePosixPath(module)
        if path.name == "__init__.py":
            continue
        wanted = f"test_{path.name}"
        if wanted in by_name:
            yield (
                f"{ENGINE}/{module}: {by_name[wanted]} has the same name, and tests are found by "
                "it: give one of them another."
            )
        by_name[wanted] = module
        excused = module.removesuffix(".py") in without_tests
        if excused == (wanted in files):
            yield (
                f"{ENGINE}/{module}: it has tests in {wanted}: take it out of WITHOUT_TESTS."
                if excused
                else f"{ENGINE}/{module}: there is no {ENGINE_TESTS}/{wanted}: put its tests there,"
                " or say in WITHOUT_TESTS of scripts/check_docstrings.py why it has no behaviour."
            )
    for gone in sorted(set(without_tests) - {name.removesuffix(".py") for name in modules}):
        yield f"{ENGINE}/{gone}.py is gone: take it out of WITHOUT_TESTS."
    for place, text in sorted(files.items()):
        path = PurePosixPath(place)
        if path.parent == PurePosixPath(SCENARIOS):
            if path.name in by_name:
                yield (
                    f"{ENGINE_TESTS}/{place}: it has the name of {by_name[path.name]}: give it that"
                    " of its scenario, or move it up."
                )
        elif place not in by_name:
            yield (
                f"{ENGINE_TESTS}/{place}: it names no module of the engine: call it test_MODULE.py"
                f" after the one that it tests, or move it to {SCENARIOS} if it tests several"
                " together."
            )
        if NAME_OF_A_TEST.search(text) is None:
            yield f"{ENGINE_TESTS}/{place}: there is no test in it."


def _about_errors(function: Function) -> Iterator[str]:
    text = ast.get_docstring(function)
    raised = sorted(set(_raised(function.body)) - NO_ERRORS)
    if text is None or not raised or re.search(r"[Rr]aise|see `", text):
        return
    yield f"{function.lineno}: {function.name} raises {', '.join(raised)}: say when."


def _raised(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of the errors that a function raises by itself."""
    nodes: list[ast.AST] = [*body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(error).rpartition(".")[2]
            if name[:1].isupper():
                yield name
        nodes.extend(ast.iter_child_nodes(node))


def _about_docstring(node: Documented) -> Iterator[str]:
    text = ast.get_docstring(node)
    if text is None:
        return
    line = node.body[0].lineno
    word = _first_word(text)
    if HEADLESS.fullmatch(word):
        yield f"{line}: a docstring begins with {word!r}: say what it is or does."
    elif isinstance(node, Function) and not _is_noun(node) and NO_VERBS.fullmatch(word):
        yield f"{line}: the docstring of {node.name} begins with {word!r}, and not with a verb."
    for returned in RETURNED.finditer(text.partition("\n\n")[0]):
        yield f"{line}: '; {returned[1]} …': say '; return {returned[1]} …'."
    for argument in ARGUMENT.finditer(text):
        yield f"{line}: {argument[0].strip()!r}: say what {argument[1]!r} is."


def _about_variables(body: list[ast.stmt]) -> Iterator[str]:
    for before, node in pairwise(body):
        match before, node:
            case (
                (ast.Assign() | ast.AnnAssign()),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                word = _first_word(text)
                if HEADLESS.fullmatch(word) and not OF_VARIABLES.fullmatch(word):
                    yield f"{node.lineno}: a docstring begins with {word!r}: say what it is."


def _is_noun(node: Function) -> bool:
    return any(NOUNS_DECORATED.search(ast.unparse(one)) for one in node.decorator_list)


def _first_word(text: str) -> str:
    found = FIRST_WORD.match(text)
    return found[1].lower() if found else ""


if __name__ == "__main__":
    sys.exit(main())
