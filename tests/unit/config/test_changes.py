"""What a reload makes of two sets of settings."""

from typing import Any

import pytest

from penstock.config.changes import CHANGED_UNSEEN, NOT_SET, compare
from penstock.config.group import effect_of
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.engine.values.change_effects import AT_ONCE, NEW_CONNECTIONS, RESTART, TABLE_JOBS
from penstock.errors import ConfigError


def settings(**given: Any) -> Settings:
    """Settings of ``group__name=value``."""
    return load_settings(
        None, {name.replace("__", "."): value for name, value in given.items()}, {}
    )


def changes(running: Settings, read: Settings) -> list[tuple[str, str, str, object]]:
    return [(one.setting, one.old, one.new, one.effect) for one in compare(running, read).changes]


def test_the_same_settings_change_nothing() -> None:
    same = settings(log__level="debug", listener__others=[{"name": "a", "bind": "127.0.0.1:1"}])
    found = compare(same, same)
    assert found.changes == ()
    assert found.merged == same


def test_each_change_says_when_it_counts_and_only_some_are_used() -> None:
    read = settings(
        log__level="debug",
        listener__bind="127.0.0.1:1",
        limits__max_inflight=7,
        tables__dir="elsewhere",
    )
    assert changes(Settings(), read) == [
        ("listener.bind", '"127.0.0.1:1883"', '"127.0.0.1:1"', RESTART),
        ("limits.max_inflight", "32", "7", NEW_CONNECTIONS),
        ("tables.dir", '"tables"', '"elsewhere"', TABLE_JOBS),
        ("log.level", '"info"', '"debug"', AT_ONCE),
    ]
    used = compare(Settings(), read).merged
    assert (used.log.level, used.limits.max_inflight) == ("debug", 7)
    assert used.listener.bind == Settings().listener.bind
    assert used.tables == Settings().tables


def test_a_change_that_waits_for_a_restart_is_told_each_time() -> None:
    read = settings(sharing__strategy="random")
    used = compare(Settings(), read).merged
    assert [change.setting for change in compare(used, read).changes] == ["sharing.strategy"]


def test_listeners_are_compared_by_name() -> None:
    running = settings(
        listener__others=[
            {"name": "a", "bind": "127.0.0.1:1", "limits": {"max_inflight": 32}},
            {"name": "b", "bind": "127.0.0.1:2", "max_connections": 5},
        ]
    )
    read = settings(
        listener__others=[
            {"name": "c", "bind": "127.0.0.1:3"},
            {"name": "b", "bind": "127.0.0.1:2", "max_connections": 6, "mode": "600"},
        ]
    )
    assert changes(running, read) == [
        ("listener.others.a", "open", "closed", RESTART),
        ("listener.others.b.max_connections", "5", "6", NEW_CONNECTIONS),
        ("listener.others.b.mode", '"660"', '"600"', RESTART),
        ("listener.others.c", "closed", "open", RESTART),
    ]
    a, b = compare(running, read).merged.listener.others
    assert (a.name, a.limits.max_inflight) == ("a", 32)
    assert (b.name, b.max_connections, b.mode) == ("b", 6, "660")


def test_a_limit_of_a_listener_that_is_gone_is_the_brokers_again() -> None:
    """It has the value of the default, and yet another meaning."""
    running = settings(listener__limits={"max_inflight": 32})
    assert changes(running, Settings()) == [
        ("listener.limits.max_inflight", "32", NOT_SET, NEW_CONNECTIONS)
    ]
    used = compare(running, settings(limits__max_inflight=9)).merged
    assert used.limits_of(used.listener).max_inflight == 9


def test_secrets_are_not_told() -> None:
    def bridge(password: str) -> Settings:
        remote = {"name": "a", "addresses": ["mqtt://x"], "forwards": [{"topic_filters": ["#"]}]}
        return settings(bridge__remotes=[{**remote, "password": password}])

    ((_, old, new, _),) = changes(bridge("geheim"), bridge("noch geheimer"))
    assert "geheim" not in old
    assert new == CHANGED_UNSEEN


def test_a_mixture_that_would_be_refused_at_a_start_is_refused() -> None:
    """The file moves to a private address and gives up its users; the open address stays."""
    running = settings(listener__bind="0.0.0.0:1883", access__password_file="users")
    with pytest.raises(ConfigError, match=r"listener\.bind cannot change before"):
        compare(running, Settings())


def test_every_setting_of_every_group_has_an_effect() -> None:
    """Where nothing is declared, it is a restart: what nobody thought of is not promised."""
    for group, field in Settings.model_fields.items():
        kind: Any = field.annotation
        for name in kind.model_fields:
            assert effect_of(kind, name).name in ("reload", "new", "restart", "job", "by part"), (
                f"{group}.{name}"
            )
