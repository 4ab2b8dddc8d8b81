"""Write docs/python_api.md from the exported names; `make check` fails while it is out of date."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "python_api.md"
_INTRODUCTION: Final = """\
# Python API

<!-- Written by `make docs` from the docstrings of what `penstock` exports; change them there. -->

The public names of the package `penstock`; [client.md](client.md) shows how to use them. All other
modules below it are private, and may change in any version.
"""

_WIDTH: Final = 72
_SECTION: Final = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ENTRY: Final = re.compile(r"^    (\S[^:]*): (.*)$")


def as_markdown() -> str:
    """Return the text of docs/python_api.md."""
    package: Any = importlib.import_module("penstock")
    names = [name for name in package.__all__ if not name.startswith("__")]
    lines = [_INTRODUCTION, "| | |", "|---|---|"]
    for name in names:
        first = _first_line(getattr(package, name))
        lines.append(f"| [`{name}`](#{name.lower()}) | {first.replace('|', chr(92) + '|')} |")
    for name in names:
        lines += ["", *_class(name, getattr(package, name))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _class(name: str, kind: Any) -> Iterator[str]:
    yield from (f"## {name}", "", *_code(f"class {name}{_signature(kind)}"), "")
    yield from _docstring(kind.__doc__)
    for member, value in vars(kind).items():
        if member.startswith("_") or not getattr(value, "__doc__", None):
            continue
        if isinstance(value, property):
            yield from ("", f"### {name}.{member}", "")
            yield from _docstring(value.__doc__)
        elif inspect.isfunction(value):
            prefix = "async def" if inspect.iscoroutinefunction(value) else "def"
            yield from ("", f"### {name}.{member}()", "")
            yield from (*_code(f"{prefix} {member}{_signature(value)}"), "")
            yield from _docstring(value.__doc__)


def _code(text: str) -> list[str]:
    return ["```python", text, "```"]


def _signature(called: Any) -> str:
    """Return the signature with types and defaults; a long one has a parameter a line."""
    signature = inspect.signature(called)
    shown = [_parameter(one) for one in signature.parameters.values() if one.name != "self"]
    arrow = "" if inspect.isclass(called) else f" -> {_type(signature.return_annotation)}"
    one_line = f"({', '.join(shown)}){arrow}"
    if len(one_line) <= _WIDTH:
        return one_line
    return "(\n" + "".join(f"    {one},\n" for one in shown) + f"){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    text = f"{stars.get(parameter.kind, '')}{parameter.name}: {_type(parameter.annotation)}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return text
    is_made = "object at" in repr(default) or default.__class__.__name__.startswith("_HAS_DEFAULT")
    return f"{text} = {'…' if is_made else repr(default)}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _first_line(documented: Any) -> str:
    text = inspect.cleandoc(documented.__doc__ or "").split("\n\n", 1)[0]
    return _inline(" ".join(text.split()))


def _docstring(text: str | None) -> Iterator[str]:
    """Yield the lines of a docstring as Markdown: sections become lists, diagrams code blocks."""
    is_block = False
    for line in inspect.cleandoc(text or "").splitlines():
        if is_block and line and not line.startswith(" "):
            is_block = False
            yield "```"
            yield ""
        if is_block:
            yield line
        elif line == "::":
            is_block = True
            yield "```text"
        elif section := _SECTION.match(line):
            yield from (f"*{section[1]}*", "")
        elif entry := _ENTRY.match(line):
            yield f"- `{entry[1]}`: {_inline(entry[2])}"
        elif line.startswith("        "):
            yield f"  {_inline(line.strip())}"
        else:
            yield _inline(line.strip())
    if is_block:
        yield "```"


def _inline(text: str) -> str:
    return text.replace("``", "`").replace("<", "\\<")


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
