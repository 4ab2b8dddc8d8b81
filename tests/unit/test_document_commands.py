"""Every `penstock` command in the documents is one that the command line takes.

Commands stand in fenced blocks: each line of a block of `sh`, and in others each line that begins
with `$ `. They are parsed by the commands themselves, which are not run; so an option that is
renamed or a value that is refused is found. What stands for something else:

    WORD            in capitals stands for a value: DIR, HOST:PORT, N
    $(…)            likewise; the commands in it are looked at, too
    … or ...        more of the kind: the command is not parsed, its options must exist

Between backquotes a command may lack arguments; its subcommands and options must exist.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for path in sorted(ROOT.glob("docs/**/*.md")) if path.name != "commands.md"),
]
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`penstock ([a-z][^`]*)`")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")
DESCRIPTOR = re.compile(r"(?<=\s)\d(?=[<>])")  # 2> is one word to a shell
SUBSTITUTED = re.compile(r"\$\(([^()]*)\)")
MORE = re.compile(r"…|\.\.\.")
PROGRAM: Any = typer.main.get_command(app)


def logical_lines(kind: str, block: str) -> Iterator[list[str]]:
    """The words of each command line, with those that separate commands."""
    pending = ""
    for line in block.replace("\\\n", " ").splitlines():
        if kind not in ("sh", "bash"):
            if not line.startswith("$ "):
                continue
            line = line[2:]
        pending += line
        for inner in SUBSTITUTED.findall(pending):
            yield from logical_lines("sh", inner)
        pending = DESCRIPTOR.sub("", SUBSTITUTED.sub("1", pending))
        parser = shlex.shlex(pending, posix=True, punctuation_chars=True)
        parser.whitespace_split = True
        try:
            words = list(parser)
        except ValueError:  # a quoted text goes on in the next line
            pending += "\n"
            continue
        pending = ""
        yield words
    assert not pending, f"a quote is not closed: {pending}"


def commands(words: list[str]) -> Iterator[list[str]]:
    """Our commands among those of a line, without their redirections and what is in front."""
    parts: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;<>()"):
            parts.append([word])
        else:
            parts[-1].append(word)
    for part in parts:
        starts = [
            number
            for number, (word, following) in enumerate(pairwise(part))
            if word.rpartition("/")[2] == "penstock" and following in PROGRAM.commands
        ]
        if starts and part[0] not in ("<", ">", ">>"):
            yield part[starts[-1] + 1 :]
        elif len(part) > 1 and part[0] == "penstock":
            assert part[1] in ("--version", "--help"), f"there is no command {part[1]}"


def found(document: Path) -> Iterator[list[str]]:
    for kind, block in FENCED.findall(document.read_text(encoding="utf-8")):
        for words in logical_lines(kind, block):
            yield from commands(words)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is named, and its words."""
    command, rest = PROGRAM, list(words)
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, f"there is no {' '.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def check_options(words: list[str]) -> None:
    command, rest = command_of(words)
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    unknown = {word for word in rest if word.startswith("--")} - options - {"--help"}
    assert not unknown, words


def check(words: list[str]) -> None:
    """Parse a command, and do not run it."""
    if any(MORE.search(word) for word in words):
        check_options([word for word in words if not MORE.fullmatch(word)])
        return
    command, rest = command_of(words)
    values = ["1" if PLACEHOLDER.fullmatch(word) else word for word in rest]
    command.make_context("penstock", values)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_can_be_given(document: Path) -> None:
    for words in found(document):
        try:
            check(words)
        except Exception as error:
            raise AssertionError(f"penstock {shlex.join(words)}: {error}") from error
    for text in INLINE.findall(document.read_text(encoding="utf-8")):
        if not MORE.search(text) and "\n" not in text:
            words = shlex.split(text.replace("'$", "'"))
            check_options(words if words[0] in PROGRAM.commands else [])


def test_commands_are_found_where_they_stand() -> None:
    text = "A=1 penstock serve 2> log & echo x | sudo /opt/bin/penstock pub -m 'a b' # penstock no"
    ((first, second),) = [list(commands(words)) for words in logical_lines("sh", text)]
    assert first == ["serve"]
    assert second == ["pub", "-m", "a b"]
    assert sum(1 for document in DOCUMENTS for _ in found(document)) > 60


@pytest.mark.parametrize(
    "command", ["pub --tpoic a", "clients kik press-7", "serve 1884", "flow --rows many"]
)
def test_a_command_that_would_be_refused_is_found(command: str) -> None:
    with pytest.raises(Exception, match=r".+"):
        check(shlex.split(command))
