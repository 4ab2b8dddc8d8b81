"""What is written as TOML is read back by Python's own reader, whatever text is in it."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.config.describe import as_toml
from penstock.config.load import load_settings
from penstock.config.toml_values import toml_value

TEXT = st.text(st.characters(codec="utf-8"))


@given(TEXT)
@example("\x7f")
@example("\x00\x1b\t\n\r\\\"'")
@example("\u2028\U0001f600")
def test_any_text_is_read_back_as_a_value_and_as_a_key(text: str) -> None:
    written = f"{toml_value(text)} = {toml_value(text)}"
    assert tomllib.loads(written) == {text: text}


@given(st.lists(TEXT), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())
def test_lists_numbers_and_truth_are_read_back(
    texts: list[str], number: int, fraction: float, truth: bool
) -> None:
    values = [toml_value(value) for value in (texts, number, truth)]
    assert tomllib.loads(f"x = [{', '.join(values)}]") == {"x": [texts, number, truth]}
    if abs(fraction) != float("inf"):
        assert tomllib.loads(f"x = {toml_value(fraction)}") == {"x": fraction}


@pytest.mark.parametrize("character", ["\x7f", "\x1f", "\U0001f600", "\u2028", '"', "\\"])
def test_settings_with_any_character_are_printed_and_read_back(
    character: str, tmp_path: Path
) -> None:
    topic = f"plant/{character}"
    overrides: dict[str, object] = {
        "durability.data_dir": f"data-{character}",
        "limits.mqueue_priorities": {topic: 3},
        "stream.streams": [{"name": "s", "topic_filters": [topic]}],
    }
    settings = load_settings(None, overrides, {})
    path = tmp_path / "printed.toml"
    path.write_text(as_toml(settings), encoding="utf-8")
    assert load_settings(path, {}, {}) == settings


def test_a_setting_that_is_null_in_the_environment_is_left_out(tmp_path: Path) -> None:
    environ = {
        "PENSTOCK_STREAM__STREAMS": '[{"name": "s", "topic_filters": ["#"], "retention_s": null}]'
    }
    settings = load_settings(None, {}, environ)
    path = tmp_path / "printed.toml"
    path.write_text(as_toml(settings), encoding="utf-8")
    assert load_settings(path, {}, {}) == settings
