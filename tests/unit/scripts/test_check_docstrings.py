"""The check of docstrings, names of tests and their places: which are right, and which are not."""

import pytest

from scripts.check_docstrings import (
    complaints_about,
    complaints_about_names,
    complaints_about_places,
)


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


RAISES = "    if a:\n        raise errors.Late(a)\n    raise Early from None"


@pytest.mark.parametrize(
    "source",
    [
        f'def f(a):\n    """Do it.\n\n    Raises:\n        Early: it is.\n    """\n{RAISES}',
        f'def f(a):\n    """Do it; see ``Port.f``."""\n{RAISES}',
        f'def _f(a):\n    """Do it."""\n{RAISES}',
        f"def f(a):\n{RAISES}",
        'def f(a):\n    """Do it."""\n    def g():\n        raise Late',
        'def f(a):\n    """Do it."""\n    try:\n        a()\n    except OSError:\n        raise',
        'def f(a):\n    """Do it."""\n    raise NotImplementedError',
    ],
)
def test_errors_that_are_told_or_are_no_callers_business(source: str) -> None:
    assert list(complaints_about(source)) == []


@pytest.mark.parametrize("before", ["", "class A:\n    "])
def test_an_error_that_a_docstring_does_not_tell(before: str) -> None:
    source = before + f'def f(a):\n    """Do it."""\n{RAISES}'.replace(
        "\n", "\n    " if before else "\n"
    )
    assert len(list(complaints_about(source))) == 1
    assert "f raises Early, Late: say when." in next(complaints_about(source))
    assert list(complaints_about(source, is_of_commands=True)) == []


@pytest.mark.parametrize(
    "name",
    [
        "what_is_not_acknowledged_is_sent_again",
        "who_reads_slowly_is_not",
        "whoever_left_is_forgotten",
        "where_the_broker_is",
        "how_the_clock_stood",
        "when_it_is_given_up",
        "whether_a_packet_is_whole_is_told",
        "it_fits",
        "its_permissions",
        "they_are_not_in_the_log",
        "those_who_asked_are_told",
    ],
)
@pytest.mark.parametrize("before", ["def ", "async def ", "class TestA:\n    def "])
def test_a_name_of_a_test_without_its_subject_is_found(name: str, before: str) -> None:
    (complaint,) = complaints_about_names(f"X = 1\n{before}test_{name}(): ...\n")
    assert complaint.startswith(f"{before.count(chr(10)) + 2}: ")
    assert f"test_{name} " in complaint


@pytest.mark.parametrize(
    "name",
    [
        "test_an_unacknowledged_message_is_sent_again",
        "test_nothing_is_sent_twice",
        "test_there_is_no_flow_without_a_session",
        "test_items_are_read",
        "test_whole_packets_are_read",
        "what_is_no_test",
    ],
)
def test_a_name_with_its_subject_may_stay(name: str) -> None:
    assert list(complaints_about_names(f"def {name}(): ...\n")) == []


TEST = "def test_a_line_is_kept() -> None:\n    assert True\n"
MODULES = ("__init__.py", "waiting.py", "batch/__init__.py", "batch/timers.py", "values/kinds.py")
PLACES = {"test_waiting.py": TEST, "test_timers.py": TEST, "scenarios/test_a_storm.py": TEST}


def places(
    changed: dict[str, str | None],
    modules: tuple[str, ...] = MODULES,
    without: tuple[str, ...] = ("values/kinds",),
) -> list[str]:
    """Return the complaints where files of tests are added, or taken away (None)."""
    files = {name: text for name, text in {**PLACES, **changed}.items() if text is not None}
    return list(complaints_about_places(modules, files, without))


def test_engine_tests_by_module_and_scenarios_are_right() -> None:
    assert places({}) == []


def test_an_engine_module_without_tests_is_told_where_they_belong() -> None:
    (complaint,) = places({"test_timers.py": None})
    assert complaint.startswith("src/penstock/engine/batch/timers.py: ")
    assert "put its tests there" in complaint
    assert "tests/unit/engine/test_timers.py" in complaint


def test_an_excuse_that_is_none_any_more_is_told() -> None:
    (has_tests,) = places({"test_kinds.py": TEST})
    assert "take it out of WITHOUT_TESTS" in has_tests
    (gone,) = places({}, without=("values/kinds", "values/former"))
    assert gone.startswith("src/penstock/engine/values/former.py is gone")


@pytest.mark.parametrize(
    "name", ["test_turns.py", "batch/test_timers.py", "elsewhere/test_storm.py"]
)
def test_a_file_of_engine_tests_that_names_no_module_is_told_where_it_belongs(name: str) -> None:
    (complaint,) = places({name: TEST})
    assert complaint.startswith(f"tests/unit/engine/{name}: ")
    assert "names no module" in complaint
    assert "move it to scenarios" in complaint


def test_a_scenario_with_the_name_of_a_module_is_told() -> None:
    (complaint,) = places({"scenarios/test_timers.py": TEST})
    assert "has the name of batch/timers.py" in complaint


def test_two_engine_modules_of_one_name_are_told() -> None:
    (complaint,) = places({}, (*MODULES, "routing/timers.py"))
    assert "batch/timers.py has the same name" in complaint


def test_a_file_of_engine_tests_without_one_is_told() -> None:
    (complaint,) = places({"test_timers.py": '"""To come."""\n'})
    assert complaint == "tests/unit/engine/test_timers.py: there is no test in it."
