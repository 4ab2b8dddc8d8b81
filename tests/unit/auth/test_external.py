"""Users of other methods: whose rules hold, and for how long they are kept."""

from penstock.auth.acl import DENY, WRITE, AccessList, Rule
from penstock.auth.external import CLIENTS_MAX, AuthorizeByService, ExternalAclCache, FirstOf
from penstock.auth.files import UserFiles
from penstock.auth.passwords import Users, password_line
from penstock.engine.access.access import Credentials
from penstock.protocol import reasons

OWN = (Rule(WRITE, "own/%c"), Rule(DENY, "own/bad"))


def test_rules_that_were_lost_allow_nothing() -> None:
    """Whoever is forgotten for want of room must not be let do everything."""
    granted = ExternalAclCache()
    for number in range(CLIENTS_MAX + 1):
        granted.put("dave", str(number), OWN)
    assert not granted.knows("dave", "0")
    lost = granted.permissions("dave", "0", None)
    assert lost is not None
    assert not lost.may_publish("own/0")
    kept = granted.permissions("dave", "1", None)
    assert kept is not None
    assert kept.may_publish("own/1")


def test_rules_of_an_answer_are_the_clients_own() -> None:
    permissions = AuthorizeByService(ExternalAclCache(), OWN, AccessList()).permissions(
        "dave", "bad"
    )
    assert permissions is not None
    assert not permissions.may_publish("own/bad")
    nothing = AuthorizeByService(ExternalAclCache(), (), None).permissions("dave", "c")
    assert nothing is not None
    assert not nothing.may_publish("own/c")
    assert AuthorizeByService(ExternalAclCache(), None, None).permissions("dave", "c") is None


def test_a_user_of_the_password_file_has_the_rules_of_the_files() -> None:
    """Also one whom a method let in before its name came into the file."""
    access = UserFiles(Users({"dave": password_line("secret")}), None)
    access.external_acl_cache.put("dave", "c", OWN)
    assert access.permissions("dave", "c") is None
    access.external_acl_cache.put("erin", "c", OWN)
    assert access.permissions("erin", "c") is not None


def test_where_no_method_answers_nobody_is_let_in() -> None:
    nobody = FirstOf([])
    credentials = Credentials("c", "dave", b"x")
    assert not nobody.concerns(credentials)
    assert nobody.check(credentials).reason_code == reasons.NOT_AUTHORIZED
