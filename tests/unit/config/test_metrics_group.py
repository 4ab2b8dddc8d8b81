"""The settings of client groups: each has a name of its own, and selects somebody."""

import pytest
from pydantic import ValidationError

from penstock.config.metrics import GROUPS_MAX, ClientGroupSettings, Metrics
from penstock.config.settings import Settings


def test_a_group_has_a_condition_and_a_name_of_its_own() -> None:
    press = ClientGroupSettings(name="presses", client="press-*")
    assert Metrics(client_groups=(press,)).client_groups == (press,)
    with pytest.raises(ValidationError, match="has no condition"):
        ClientGroupSettings(name="all")
    with pytest.raises(ValidationError, match="take another name"):
        ClientGroupSettings(name="other", client="*")
    with pytest.raises(ValidationError, match="twice"):
        Metrics(client_groups=(press, press))
    with pytest.raises(ValidationError, match="at most 256"):
        ClientGroupSettings(name="long", client="*" * 257)


def test_groups_are_bounded() -> None:
    groups = tuple(
        ClientGroupSettings(name=f"g{number}", user="u") for number in range(GROUPS_MAX + 1)
    )
    with pytest.raises(ValidationError, match="at most 64"):
        Metrics(client_groups=groups)


def test_a_group_names_a_listener_that_is_there() -> None:
    main = Metrics(client_groups=(ClientGroupSettings(name="a", listener="main"),))
    assert Settings(metrics=main).metrics == main
    away = Metrics(client_groups=(ClientGroupSettings(name="a", listener="inner"),))
    with pytest.raises(ValidationError, match="the listeners are main"):
        Settings(metrics=away)
