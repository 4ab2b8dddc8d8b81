"""The login queue: no source and no name keeps others waiting for long; failures cost time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.auth.login_queue import (
    DELAYED_S_MAX,
    REMEMBERED_MAX,
    TRUSTED_TURNS,
    Attempt,
    FailureRecords,
    LoginQueue,
    LoginQueueOptions,
)

ATTACKER = "198.51.100.9"
HONEST = "192.0.2.1"


def shares(options: LoginQueueOptions | None = None, waiting_max: int = 1000) -> LoginQueue[str]:
    return LoginQueue(options or LoginQueueOptions(), waiting_max)


def push(queue: LoginQueue[str], source: str, name: str, now_s: float = 0.0) -> bool:
    return queue.push(source, source, name, f"{source} {name}", now_s)


def popped(queue: LoginQueue[str], now_s: float) -> Attempt[str]:
    attempt = queue.pop(now_s)
    assert attempt is not None
    return attempt


def test_a_source_that_floods_waits_its_turn() -> None:
    queue = shares()
    for number in range(400):
        assert push(queue, ATTACKER, f"guess {number}")
    assert push(queue, HONEST, "alice")
    first_two = {popped(queue, 0.0).item for _ in range(2)}
    assert f"{HONEST} alice" in first_two


def test_other_options_count_the_failures_that_were_there() -> None:
    """A reload neither forgives nor forgets."""
    queue = shares(LoginQueueOptions(burst=10, delay_s=1.0))
    for _ in range(5):
        push(queue, ATTACKER, "alice")
        attempt = popped(queue, 0.0)
        queue.count_failure(ATTACKER, "alice", 0.0)
        queue.end_check(attempt)
    assert queue.due_s(ATTACKER, "alice", 0.0) == 0.0
    queue.apply_settings(LoginQueueOptions(burst=2, delay_s=1.0, delay_s_max=60.0), 1000)
    assert queue.due_s(ATTACKER, "alice", 0.0) == 4.0  # the third failure above: 1, 2, 4
    queue.apply_settings(LoginQueueOptions(burst=10), 0)
    assert queue.due_s(ATTACKER, "alice", 0.0) == 0.0
    assert not queue.has_room(HONEST)


def test_sources_and_names_take_turns_and_none_is_last_for_ever() -> None:
    by_source, by_name = shares(), shares()
    for who in ("a", "a", "b", "b", "c", "c"):
        by_source.push(who, who, "name", who, 0.0)
        by_name.push("", "proxy", who, who, 0.0)
    for queue in (by_source, by_name):
        assert [popped(queue, 0.0).item for _ in range(6)] == ["a", "b", "c"] * 2


def test_names_take_turns_where_all_come_from_one_source() -> None:
    queue = shares()
    for _ in range(100):
        queue.push("", "proxy", "guessed", "guess", 0.0)
    queue.push("", "proxy", "alice", "alice", 0.0)
    assert "alice" in {popped(queue, 0.0).item for _ in range(2)}


def test_a_source_takes_no_more_places_than_are_free() -> None:
    queue = shares(waiting_max=100)
    taken = sum(push(queue, ATTACKER, f"guess {number}") for number in range(1000))
    assert taken == 50
    assert push(queue, HONEST, "alice")


def test_failures_above_the_burst_cost_twice_as_long_each_time_up_to_a_bound() -> None:
    records = FailureRecords(LoginQueueOptions(burst=2, delay_s=1.0, delay_s_max=5.0))
    waits = []
    for _ in range(6):
        records.count_failure("a", 0.0)
        waits.append(records.due_s("a", 0.0))
    assert waits == [0.0, 0.0, 1.0, 2.0, 4.0, 5.0]
    assert records.due_s("a", 400.0) == 400.0  # they are forgotten
    assert records.due_s("b", 0.0) == 0.0


def test_the_memory_of_sources_and_names_has_a_bound() -> None:
    """What was not seen for longest is forgotten first."""
    records = FailureRecords(LoginQueueOptions(burst=0))
    for number in range(REMEMBERED_MAX + 1):
        records.count_failure(str(number), 0.0)
    assert len(records) == REMEMBERED_MAX
    assert records.due_s("0", 0.0) == 0.0
    assert records.due_s("1", 0.0) > 0.0
    assert max(records.count_failure("1", 0.0) for _ in range(1000)) < 100


def test_logins_that_were_right_are_remembered_within_a_bound() -> None:
    queue = shares(LoginQueueOptions(burst=0))
    for number in range(REMEMBERED_MAX + 1):
        queue.trust(f"source {number}", "alice")
    for number in (0, 1):
        queue.count_failure(f"source {number}", "bob", 0.0)
    assert queue.due_s("source 0", "alice", 0.0) > 0.0
    assert queue.due_s("source 1", "alice", 0.0) == 0.0


def test_above_the_burst_one_check_runs_at_a_time() -> None:
    queue = shares(LoginQueueOptions(burst=2))
    for number in range(10):
        push(queue, ATTACKER, f"guess {number}")
    running = []
    while True:
        attempt = queue.pop(0.0)
        if attempt is None:
            break
        running.append(attempt)
    assert len(running) == 3  # the two of the burst, and the one after them
    for attempt in running:
        queue.end_check(attempt)
        queue.count_failure(attempt.source, attempt.name, 0.1)
    assert queue.pop(0.2) is None
    assert queue.pop(0.1 + 1.0) is not None
    assert queue.pop(0.1 + 1.0) is None


def test_an_attempt_that_is_not_due_in_time_is_given_up() -> None:
    queue = shares(LoginQueueOptions(burst=0, delay_s=DELAYED_S_MAX - 1.0, delay_s_max=100.0))
    queue.count_failure(ATTACKER, "a", 0.0)
    assert push(queue, ATTACKER, "b", 0.0)
    assert queue.wake_s() == pytest.approx(DELAYED_S_MAX - 1.0)
    queue.count_failure(ATTACKER, "a", 0.1)
    assert not push(queue, ATTACKER, "c", 0.1)
    assert queue.pop(DELAYED_S_MAX) is None
    assert queue.items_to_refuse == [f"{ATTACKER} b"]
    assert queue.waiting == 0


@pytest.mark.parametrize(("failures", "banned"), [(4, False), (5, True)])
def test_a_source_is_to_be_banned_after_so_many_failures(failures: int, banned: bool) -> None:
    queue = shares(LoginQueueOptions(ban_failures=5, within_s=10.0))
    results = [queue.count_failure(ATTACKER, f"{n}", 1.0) for n in range(failures)]
    assert results[-1] is banned
    assert not any(results[:-1])
    assert not queue.count_failure(ATTACKER, "again", 2.0) or not banned  # it begins anew


def test_failures_that_are_too_far_apart_ban_nobody() -> None:
    queue = shares(LoginQueueOptions(ban_failures=5, within_s=10.0))
    assert not any(queue.count_failure(ATTACKER, "a", 3.0 * n) for n in range(100))


def test_a_source_that_many_share_is_not_banned() -> None:
    queue = shares(LoginQueueOptions(ban_failures=1))
    assert not queue.count_failure("", "alice", 0.0)


def test_the_guesses_of_others_do_not_lock_a_user_out() -> None:
    """A name's delay is for those who guessed; from elsewhere, or from where it was right, it
    does not hold."""
    queue = shares(LoginQueueOptions(burst=1))
    for number in range(100):
        queue.count_failure(f"198.51.100.{number}", "alice", 0.0)
    assert queue.due_s("198.51.100.7", "alice", 0.0) > 0.0
    assert queue.due_s(HONEST, "alice", 0.0) == 0.0
    queue.trust("", "alice")
    assert queue.due_s("", "alice", 0.0) == 0.0
    queue.count_failure("", "alice", 0.0)
    assert queue.due_s("", "alice", 0.0) > 0.0  # a wrong one from there ends that


def test_clients_that_say_no_name_share_none() -> None:
    """Tokens say who somebody is: wrong ones must not delay all others without a name."""
    queue = shares(LoginQueueOptions(burst=0))
    for _ in range(10):
        queue.count_failure("", "", 0.0)
        queue.count_failure(ATTACKER, "", 0.0)
    assert queue.due_s("", "", 0.0) == 0.0
    assert queue.due_s(HONEST, "", 0.0) == 0.0
    assert queue.due_s(ATTACKER, "", 0.0) > 0.0
    queue.trust(ATTACKER, "")
    assert queue.due_s(ATTACKER, "", 0.0) > 0.0


@pytest.mark.parametrize("name", ["alice", "a" * 500])
def test_a_login_that_was_right_before_goes_first_and_others_are_not_starved(name: str) -> None:
    queue = shares()
    queue.trust(HONEST, name)
    for number in range(50):
        push(queue, f"198.51.100.{number}", "guess")
    for _ in range(50):
        push(queue, HONEST, name)
    order = [popped(queue, 0.0).item == f"{HONEST} {name}" for _ in range(2 * (TRUSTED_TURNS + 1))]
    assert order.count(True) == 2 * TRUSTED_TURNS
    assert order.count(False) == 2


SOURCES = st.sampled_from(["", "a", "b", "c"])
NAMES = st.sampled_from(["x", "y", "z" * 500])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), SOURCES, NAMES),
        st.tuples(st.just("pop"), st.booleans(), st.booleans()),
        st.tuples(st.just("pass"), st.floats(0.0, 20.0), st.none()),
    ),
    max_size=120,
)


@given(ACTS, st.integers(0, 3), st.integers(1, 20))
def test_every_attempt_comes_out_once(
    acts: list[tuple[str, object, object]], burst: int, waiting_max: int
) -> None:
    """Pushed is popped, given up or still there; and in the end all are out."""
    queue: LoginQueue[int] = LoginQueue(LoginQueueOptions(burst=burst, delay_s=2.0), waiting_max)
    out: Counter[int] = Counter()
    running: list[Attempt[int]] = []
    pushed = 0
    now_s = 0.0

    def taken() -> None:
        attempt = queue.pop(now_s)
        if attempt is not None:
            running.append(attempt)

    def gave_up() -> None:
        out.update(queue.items_to_refuse)
        queue.items_to_refuse = []

    def finish(is_right: bool) -> None:
        attempt = running.pop(0)
        queue.end_check(attempt)
        out[attempt.item] += 1
        if is_right:
            queue.trust(attempt.source, attempt.name)
        else:
            queue.count_failure(attempt.source, attempt.name, now_s)

    for kind, first, second in acts:
        if kind == "push":
            source, name = str(first), str(second)
            pushed += queue.push(source, source or "shared", name, pushed, now_s)
        elif kind == "pop":
            taken()
            if first and running:
                finish(bool(second))
        else:
            assert isinstance(first, float)
            now_s += first
        gave_up()
        assert 0 <= queue.waiting <= waiting_max
        assert queue.waiting == pushed - out.total()
    for _ in range(20 * (pushed + 1)):
        taken()
        if running:
            finish(False)
        gave_up()
        now_s += 1.0
    assert out == Counter(range(pushed))
    assert queue.waiting == 0
    assert queue.pop(now_s) is None
    assert queue.wake_s() is None
