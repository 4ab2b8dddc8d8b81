"""What the composition root hands on: every limit of a zone reaches the engine."""

from pathlib import Path
from typing import Any

import pytest

from penstock.app import composing
from penstock.app.composing import (
    check_admin,
    check_opentelemetry,
    engine_limits,
    make_engine,
    prepared_sessions,
)
from penstock.config.admin import Admin
from penstock.config.limits import BROKER_LIMITS, Limits, Memory
from penstock.config.load import load_settings
from penstock.config.opentelemetry import OpenTelemetry
from penstock.config.settings import Settings
from penstock.engine.access.authenticate import Authenticate
from penstock.engine.batch.commit import Commit
from penstock.engine.values.access import Authorize
from penstock.engine.values.records import SessionRecord, SubscriptionRecord
from penstock.errors import ConfigError
from penstock.protocol.packets import Subscription
from penstock.store.memory import MemoryStore

OTHER_VALUES: dict[str, Any] = {
    "control_characters_in_topics": False,
    "mqueue_overflow": "spill",
    "mqueue_priorities": {"alarm/#": 7},
    "mqueue_store_qos0": False,
    "v31_client_id_len_max": 64,
}


def test_every_limit_of_a_zone_reaches_the_engine() -> None:
    """Seed 000: settings by zone. A limit added later is in this test by itself."""
    zone = {
        name: OTHER_VALUES.get(name, 300 if "packet_size_bytes" in name else 7)
        for name in Limits.model_fields
        if name not in BROKER_LIMITS
    }
    other = {
        "name": "services",
        "bind": "127.0.0.1:0",
        "limits": zone,
        "connect_timeout_s": 3.0,
        "write_buffer_bytes_max": 5000,
    }
    settings = load_settings(None, {"listener.others": [other]}, {})
    main, services = settings.listener.enabled_listeners()
    limits = engine_limits(settings, services)
    assert limits.name == "services"
    assert {name: getattr(limits, name) for name in zone} == zone
    assert (limits.connect_timeout_s, limits.write_buffer_bytes_max) == (3.0, 5000)
    for name in Limits.model_fields:
        assert getattr(engine_limits(settings, main), name) == getattr(Settings().limits, name)


def test_every_bound_on_memory_reaches_the_engine() -> None:
    bounds = set(Memory.model_fields) - {"budget_bytes", "share_max"}
    overrides = {f"memory.{name}": number for number, name in enumerate(sorted(bounds), 1)}
    settings = load_settings(None, overrides, {})
    limits = engine_limits(settings, settings.listener)
    assert {f"memory.{name}": getattr(limits, name) for name in bounds} == overrides


def test_the_share_of_one_user_reaches_the_engine() -> None:
    overrides = {"memory.share_max": 0.5, "limits.sessions_per_user_max": 9}
    settings = load_settings(None, overrides, {})
    limits = engine_limits(settings, settings.listener)
    assert (limits.share_max, limits.sessions_per_user_max) == (0.5, 9)


def test_the_bounds_on_producers_reach_the_engine() -> None:
    overrides = {
        "durability.producers_max": 7,
        "durability.producer_expiry_s": 8.0,
        "durability.producers_per_user_max": 9,
    }
    settings = load_settings(None, overrides, {})
    limits = engine_limits(settings, settings.listener)
    assert (limits.producers_max, limits.producer_expiry_s) == (7, 8.0)
    assert limits.producers_per_user_max == 9


def test_a_mistake_of_the_opentelemetry_process_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nothing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'opentelemetry'")

    monkeypatch.setattr(composing, "find_spec", nothing)
    with pytest.raises(ConfigError, match=r"pip install \"penstock\[otel\]\""):
        check_opentelemetry(OpenTelemetry())
    monkeypatch.setattr(composing, "find_spec", lambda _: object())
    check_opentelemetry(OpenTelemetry())
    headers = tmp_path / "headers"
    headers.write_text("secret\n")
    with pytest.raises(ConfigError, match="is no header"):
        check_opentelemetry(OpenTelemetry(headers_file=str(headers)))


def test_a_mistake_of_the_admin_process_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(composing, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install \"penstock\[admin\]\""):
        check_admin(Admin())
    monkeypatch.setattr(composing, "find_spec", lambda _: object())
    check_admin(Admin())
    tokens = tmp_path / "tokens"
    tokens.write_text("too-short\n")
    with pytest.raises(ConfigError, match="is no token"):
        check_admin(Admin(token_file=str(tokens)))
    tokens.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="has no token in it"):
        check_admin(Admin(token_file=str(tokens)))


def _store_of(client_id: str) -> MemoryStore:
    """A store with one session, which has one subscription."""
    store = MemoryStore("epoch")
    commit = Commit(0)
    commit.sessions = [SessionRecord(client_id, 1, 100, 5)]
    commit.subscriptions = [SubscriptionRecord(1, "a/+", Subscription("a/+"))]
    store.commit(commit)
    return store


def test_prepared_sessions_are_taken_and_others_are_not() -> None:
    """A standby that missed a change starts as from any store, and no subscription is lost."""
    settings = Settings()
    store = _store_of("c")
    whole = store.recover()
    for missed in (False, True):
        prepared = prepared_sessions(settings)
        if not missed:
            prepared.put_session(whole.sessions[0])
            prepared.put_subscription(whole.subscriptions[0])
        server, _ = make_engine(settings, store, Authenticate(), Authorize(), prepared)
        assert (server.router is prepared.router) == (not missed)
        assert [one.session.client_id for one in server.router.trie.match("a/b").sessions] == ["c"]
        assert server.router.subscription_count == 1
