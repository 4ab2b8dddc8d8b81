"""Who a client is, found out in threads: files read again meanwhile, and what it costs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final, final

import pytest
from argon2 import PasswordHasher

from penstock.auth import scram
from penstock.auth.acl import WRITE, LoginRules, Rule
from penstock.auth.external import Answer
from penstock.auth.files import UserFiles
from penstock.auth.login_queue import LoginQueueOptions
from penstock.auth.passwords import Users
from penstock.config.access import Access
from penstock.engine.values.access import CONTINUE, FAILURE, SUCCESS, AuthResult, Credentials, Step
from penstock.engine.wire.link import Link, Turn
from penstock.protocol import reasons
from penstock.services.authentication import NICENESS, Authentication
from penstock.services.guarded_exchange import GuardedExchange
from penstock.services.login_checks import CheckPool, LoginCheck
from penstock.services.login_guard import LoginGuard
from tests.support.deadline import DEADLINE_S, until
from tests.unit.auth.test_scram import FINAL, FIRST
from tests.unit.auth.test_scram import exchange as rfc_exchange

HERE: Final = "192.0.2.1:40000"
CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
SHARED: Final = Access(failures_burst=0, failure_delay_s=3600.0, failure_delay_s_max=3600.0)


def access(password: str = "right") -> UserFiles:
    """The files of a broker with two users, of whom Alice has this password."""
    return UserFiles(Users({"alice": CHEAP.hash(password), "bob": CHEAP.hash("bob's")}), None)


@final
class Method:
    """Knows everybody but those of the password file, and answers what it is told to."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def concerns(self, credentials: Credentials) -> bool:
        return credentials.username == "outside"

    def check(self, credentials: Credentials) -> Answer:
        del credentials
        return self._answer

    def close(self) -> None:
        """There is nothing to end."""


@final
class Logins:
    """Clients of one broker's authentication.

    Args:
        settings: of it.
        method: beside the password file.
    """

    def __init__(self, settings: Access | None = None, method: Method | None = None) -> None:
        self.authentication = Authentication(access(), settings or Access(), b"s" * 32, method)
        self.verdicts: asyncio.Queue[AuthResult] = asyncio.Queue()
        self.authentication.report_to(
            lambda _, verdict: self.verdicts.put_nowait(verdict), lambda *_: None
        )

    def judge(self, name: str, password: str, link: Link | None = None) -> AuthResult | None:
        """What is known at once of a client that shows this."""
        credentials = Credentials("c", name, password.encode(), True, HERE)
        return self.authentication.check_credentials(credentials, link or Link(Turn()))

    async def verdict(self) -> int:
        """The reason code of the next verdict that came later."""
        async with asyncio.timeout(DEADLINE_S):
            return (await self.verdicts.get()).reason_code

    def told(self, name: str) -> object:
        """What ``$SYS`` says."""
        return dict(self.authentication.status())[f"logins/{name}"]


@pytest.fixture
async def logins() -> AsyncIterator[Logins]:
    made = Logins()
    yield made
    made.authentication.close()


@pytest.fixture
async def shared() -> AsyncIterator[Logins]:
    """Logins of which one failure makes all others of its address too late."""
    made = Logins(SHARED)
    yield made
    made.authentication.close()


async def test_a_password_that_was_changed_while_it_was_checked_is_wrong(logins: Logins) -> None:
    assert logins.judge("alice", "right") is None
    assert logins.authentication.reload(access("other")) == {"alice", "bob"}
    assert await logins.verdict() == reasons.BAD_USER_NAME_OR_PASSWORD


async def test_a_password_that_was_right_is_checked_again_when_files_were_read(
    logins: Logins,
) -> None:
    assert logins.judge("alice", "right") is None
    assert await logins.verdict() == reasons.SUCCESS
    known = logins.judge("alice", "right")
    assert known is not None
    assert (known.reason_code, known.username) == (reasons.SUCCESS, "alice")
    logins.authentication.reload(access("other"))
    assert logins.judge("alice", "right") is None
    assert await logins.verdict() == reasons.BAD_USER_NAME_OR_PASSWORD


async def test_a_user_who_was_right_pays_for_its_own_mistakes_alone(shared: Logins) -> None:
    assert shared.judge("alice", "right") is None
    assert await shared.verdict() == reasons.SUCCESS
    assert shared.judge("bob", "wrong") is None
    assert await shared.verdict() == reasons.BAD_USER_NAME_OR_PASSWORD
    assert shared.judge("alice", "mistyped") is None
    assert await shared.verdict() == reasons.BAD_USER_NAME_OR_PASSWORD
    refused = shared.judge("alice", "mistyped again")
    assert refused is not None
    assert refused.reason_code == reasons.CONNECTION_RATE_EXCEEDED


async def test_trust_ends_when_files_are_read_again(shared: Logins) -> None:
    assert shared.judge("alice", "right") is None
    assert await shared.verdict() == reasons.SUCCESS
    assert shared.judge("bob", "wrong") is None
    assert await shared.verdict() == reasons.BAD_USER_NAME_OR_PASSWORD
    shared.authentication.reload(access())
    refused = shared.judge("alice", "right")
    assert refused is not None
    assert refused.reason_code == reasons.CONNECTION_RATE_EXCEEDED


async def test_one_check_for_many_costs_as_many_failures(logins: Logins) -> None:
    for _ in range(3):
        assert logins.judge("alice", "wrong") is None
    assert logins.told("waiting") == 3
    codes = [await logins.verdict() for _ in range(3)]
    assert codes == [reasons.BAD_USER_NAME_OR_PASSWORD] * 3
    told = [logins.told(name) for name in ("checked", "failed", "waiting")]
    assert told == [1, 3, 0]


async def test_for_who_has_left_nothing_is_checked(logins: Logins) -> None:
    gone = Link(Turn())
    gone.is_closed = True
    assert logins.judge("bob", "bob's", gone) is None
    await until("nobody to wait", lambda: logins.told("waiting") == 0)
    assert logins.told("checked") == 0


async def test_an_operator_is_answered_when_the_broker_stops() -> None:
    """A stop waits for requests of operators, and nothing else ends one that waits its turn."""
    logins = Logins(Access(failures_burst=0, failure_delay_s=4.0))
    operator = Credentials("", "alice", b"wrong", False, HERE)
    authentication = logins.authentication
    async with asyncio.timeout(DEADLINE_S):
        first = await authentication.verdict(operator)
        assert first.reason_code == reasons.BAD_USER_NAME_OR_PASSWORD
        waiting = asyncio.create_task(authentication.verdict(operator))
        await until("the second to wait", lambda: logins.told("waiting") == 1)
        authentication.close()
        assert (await waiting).reason_code == reasons.SERVER_UNAVAILABLE
        late = await authentication.verdict(operator)
        assert late.reason_code == reasons.SERVER_UNAVAILABLE


async def test_a_method_that_cannot_say_counts_no_failure() -> None:
    logins = Logins(SHARED, Method(Answer(reasons.SERVER_UNAVAILABLE)))
    for _ in range(2):
        assert logins.judge("outside", "password") is None
        assert await logins.verdict() == reasons.SERVER_UNAVAILABLE
    assert logins.told("failed") == 0
    logins.authentication.close()


async def test_rules_that_came_with_an_answer_outlast_the_files() -> None:
    rules = LoginRules((Rule(WRITE, "own/%c"),))
    logins = Logins(method=Method(Answer(reasons.SUCCESS, "outside", rules)))
    assert logins.judge("outside", "password") is None
    async with asyncio.timeout(DEADLINE_S):
        verdict = await logins.verdicts.get()
    assert verdict.authorize is not None
    logins.authentication.reload(access())
    permissions = verdict.authorize.permissions("outside", "c")
    assert permissions is not None
    assert permissions.may_publish("own/c")
    assert not permissions.may_publish("own/other")
    logins.authentication.close()


async def test_guesses_by_scram_count_by_name_and_nonsense_counts_for_nobody() -> None:
    """From an address that many share, a name waits once it is known whose it is."""
    logins = Logins(SHARED)
    users = {"carol": scram.line_of(scram.keys_for("carol's", 4096))}
    logins.authentication.reload(UserFiles(Users(users), None))
    credentials = Credentials("c", None, None, True, "127.0.0.1:40000")

    def step(*messages: bytes) -> Step:
        exchange = logins.authentication.begin_exchange(scram.METHOD, credentials)
        assert exchange is not None
        return [exchange.step(message) for message in messages][-1]

    assert step(b"nonsense").outcome == FAILURE
    assert logins.told("failed") == 0
    assert step(b"n,,n=carol,r=abc").outcome == CONTINUE
    assert step(b"n,,n=carol,r=abc", b"c=biws,r=abc,p=AAAA").outcome == FAILURE
    assert logins.told("failed") == 1
    refused = step(b"n,,n=carol,r=abc")
    assert (refused.outcome, refused.reason_code) == (FAILURE, reasons.CONNECTION_RATE_EXCEEDED)
    assert step(b"n,,n=other,r=abc").outcome == CONTINUE
    logins.authentication.close()


def test_an_address_that_was_right_by_scram_does_not_wait_for_what_others_guess() -> None:
    here, elsewhere = "127.0.0.1:1", "192.0.2.9:1"
    options = LoginQueueOptions(burst=0, delay_s=3600.0, delay_s_max=3600.0)
    guard: LoginGuard[LoginCheck] = LoginGuard(options, 10, ("127.0.0.0/8",))
    run = GuardedExchange(rfc_exchange(), guard, here)
    assert [run.step(said).outcome for said in (FIRST, FINAL)] == [CONTINUE, SUCCESS]
    guard.count_failure(elsewhere, "user")
    assert guard.may_try(here, "user")
    assert not guard.may_try(elsewhere, "user")


async def test_threads_that_check_let_the_loop_go_first() -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[int] = loop.create_future()
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work() -> Answer:
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        loop.call_soon_threadsafe(over.set_result, niceness)
        return Answer(reasons.SUCCESS)

    guard: LoginGuard[LoginCheck] = LoginGuard(LoginQueueOptions(), 10, ())
    checks = CheckPool("checks", guard, 10, 1, before + NICENESS, lambda *_: None, lambda _: None)
    credentials = Credentials("c", "alice", b"right", True, HERE)
    assert checks.submit(LoginCheck(("c", b""), credentials, work, None), Link(Turn())) is None
    async with asyncio.timeout(DEADLINE_S):
        assert await over == min(19, before + NICENESS)
    checks.close()


async def test_a_check_that_ends_after_the_pool_is_closed_begins_no_other_one() -> None:
    """The check that waited behind it was started in threads that are shut down: a traceback."""
    loop = asyncio.get_running_loop()
    faults: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    begun, may_end, answered = threading.Event(), threading.Event(), asyncio.Event()

    def work() -> Answer:
        begun.set()
        may_end.wait(DEADLINE_S)
        return Answer(reasons.SUCCESS)

    guard: LoginGuard[LoginCheck] = LoginGuard(LoginQueueOptions(), 10, ())
    checks = CheckPool("checks", guard, 10, 1, 0, lambda *_: answered.set(), lambda _: None)
    credentials = Credentials("c", "alice", b"right", True, HERE)
    for name in ("under way", "behind it"):
        assert checks.submit(LoginCheck((name, b""), credentials, work, None), Link(Turn())) is None
    assert await asyncio.to_thread(begun.wait, DEADLINE_S)
    checks.close()
    may_end.set()
    async with asyncio.timeout(DEADLINE_S):
        await answered.wait()
    await asyncio.sleep(0)
    assert (checks.waiting, faults) == (1, [])
    late = checks.submit(LoginCheck(("late", b""), credentials, work, None), Link(Turn()))
    assert late is not None
    assert late.reason_code == reasons.SERVER_UNAVAILABLE
