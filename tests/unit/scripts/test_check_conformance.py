"""The check that every normative statement has a test: what it reads, and what it finds."""

import ast
from pathlib import Path

import pytest

from scripts.check_conformance import (
    NOT_APPLICABLE,
    NOT_YET,
    PROVEN,
    VERSIONS,
    Proof,
    Statement,
    applicable_by_now,
    as_markdown,
    citations,
    cited_texts,
    complaints_about,
    read_proofs,
    read_statements,
)

ROOT = Path(__file__).parents[3]
PROVING = Proof("tests/test_a.py", "test_it", False)
WANTING = Proof("tests/test_a.py", "test_it_later", True)


def statement(status: str, binds: str = "server", why: str = "") -> Statement:
    return Statement(VERSIONS[0], "3.1 CONNECT", "MQTT-3.1.0-2", binds, status, "Says.", why)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[MQTT-3.1.2-22]: and so on", ["MQTT-3.1.2-22"]),
        ("[MQTT3-3.1.2-24], [V31-3.1-CONNACK]", ["MQTT3-3.1.2-24", "V31-3.1-CONNACK"]),
        ("v3.1.1\n    [MQTT-3.1.2-24] [MQTT-1.5.4-1]", ["MQTT3-3.1.2-24", "MQTT-1.5.4-1"]),
        ("[MQTT-4.6.0-2] to [MQTT-4.6.0-4]", [f"MQTT-4.6.0-{number}" for number in (2, 3, 4)]),
        ("v3.1.1 [MQTT-1.5.3-1] to [MQTT-1.5.3-2]", ["MQTT3-1.5.3-1", "MQTT3-1.5.3-2"]),
        ("v5 §3.1.2.5, [MQTT 5 §4.9], [-13]", []),
    ],
)
def test_citations(text: str, expected: list[str]) -> None:
    assert list(citations(text)) == expected


def test_a_citation_counts_for_the_test_it_stands_in() -> None:
    source = '''
"""Module [A]."""
CASES = [pytest.param(1, id="case [B]"), pytest.param(2, marks=pytest.mark.xfail, id="bad [C]")]
# [D]
def helper():
    """Helper [E]."""
@pytest.mark.parametrize("x", [pytest.param(1, id="own [F]")])
def test_one(x):
    """One [G]."""
@pytest.mark.xfail(reason="later")
def test_two():
    """Two [H]."""
    assert "[I]"
'''
    found = {
        text: (owner, body_requests)
        for text, owner, body_requests in cited_texts(ast.parse(source))
    }
    cited = {text: where for text, where in found.items() if "[" in text}
    assert cited == {
        "case [B]": ("", False),
        "bad [C]": ("", True),
        "own [F]": ("test_one", False),
        "One [G].": ("test_one", False),
        "Two [H].": ("test_two", True),
    }


@pytest.mark.parametrize(
    ("one", "proofs", "complaint"),
    [
        (statement(PROVEN), [PROVING], ""),
        (statement(PROVEN), [], "no test cites it"),
        (statement(PROVEN), [WANTING], "no test cites it"),
        (statement(PROVEN), [PROVING, WANTING], "expects to fail"),
        (statement(NOT_YET, why="Later."), [], ""),
        (statement(NOT_YET, why="Later."), [PROVING, WANTING], ""),
        (statement(NOT_YET, why="Later."), [PROVING], "proves it"),
        (statement(NOT_YET), [], "without a reason"),
        (statement(NOT_APPLICABLE, why="Never."), [PROVING], "proves it"),
        (statement("client only", "client"), [], ""),
        (statement(PROVEN, "client"), [PROVING], "needs no status"),
        (statement(PROVEN, "nobody"), [PROVING], "binds 'nobody'"),
        (statement("done"), [PROVING], "has status 'done'"),
    ],
)
def test_complaints(one: Statement, proofs: list[Proof], complaint: str) -> None:
    found = " ".join(complaints_about({one.citation: one}, {one.citation: proofs}))
    assert (complaint in found) if complaint else (found == "")


def test_a_citation_of_nothing_is_found() -> None:
    (complaint,) = complaints_about({}, {"MQTT-9.9.9-9": [PROVING]})
    assert "[MQTT-9.9.9-9] is no statement" in complaint
    assert "tests/test_a.py (test_it)" in complaint


def test_the_statements_are_as_many_as_the_standards_have() -> None:
    """Chapters 1, 2, 3, 4, 6 and 7 of each; MQTT 3.1 has no numbers to count."""
    cited = list(read_statements(ROOT))
    for prefix, counts in (("MQTT-", (5, 7, 175, 60, 4, 0)), ("MQTT3-", (3, 9, 95, 26, 4, 4))):
        chapters = [one.removeprefix(prefix).split(".")[0] for one in cited if prefix in one]
        assert tuple(chapters.count(chapter) for chapter in "123467") == counts
    assert len(cited) == len(set(cited))


def test_the_document_names_every_statement() -> None:
    statements = read_statements(ROOT)
    document = as_markdown(statements, read_proofs(ROOT))
    for one in statements.values():
        assert f"| {one.citation.replace('MQTT3-', 'MQTT-')} |" in document


def test_a_statement_applies_once_what_it_binds_is_there(tmp_path: Path) -> None:
    version = VERSIONS[1]
    bridge = Statement(
        version, "7", "MQTT3-7.0.0-1", "server", NOT_APPLICABLE, "Says.", "No bridge.", "src/bridge"
    )
    assert list(applicable_by_now(tmp_path, {bridge.citation: bridge})) == []
    (tmp_path / "src" / "bridge").mkdir(parents=True)
    (complaint,) = applicable_by_now(tmp_path, {bridge.citation: bridge})
    assert "MQTT3-7.0.0-1" in complaint
