"""Users of other methods: whose rules hold."""

import sys
import tracemalloc
from types import FrameType
from typing import Any

import pytest

from penstock.auth import acl
from penstock.auth.acl import DENY, WRITE, AccessList, LoginRules, Rule
from penstock.auth.external import AuthorizeByService, FirstOf
from penstock.auth.files import UserFiles
from penstock.auth.http_requests import parse_rules
from penstock.auth.passwords import Users, password_line
from penstock.engine.values.access import Credentials
from penstock.protocol import reasons

OWN = LoginRules((Rule(WRITE, "own/%c"), Rule(DENY, "own/bad")))


def test_rules_of_an_answer_are_the_clients_own() -> None:
    files = UserFiles(None, AccessList())
    permissions = AuthorizeByService(lambda: files, OWN).permissions("dave", "bad")
    assert permissions is not None
    assert not permissions.may_publish("own/bad")
    everything = UserFiles(None, None)
    nothing = AuthorizeByService(lambda: everything, LoginRules(())).permissions("dave", "c")
    assert nothing is not None
    assert not nothing.may_publish("own/c")
    assert AuthorizeByService(lambda: everything, None).permissions("dave", "c") is None


def test_a_user_of_the_password_file_has_the_rules_of_the_files() -> None:
    """Also one whom a method let in before its name came into the file."""
    access = UserFiles(Users({"dave": password_line("secret")}), None)
    authorize = AuthorizeByService(lambda: access, OWN)
    assert authorize.permissions("dave", "c") is None
    assert authorize.permissions("erin", "c") is not None


def test_a_client_of_which_no_login_is_known_may_do_nothing_where_logins_have_rules() -> None:
    """Its rules may have been narrower than those of everybody else."""
    users = Users({"dave": password_line("secret")})
    for files in UserFiles(users, None, logins_have_rules=True), UserFiles(users, None, True, True):
        assert files.permissions_of_absent("dave", "c") is None
        for username in None, "erin":
            permissions = files.permissions_of_absent(username, "c")
            assert permissions is not None
            assert not permissions.may_publish("t")
    assert UserFiles(users, None).permissions_of_absent(None, "c") is None


def test_nobody_is_let_in_where_no_method_answers() -> None:
    nobody = FirstOf([])
    credentials = Credentials("c", "dave", b"x")
    assert not nobody.concerns(credentials)
    assert nobody.check(credentials).reason_code == reasons.NOT_AUTHORIZED


def rules_of(count: int, topic: str) -> LoginRules:
    return parse_rules(
        [{"permission": "allow", "topic": topic.format(number)} for number in range(count)]
    )


@pytest.mark.parametrize("topic", ["plant/{}/#", "plant/{}/%c/#"])
def test_rules_of_a_login_take_memory_once_for_all_its_identifiers(topic: str) -> None:
    """A token with many rules filled the memory by a connection for each identifier; those with
    the client's name in them take more only while it is connected and uses them."""
    files = UserFiles(None, None)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = []
        rules = rules_of(0, topic)
        for number in range(500):
            if number % 100 == 0:
                rules = rules_of(200, topic)
            permissions = AuthorizeByService(lambda: files, rules).permissions("dave", str(number))
            assert permissions is not None
            assert permissions.may_publish(f"plant/7/{number}/x")
            permissions.clear_cache()
            found.append(permissions)
        bytes_each = (tracemalloc.get_traced_memory()[0] - before) / len(found)
    finally:
        tracemalloc.stop()
    assert bytes_each < 8192


def test_names_in_a_filter_are_replaced_without_a_look_at_each_character() -> None:
    """A filter of 30,000 characters was copied 30,000 times, on the event loop."""
    lines = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename == acl.__file__
        return count

    access = AccessList(patterns=[Rule(WRITE, "x" * 30_000 + "/%c")])
    sys.settrace(count)
    try:
        permissions = access.permissions("dave", "c")
        assert permissions.may_publish("x" * 30_000 + "/c")
    finally:
        sys.settrace(None)
    assert lines < 500


def test_an_access_list_of_a_login_is_bounded_in_characters() -> None:
    with pytest.raises(ValueError, match="more than 32768 characters"):
        parse_rules([{"permission": "allow", "topic": "x" * 1000}] * 40)
