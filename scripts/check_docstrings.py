"""Check that docstrings below src are sentences; print each that is not, exit code 1 if any.

everywhere      A docstring begins neither with a pronoun nor with a clause without its subject
                ("Who asks for it", "Those that wait", "Where it is"): it says what a thing is, or
                what is done. A variable may be described by "How long …" or "When …".
functions       The first word is a verb in the imperative: "Return the line of …", "Yield peers
                whose …". A property is a value, and its docstring may be a noun phrase. What is
                returned has its verb too: "…; return whether …", and not "…; whether …".
arguments       What stands behind the name of an argument, attribute or error is a noun phrase
                or a sentence: "the epoch of the log", and not "that of the log".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).resolve().parent.parent / "src"

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

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


def main() -> int:
    """Check all files below src."""
    complaints = [
        f"{path.relative_to(SOURCES.parent)}:{complaint}"
        for path in sorted(SOURCES.rglob("*.py"))
        for complaint in complaints_about(path.read_text(encoding="utf-8"))
    ]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print("The docstrings are sentences.")
    return 1 if complaints else 0


def complaints_about(source: str) -> Iterator[str]:
    """Yield a complaint, with its line, about each docstring of a module that is no sentence."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            yield from _about_docstring(node)
            yield from _about_variables(node.body)


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
