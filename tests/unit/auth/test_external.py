"""Users of other methods: whose rules hold."""

from penstock.auth.acl import DENY, WRITE, AccessList, Rule
from penstock.auth.external import AuthorizeByService, FirstOf
from penstock.auth.files import UserFiles
from penstock.auth.passwords import Users, password_line
from penstock.engine.access.access import Credentials
from penstock.protocol import reasons

OWN = (Rule(WRITE, "own/%c"), Rule(DENY, "own/bad"))


def test_rules_of_an_answer_are_the_clients_own() -> None:
    files = UserFiles(None, AccessList())
    permissions = AuthorizeByService(lambda: files, OWN).permissions("dave", "bad")
    assert permissions is not None
    assert not permissions.may_publish("own/bad")
    everything = UserFiles(None, None)
    nothing = AuthorizeByService(lambda: everything, ()).permissions("dave", "c")
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


def test_where_no_method_answers_nobody_is_let_in() -> None:
    nobody = FirstOf([])
    credentials = Credentials("c", "dave", b"x")
    assert not nobody.concerns(credentials)
    assert nobody.check(credentials).reason_code == reasons.NOT_AUTHORIZED
