"""Rules that came with a login are the client's own as long as its session is there."""

from __future__ import annotations

import pytest

from penstock.auth.acl import READWRITE, LoginRules, Rule
from penstock.auth.external import Answer
from penstock.auth.files import UserFiles
from penstock.auth.passwords import Users
from penstock.config.access import Access
from penstock.engine.access.authenticate import Authenticate
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.wire.link import Link, Turn
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Will
from penstock.services.authentication import Authentication
from tests.support.deadline import until
from tests.unit.engine.bench import Bench
from tests.unit.services.test_authentication import CHEAP, Method

OWN = LoginRules((Rule(READWRITE, "m/#"),))
OTHERS = 200_300


class LetIn(Authenticate):
    """Lets every client in by one verdict."""

    def __init__(self, verdict: AuthResult) -> None:
        self.verdict = verdict

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del credentials, link
        return self.verdict


async def logged_in(files: UserFiles) -> tuple[Authentication, AuthResult]:
    """The authentication of a broker, and its verdict on a user whose login has ``OWN`` rules."""
    authentication = Authentication(
        files, Access(), b"s" * 32, Method(Answer(reasons.SUCCESS, "outside", OWN))
    )
    verdicts: list[AuthResult] = []
    authentication.report_to(lambda _, verdict: verdicts.append(verdict), lambda *_: None)
    authentication.check_credentials(Credentials("a", "outside", b"x"), Link(Turn()))
    await until("the verdict", lambda: verdicts)
    authentication.close()
    return authentication, verdicts[0]


@pytest.mark.parametrize("has_password_file", [False, True])
async def test_others_that_log_in_take_no_client_its_rules(has_password_file: bool) -> None:
    """A user with a token filled a cache of rules with other client identifiers; at the next
    reload its first client might do everything, or clients of other users nothing."""
    users = Users({"alice": CHEAP.hash("right")}) if has_password_file else None
    files = UserFiles(users, None)
    authentication, verdict = await logged_in(files)
    bench = Bench(authenticate=LetIn(verdict), authorize=files)
    line, _ = bench.connect(Connect("a", 5, True, 0, username="outside"))
    authorize = verdict.authorize
    assert authorize is not None
    for number in range(OTHERS):
        authorize.permissions("outside", str(number))
    again = UserFiles(users, None)
    authentication.reload(again)
    bench.server.set_authorize(again, set(), bench.now)
    permissions = line.session.permissions
    assert permissions is not None
    assert permissions.may_publish("m/1")
    assert not permissions.may_publish("other")


@pytest.mark.parametrize("has_restarted", [False, True])
async def test_a_will_is_published_by_the_rules_of_its_login(has_restarted: bool) -> None:
    """After a start they are gone, and what they allowed at CONNECT holds."""
    files = UserFiles(Users({"alice": CHEAP.hash("right")}), None)
    _, verdict = await logged_in(files)
    bench = Bench(authenticate=LetIn(verdict), authorize=files)
    line, _ = bench.connect(Connect("a", 5, True, 0, Will("m/gone", b"x"), username="outside"))
    bench.commit()
    if has_restarted:
        bench.restart()
    else:
        line.cut()
    bench.commit()
    assert bench.store.read([0])[0].topic == "m/gone"
