"""Requests made of queries and of JSON: the types of the control socket decide."""

import pytest

from penstock.admin.parameters import BadRequest, from_json, from_query
from penstock.control.admin_requests import Kick, ListSessions, SessionFilter, ShowSession


def test_conditions_stand_beside_the_other_parameters() -> None:
    query = [("client", "press-*"), ("connected", "true"), ("older_than_s", "1.5"), ("limit", "7")]
    made = from_query(ListSessions, query)
    assert made == ListSessions(SessionFilter("press-*", None, None, True, 1.5), limit=7)


def test_a_name_may_have_any_characters() -> None:
    assert from_query(ShowSession, [("client_id", "a/b c")]).client_id == "a/b c"


def test_json_is_as_strict_as_the_type() -> None:
    assert from_json(Kick, b'{"filter": {"client": "a"}}') == Kick(SessionFilter("a"))
    for body in (
        b'{"filter": {"client": 1}}',
        b'{"filter": {"clients": "a"}}',
        b'{"filter": {}, "only_count": "yes"}',
        b'{"filter": {}, "do": "kick"}',
        b'{"filter": {}, "by": "somebody else"}',
        b"",
    ):
        with pytest.raises(BadRequest):
            from_json(Kick, body)
