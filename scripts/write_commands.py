"""Write docs/commands.md from the commands; `make check` fails while it is out of date.

scripts/man_pages.py parses this page to make the manual pages: a change of its form needs a change
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
_INTRODUCTION: Final = """\
# Commands

<!-- Written by `make docs` from the commands in src/penstock/cli; change it there. -->

Each command as `penstock COMMAND --help` shows it, and `man penstock-COMMAND`. Words in capitals
stand for values. Your shell can [complete them](install.md#manual-pages-and-completion).

Exit codes: 0 done; 1 failed; 2 a mistake of the caller, in arguments or settings, or a port or
store in use; 27 the time given with `-W` is over (`pub`, `sub`, `rr`).

| Command | |
|---|---|
"""

_NO_COMMANDS: Final = typer.Typer(callback=lambda: None)
_NO_WRAP_MARK: Final = "\b"  # before a paragraph whose lines are not wrapped


def as_markdown() -> str:
    """Return the whole of docs/commands.md."""
    from penstock.cli.main import app

    root: Any = typer.main.get_command(app)
    lines = [_INTRODUCTION.rstrip("\n")]
    for name, command in sorted(root.commands.items()):
        anchor = f"penstock-{name}"
        lines.append(f"| [`penstock {name}`](#{anchor}) | {_cell(_paragraphs(command.help)[0])} |")
    lines += ["", *_epilog(root)]
    for name, command in sorted(root.commands.items()):
        lines += _section(command, f"penstock {name}", "##")
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(command: Any, path: str, heading: str) -> Iterator[str]:
    """Yield the lines about a command, and about its subcommands."""
    yield from (f"{heading} {path}", "")
    for paragraph in _paragraphs(command.help):
        yield from (_as_markdown_text(paragraph), "")
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield from ("```text", _usage_line(path, command.params), "```", "")
        yield from _parameters(command.params)
        yield from _epilog(command)
        return
    for name, subcommand in sorted(subcommands.items()):
        yield from _section(subcommand, f"{path} {name}", f"{heading}#")


def _parameters(parameters: list[Any]) -> Iterator[str]:
    rows = [
        f"| {_name_cell(one)} | {_description_cell(one)} |"
        for one in sorted(parameters, key=lambda one: one.param_type_name != "argument")
        if not getattr(one, "hidden", False)
        and (one.param_type_name == "option" or getattr(one, "help", None))
    ]
    if rows:
        yield from ("| Argument or option | |", "|---|---|", *rows, "")


def _usage_line(path: str, parameters: list[Any]) -> str:
    arguments = [_argument(one) for one in parameters if one.param_type_name == "argument"]
    return " ".join([path, "[OPTIONS]", *arguments])


def _argument(parameter: Any) -> str:
    """Return the name of an argument, as `[CLIENT]` where it may be left out."""
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _name_cell(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_cell(_argument(parameter))}`"
    names = ", ".join(parameter.opts)
    if parameter.secondary_opts:
        names += " / " + ", ".join(parameter.secondary_opts)
    if not parameter.is_flag:
        names += f" {parameter.metavar or _kind(parameter)}"
    return f"`{_cell(names)}`"


def _kind(parameter: Any) -> str:
    """Return the placeholder for the value of an option without a metavar: its choices, N or
    TEXT."""
    kind = str(parameter.display_type(typer.Context(typer.main.get_command(_NO_COMMANDS))))
    if "|" in kind:
        return kind.strip("<>")
    return "N" if "int" in kind or "float" in kind else "TEXT"


def _description_cell(parameter: Any) -> str:
    """Return the help text, with the default appended if the text does not have it."""
    text = _cell(_as_markdown_text(getattr(parameter, "help", None) or ""))
    default = parameter.default
    if parameter.required and parameter.param_type_name == "option":
        return f"{text} Required."
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        number = f"{default:g}"
        has_default = re.search(rf"[;:] (default: )?{re.escape(number)}\b", text)
        return text if has_default else f"{text} Default: {number}.".strip()
    return f"{text} Default: `{_cell(default)}`." if isinstance(default, str) and default else text


def _epilog(command: Any) -> Iterator[str]:
    """Yield the lines of the epilog: examples and text, in one code block."""
    has_block = False
    for paragraph in (command.epilog or "").replace(f"{_NO_WRAP_MARK}\n", "").split("\n\n"):
        if not paragraph.strip():
            continue
        if not has_block:
            yield "```text"
            has_block = True
        else:
            yield ""
        yield from paragraph.rstrip().replace(_NO_WRAP_MARK, "").splitlines()
    if has_block:
        yield from ("```", "")


def _paragraphs(text: str | None) -> list[str]:
    parts = re.split(r"\n\s*\n", (text or "").replace(_NO_WRAP_MARK, "").strip())
    return [" ".join(part.split()) for part in parts]


def _as_markdown_text(text: str) -> str:
    """Return the text with Markdown's characters escaped, and 'quoted options' as code."""
    text = re.sub(r"(?<!\w)'([^'\s][^']*)'(?!\w)", r"`\1`", text)
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_<\[])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
