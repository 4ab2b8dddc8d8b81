"""What a line of the token file grants."""

from pathlib import Path

import pytest

from penstock.auth.tokens import (
    LEASE,
    READ,
    ROLES,
    Grant,
    Tokens,
    read_grants,
)
from penstock.errors import ConfigError

TOKEN = "0123456789abcdef"


def grants(tmp_path: Path, text: str) -> list[Grant]:
    path = tmp_path / "tokens"
    path.write_text(text)
    return read_grants(path)


def test_a_token_alone_may_do_everything(tmp_path: Path) -> None:
    (grant,) = grants(tmp_path, f"{TOKEN}\n")
    assert (grant.owner, grant.roles, grant.topic_filters) == ("", frozenset(ROLES), ())


def test_roles_filters_and_a_name(tmp_path: Path) -> None:
    named, unnamed = grants(
        tmp_path, f"plant:{TOKEN} read,lease plant/# +/alarms\n{TOKEN}0 publish\n"
    )
    assert (named.owner, named.roles) == ("plant", frozenset({READ, LEASE}))
    assert named.topic_filters == ("plant/#", "+/alarms")
    assert unnamed.owner.startswith("token-")
    assert TOKEN not in unnamed.owner
    assert TOKEN not in repr(named)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{TOKEN} write", "no role; roles are read, lease, publish"),
        (f"{TOKEN} plant/#", "no role"),
        (f"{TOKEN} read,", "no role"),
        (f"{TOKEN} read a/#/b", "'a/#/b' is not an MQTT topic filter"),
        (f":{TOKEN}", "is no token"),
        (f"{TOKEN}%", "is no token"),
        (f"{TOKEN}=a", "is no token"),
        (f"{TOKEN * 256}a", "is no token"),
        (f"/x:{TOKEN}", "is no token"),
        ("name:short read", "is no token"),
    ],
)
def test_a_mistake_is_a_sentence_without_the_token(
    tmp_path: Path, line: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        grants(tmp_path, line)
    assert TOKEN not in str(refused.value)


def test_a_grant_does_not_hold_its_token(tmp_path: Path) -> None:
    tokens = Tokens(grants(tmp_path, f"plant:{TOKEN} read"))
    known = tokens.grant(TOKEN)
    assert known is not None
    assert (known.owner, known.token) == ("plant", "")
    assert tokens.grant(TOKEN + "0") is None
