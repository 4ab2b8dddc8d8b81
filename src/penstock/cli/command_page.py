"""The reference of all commands, docs/commands.md, made from their declarations.

scripts/man_pages.py parses the text that is made here, and makes manual pages of it: a change of
the form here needs one there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import typer

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
_UNWRAPPED: Final = "\b"  # stands before a paragraph whose lines stay as they are


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
    """Yield the lines about a command, and about those below it."""
    yield from (f"{heading} {path}", "")
    for paragraph in _paragraphs(command.help):
        yield from (_text(paragraph), "")
    below = getattr(command, "commands", None)
    if below is None:
        yield from ("```text", _usage(path, command.params), "```", "")
        yield from _parameters(command.params)
        yield from _epilog(command)
        return
    for name, one in sorted(below.items()):
        yield from _section(one, f"{path} {name}", f"{heading}#")


def _parameters(parameters: list[Any]) -> Iterator[str]:
    rows = [
        f"| {_named(one)} | {_described(one)} |"
        for one in sorted(parameters, key=lambda one: one.param_type_name != "argument")
        if not getattr(one, "hidden", False)
        and (one.param_type_name == "option" or getattr(one, "help", None))
    ]
    if rows:
        yield from ("| Argument or option | |", "|---|---|", *rows, "")


def _usage(path: str, parameters: list[Any]) -> str:
    arguments = [_argument(one) for one in parameters if one.param_type_name == "argument"]
    return " ".join([path, "[OPTIONS]", *arguments])


def _argument(parameter: Any) -> str:
    """Return the name of an argument, as `[CLIENT]` where it may be left out."""
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_cell(_argument(parameter))}`"
    names = ", ".join(parameter.opts)
    if parameter.secondary_opts:
        names += " / " + ", ".join(parameter.secondary_opts)
    if not parameter.is_flag:
        names += f" {parameter.metavar or _kind(parameter)}"
    return f"`{_cell(names)}`"


def _kind(parameter: Any) -> str:
    """Return the placeholder for the value of an option that names none: its choices, N or TEXT."""
    shown = str(parameter.display_type(typer.Context(typer.main.get_command(_NO_COMMANDS))))
    if "|" in shown:
        return shown.strip("<>")
    return "N" if "int" in shown or "float" in shown else "TEXT"


def _described(parameter: Any) -> str:
    """Return the help text, with a default that the text does not tell."""
    text = _cell(_text(getattr(parameter, "help", None) or ""))
    default = parameter.default
    if parameter.required and parameter.param_type_name == "option":
        return f"{text} Required."
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        shown = f"{default:g}"
        is_told = re.search(rf"[;:] (default: )?{re.escape(shown)}\b", text)
        return text if is_told else f"{text} Default: {shown}.".strip()
    return f"{text} Default: `{_cell(default)}`." if isinstance(default, str) and default else text


def _epilog(command: Any) -> Iterator[str]:
    """Yield the lines below the options: examples as they are, and text."""
    is_open = False
    for paragraph in (command.epilog or "").replace(f"{_UNWRAPPED}\n", "").split("\n\n"):
        if not paragraph.strip():
            continue
        if not is_open:
            yield "```text"
            is_open = True
        else:
            yield ""
        yield from paragraph.rstrip().replace(_UNWRAPPED, "").splitlines()
    if is_open:
        yield from ("```", "")


def _paragraphs(text: str | None) -> list[str]:
    parts = re.split(r"\n\s*\n", (text or "").replace(_UNWRAPPED, "").strip())
    return [" ".join(part.split()) for part in parts]


def _text(text: str) -> str:
    """Return the text with Markdown's characters escaped, and 'quoted options' as code."""
    text = re.sub(r"(?<!\w)'([^'\s][^']*)'(?!\w)", r"`\1`", text)
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_<\[])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
