"""Check that docstrings below src are sentences, and that names of tests have a subject; print each
that is not or has none, exit code 1 if any.

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
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "src"
TESTS: Final = ROOT / "tests"

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
    """Check all files below src and tests."""
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
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print("The docstrings are sentences, and the names of tests have a subject.")
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
