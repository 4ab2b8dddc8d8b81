"""The token file of the admin process: names, roles, and what is no line of it."""

from pathlib import Path

import pytest

from penstock.auth.admin_tokens import (
    ADMIN,
    OPERATOR,
    ROLES,
    VIEWER,
    AdminGrant,
    AdminTokens,
    read_admin_grants,
)
from penstock.errors import ConfigError

TOKEN = "0123456789abcdef"


def read(tmp_path: Path, text: str) -> list[AdminGrant]:
    file = tmp_path / "tokens"
    file.write_text(text)
    return read_admin_grants(file)


def test_a_line_has_a_name_a_token_and_a_role(tmp_path: Path) -> None:
    text = f"# people\n\nalice:{TOKEN}A admin\nbob:{TOKEN}B operator\ncarl:{TOKEN}C\n{TOKEN}D\n"
    alice, bob, carl, nameless = read(tmp_path, text)
    assert (alice.name, alice.role, alice.token) == ("alice", ADMIN, f"{TOKEN}A")
    assert (bob.role, carl.role, nameless.role) == (OPERATOR, VIEWER, VIEWER)
    assert nameless.name.startswith("token-")
    assert TOKEN not in nameless.name
    assert TOKEN not in repr(alice)


def test_a_role_may_what_those_below_it_may() -> None:
    allowed = {
        role: [other for other in ROLES if AdminGrant("a", role).may_act_as(other)]
        for role in ROLES
    }
    assert allowed == {
        VIEWER: [VIEWER],
        OPERATOR: [VIEWER, OPERATOR],
        ADMIN: [VIEWER, OPERATOR, ADMIN],
    }


def test_only_known_tokens_have_a_role_and_none_is_kept() -> None:
    tokens = AdminTokens([AdminGrant("alice", ADMIN, TOKEN)])
    assert tokens.grant(TOKEN) == AdminGrant("alice", ADMIN)
    assert tokens.grant(TOKEN[:-1]) is None
    assert tokens.grant("") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no token in it"),
        ("short viewer\n", "is no token"),
        (f"a b:{TOKEN}\n", "is no token"),
        (f"{TOKEN} root\n", "a role is one of viewer, operator, admin"),
        (f"{TOKEN} viewer admin\n", "no role"),
    ],
)
def test_a_mistake_is_a_sentence_without_the_token(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(tmp_path, text)
    assert TOKEN not in str(caught.value)
