"""Sequence diagrams: the drawing that the module's docstring shows, and what a picture may have."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.sequence_diagram import as_svg, as_text
from penstock.control.story import Step

STEPS = [
    Step("press", "Penstock", "PUBLISH QoS 1", 749_000),
    Step("Penstock", "Penstock", "on disk"),
    Step("Penstock", "slow", "queued"),
    Step("slow", "Penstock", "acknowledged"),
    Step("Penstock", "slow", "dropped", is_lost=True),
    Step("slow", "Penstock", "lost", is_lost=True),
    Step("press", "slow", "over", is_lost=True),
]
NAMES = st.text(max_size=40)
ANY_STEPS = st.lists(
    st.builds(Step, NAMES, NAMES, st.text(max_size=60), st.none() | st.just(1), st.booleans()),
    min_size=1,
    max_size=8,
)


def test_the_drawing() -> None:
    assert as_text(STEPS) == [
        "press             Penstock             slow",
        "  │                   │                  │",
        "  ├─ PUBLISH QoS 1 ──▶│                  │   00:00:00.749",
        "  │                   │ on disk",
        "  │                   ├─ queued ────────▶│",
        "  │                   │◀── acknowledged ─┤",
        "  │                   ├─ dropped ──────✗ │",
        "  │                   │ ✗───────── lost ─┤",
        "  ├─ over ─────────────────────────────✗ │",
    ]


def test_a_lost_step_ends_beside_its_receiver_also_beyond_another_one() -> None:
    lost = [Step("broker", name, "dropped", is_lost=True) for name in ("fast", "slow")]
    assert as_text(lost)[2:] == [
        "   ├─ dropped ─✗ │     │",
        "   ├─ dropped ───────✗ │",
    ]


@given(ANY_STEPS)
def test_any_names_and_texts_give_a_line_for_each_step(steps: list[Step]) -> None:
    assert len(as_text(steps)) == len(steps) + 2


@given(ANY_STEPS)
def test_any_names_and_texts_give_a_picture_that_can_be_read(steps: list[Step]) -> None:
    root = ET.fromstring(as_svg(steps, "title"))
    assert root.tag.endswith("svg")
