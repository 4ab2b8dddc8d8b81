"""Settings in words: complete, and true when read back."""

import tomllib
from pathlib import Path

import pytest

from penstock.config.describe import as_toml
from penstock.config.group import SettingsGroup, explanations
from penstock.config.load import load_settings
from penstock.config.mistakes import settings_of
from penstock.config.settings import Settings
from penstock.engine.values.declared_limits import ClientLimits


def test_the_printed_file_read_back_gives_the_same_settings(tmp_path: Path) -> None:
    environ = {
        "PENSTOCK_LISTENER__BIND": "[::1]:2883",
        "PENSTOCK_DURABILITY__DATA_DIR": 'a "quoted" \\ place',
        "PENSTOCK_STREAM__STREAMS": '[{"name": "a", "topic_filters": ["ü/#"]},'
        ' {"name": "b", "topic_filters": ["x", "y"]}]',
    }
    settings = load_settings(environ=environ)
    path = tmp_path / "printed.toml"
    path.write_text(as_toml(settings), encoding="utf-8")
    assert load_settings(path, environ={}) == settings


def test_the_printed_file_has_every_setting() -> None:
    printed = tomllib.loads(as_toml(Settings()))
    for group in Settings.model_fields:
        assert set(printed[group]) == set(settings_of(group))


def test_every_setting_is_explained() -> None:
    for group in Settings.model_fields:
        texts = explanations(type(getattr(Settings(), group)))
        for name in settings_of(group):
            assert texts[name], f"{group}.{name}"


def test_settings_need_no_source_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation may have compiled files only; explanations are missing there."""

    def without_source(_kind: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", without_source)

    class Limits(ClientLimits, SettingsGroup):
        pass

    assert Limits().max_inflight == 32
    assert explanations(Limits) == {}
