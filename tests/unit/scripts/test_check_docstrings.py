"""The check of docstrings: which are sentences, and which are not."""

import pytest

from scripts.check_docstrings import complaints_about


@pytest.mark.parametrize(
    "source",
    [
        '"""The line of blocked publishers."""',
        'class Line:\n    """Publishers that wait for room."""',
        'def line():\n    """Return the line of blocked publishers."""',
        'def _pass():\n    """Pass it on."""',
        '@property\ndef line():\n    """The line of blocked publishers."""',
        '@app.callback()\ndef common():\n    """A broker."""',
        'WAIT_S = 3\n"""How long a publisher waits, in seconds."""',
        'def f(a):\n    """Do it.\n\n    Args:\n        a: whether it waits.\n    """',
        "def undocumented():\n    return 1",
    ],
)
def test_sentences_and_names_of_things(source: str) -> None:
    assert list(complaints_about(source)) == []


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ('"""Where they wait; who looks for room asks."""', 1, "where"),
        ('class Line:\n    """Those that wait."""', 2, "those"),
        ('def f():\n    """Whether it waits."""', 2, "whether"),
        ('def f():\n    """``What`` waits."""', 2, "what"),
        ('async def f():\n    """The line."""', 2, "the"),
        ('def f():\n    """Publishers that wait."""', 2, "publishers"),
        ('class A:\n    def f(self):\n        """True if it waits."""', 3, "true"),
        ('def f():\n    """Send it; whether it left."""', 2, "; whether"),
        ('WAIT_S = 3\n"""What a publisher waits for."""', 2, "what"),
        ('class A:\n    wait_s: int = 3\n    """Who waits."""', 3, "who"),
        (
            'def f(a):\n    """Do it.\n\n    Args:\n        a: those that wait.\n    """',
            2,
            "a: those",
        ),
    ],
)
def test_clauses_without_subject_or_verb(source: str, line: int, word: str) -> None:
    (complaint,) = complaints_about(source)
    assert complaint.startswith(f"{line}: ")
    assert f"'{word}" in complaint
