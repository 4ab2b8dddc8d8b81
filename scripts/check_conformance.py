"""Check that every normative statement of MQTT has a test; print each gap, exit code 1 if any.

::

    conformance/*.toml ─ statements ─┐
                                     ├─▶ complaints, docs/conformance.md
    tests/**/*.py, vectors/*.toml ───┘

A test cites a statement in its docstring or in the id of a case (a pytest.param, a wire vector):

    [MQTT-3.1.2-22]    MQTT 5.0
    [MQTT3-3.1.2-24]   MQTT 3.1.1, whose numbers are others; "v3.1.1 [MQTT-3.1.2-24]" is the same
    [V31-3.1-CONNACK]  MQTT 3.1, by our own names
    [MQTT-4.6.0-1] to [MQTT-4.6.0-4]   these four

A test marked xfail does not prove; it shows what is wanted, and fails once that works. Comments
do not count. Tests are read, not run: `make test` runs them. With --write the document is written.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCUMENT: Final = "docs/conformance.md"
VECTORS: Final = "tests/vectors"
NO_MQTT_HERE: Final = "tests/unit/scripts"  # the tests of this file cite to try it out

CITATION: Final = re.compile(
    r"(?P<old>v3\.1\.1\s+)?\[(?P<first>(?:MQTT3?|V31)-[\w.-]+)\]"
    r"(?:\s+to\s+(?:v3\.1\.1\s+)?\[(?P<last>(?:MQTT3?|V31)-[\w.-]+)\])?"
)

PROVEN: Final = "proven"
NOT_YET: Final = "not yet"
NOT_APPLICABLE: Final = "not applicable"
CLIENT_ONLY: Final = "client only"


@dataclass(frozen=True)
class Version:
    """One version of MQTT: where its statements are, and how tests cite them."""

    name: str
    path: str
    cited_as: str


VERSIONS: Final = (
    Version("MQTT 5.0", "conformance/mqtt5.toml", "MQTT-"),
    Version("MQTT 3.1.1", "conformance/mqtt3.1.1.toml", "MQTT3-"),
    Version("MQTT 3.1", "conformance/mqtt3.1.toml", "V31-"),
)


@dataclass(frozen=True)
class Statement:
    """One statement. citation is how tests write it, without brackets.

    until: a path in the repository; once it exists the statement applies after all.
    """

    version: Version
    section: str
    citation: str
    binds: str
    status: str
    says: str
    why: str
    until: str = ""


@dataclass(frozen=True, order=True)
class Proof:
    """A test, or a named case, that cites a statement; wanting when it is expected to fail."""

    path: str
    name: str
    wanting: bool


def main(arguments: Sequence[str]) -> int:
    """Check, or write the document."""
    statements = read_statements(ROOT)
    proofs = read_proofs(ROOT)
    document = as_markdown(statements, proofs)
    path = ROOT / DOCUMENT
    if "--write" in arguments:
        path.write_text(document, encoding="utf-8")
    complaints = [
        *complaints_about(statements, proofs),
        *applicable_by_now(ROOT, statements),
        *unknown_in_source(ROOT, statements),
    ]
    if not path.exists() or path.read_text(encoding="utf-8") != document:
        complaints.append(f"{DOCUMENT} is out of date: run `make docs`.")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print(f"All {len(statements)} statements are accounted for.")
    return 1 if complaints else 0


# -- reading ---------------------------------------------------------------------------


def read_statements(root: Path) -> dict[str, Statement]:
    """All statements of all versions by citation, in the order of the files."""
    found: dict[str, Statement] = {}
    for version in VERSIONS:
        sections = tomllib.loads((root / version.path).read_text(encoding="utf-8"))
        for section, entries in sections.items():
            for identifier, entry in entries.items():
                citation = version.cited_as + identifier.partition("-")[2]
                found[citation] = Statement(
                    version,
                    section,
                    citation,
                    entry["binds"],
                    entry.get("status", CLIENT_ONLY),
                    entry["says"],
                    entry.get("why", ""),
                    entry.get("until", ""),
                )
    return found


def read_proofs(root: Path) -> dict[str, list[Proof]]:
    """What the tests cite: citation to the tests and cases that do."""
    found: dict[str, set[Proof]] = {}
    for path in sorted((root / "tests").glob("**/*.py")):
        if path.is_relative_to(root / NO_MQTT_HERE):
            continue
        name = path.relative_to(root).as_posix()
        for text, owner, wanting in cited_texts(ast.parse(path.read_text(encoding="utf-8"))):
            for citation in citations(text):
                case = owner or CITATION.sub("", text).strip(" ,:;\n") or path.stem
                found.setdefault(citation, set()).add(Proof(name, case, wanting))
    for path in sorted((root / VECTORS).glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for text in (vector.get("name", "") for table in tables.values() for vector in table):
            for citation in citations(text):
                case = CITATION.sub("", text).strip(" ,")
                proof = Proof(path.relative_to(root).as_posix(), case, False)
                found.setdefault(citation, set()).add(proof)
    return {citation: sorted(proofs) for citation, proofs in found.items()}


def cited_texts(
    node: ast.AST, owner: str = "", wanting: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """(text, name of the test it is in or "", expected to fail) of every string that may cite.

    Of a test that is its docstring and its marks; elsewhere all strings but docstrings.
    """
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        owner = node.name
        wanting = any(
            "xfail" in ast.unparse(mark).partition("(")[0] for mark in node.decorator_list
        )
        yield ast.get_docstring(node) or "", owner, wanting
        children = list(node.decorator_list)
    elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if ast.get_docstring(node) is not None:
            children.remove(node.body[0])
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.param":
        wanting = wanting or "pytest.mark.xfail" in ast.unparse(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, owner, wanting
    for child in children:
        yield from cited_texts(child, owner, wanting)


def citations(text: str) -> Iterator[str]:
    """The statements a text cites."""
    for match in CITATION.finditer(text):
        first, last = match["first"], match["last"] or match["first"]
        if match["old"]:
            first, last = (one.replace("MQTT-", "MQTT3-") for one in (first, last))
        section, _, number = first.rpartition("-")
        end_section, _, end = last.rpartition("-")
        if section == end_section and number.isdigit() and end.isdigit():
            yield from (f"{section}-{one}" for one in range(int(number), int(end) + 1))
        else:
            yield from {first, last}


# -- judging ---------------------------------------------------------------------------


def complaints_about(
    statements: Mapping[str, Statement], proofs: Mapping[str, Sequence[Proof]]
) -> Iterator[str]:
    """Statements without their test, tests without their statement, and wrong states."""
    for citation, cited_by in proofs.items():
        if citation not in statements:
            places = ", ".join(f"{proof.path} ({proof.name})" for proof in cited_by)
            yield f"[{citation}] is no statement, but cited in {places}."
    for statement in statements.values():
        cited_by = proofs.get(statement.citation, ())
        proving = [proof for proof in cited_by if not proof.wanting]
        wanting = [proof for proof in cited_by if proof.wanting]
        where = f"[{statement.citation}]"
        if statement.binds == "client":
            if statement.status != CLIENT_ONLY:
                yield f"{where} binds a client alone and needs no status."
        elif statement.binds not in ("server", "both"):
            yield f"{where} binds {statement.binds!r}: server, client or both."
        elif statement.status == PROVEN:
            if not proving:
                yield f"{where} is said to be proven, but no test cites it."
            if wanting:
                yield f"{where} is said to be proven, but {wanting[0].name} expects to fail."
        elif statement.status not in (NOT_YET, NOT_APPLICABLE):
            yield f"{where} has status {statement.status!r}: proven, not yet or not applicable."
        elif not statement.why:
            yield f"{where} is {statement.status} without a reason."
        elif proving and not wanting:
            yield f"{where} is {statement.status}, but {proving[0].name} proves it."


def applicable_by_now(root: Path, statements: Mapping[str, Statement]) -> Iterator[str]:
    """Statements said not to apply while the part they bind was missing, and it is there now."""
    for statement in statements.values():
        if statement.until and (root / statement.until).exists():
            yield f"[{statement.citation}] applies: {statement.until} exists. Prove it."


def unknown_in_source(root: Path, statements: Mapping[str, Statement]) -> Iterator[str]:
    """Statements that comments under src cite and that do not exist."""
    for path in sorted((root / "src").glob("**/*.py")):
        for citation in citations(path.read_text(encoding="utf-8")):
            if citation not in statements:
                yield f"[{citation}] is no statement, but cited in {path.relative_to(root)}."


# -- the document ----------------------------------------------------------------------

_HEAD: Final = """\
# Conformance

Every numbered normative statement of MQTT 5.0 and 3.1.1, and every rule of the MQTT 3.1 document,
with the tests that prove it. `make docs` writes this file from `conformance/*.toml` and from the
tests; `make check` fails while it is out of date, while a statement said to be proven has no test,
and while a test cites a statement that does not exist.

The statements are told in our own words; the standards have the exact ones. A statement binds the
server, the client, or both: *both* includes what a server must check in the packets of a client.
Those for a client alone are listed so that the list is whole.

**How a test cites a statement:** in its docstring, or in the id of a parametrised case or of a wire
vector. `[MQTT-3.1.2-22]` is MQTT 5.0. MQTT 3.1.1 numbers other statements the same way, so its
are written `[MQTT3-3.1.2-24]`, or in running text `v3.1.1 [MQTT-3.1.2-24]`. MQTT 3.1 numbers
nothing; its rules have names of ours, `[V31-3.1-CONNACK]`. `[MQTT-4.6.0-1] to [MQTT-4.6.0-4]` cites
all four. A test that is expected to fail (`xfail`) proves nothing and is shown in *italics*: it
says what is still wanted, and fails as soon as that works, so that the status must be changed.
"""


def as_markdown(statements: Mapping[str, Statement], proofs: Mapping[str, Sequence[Proof]]) -> str:
    """The document."""
    lines = [_HEAD, *_summary(statements)]
    version: Version | None = None
    section = ""
    for statement in statements.values():
        if statement.version is not version:
            version, section = statement.version, ""
            lines += ["", f"## {version.name}"]
        if statement.section != section:
            section = statement.section
            lines += ["", f"### {version.name}: {section}", ""]
            lines += ["| Statement | Says | Binds | Status | Tests |", "|---|---|---|---|---|"]
        lines.append(_row(statement, proofs.get(statement.citation, ())))
    return "\n".join(lines) + "\n"


def _summary(statements: Mapping[str, Statement]) -> Iterator[str]:
    states = (PROVEN, NOT_YET, NOT_APPLICABLE, CLIENT_ONLY)
    yield "| | all | " + " | ".join(states) + " |"
    yield "|---" * (len(states) + 2) + "|"
    for version in VERSIONS:
        own = [one.status for one in statements.values() if one.version is version]
        numbers = " | ".join(str(own.count(state)) for state in states)
        yield f"| {version.name} | {len(own)} | {numbers} |"


def _row(statement: Statement, proofs: Sequence[Proof]) -> str:
    status = statement.status + (f": {statement.why}" if statement.why else "")
    identifier = statement.citation.replace("MQTT3-", "MQTT-")
    says = statement.says.replace("|", "\\|")
    tests = "<br>".join(_link(proof) for proof in proofs)
    return f"| {identifier} | {says} | {statement.binds} | {status} | {tests} |"


def _link(proof: Proof) -> str:
    name = proof.name.removeprefix("test_").replace("_", " ")
    name = re.sub(r"([\[\]|*`#<>$])", r"\\\1", " ".join(name.split()))
    link = f"[{name}](../{proof.path})"
    return f"*{link}*" if proof.wanting else link


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
