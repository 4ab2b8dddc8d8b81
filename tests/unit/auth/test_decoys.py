"""Decoys: names that do not exist look like names that do, and stay as they are."""

from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from penstock.auth import scram
from penstock.auth.decoys import Decoys
from penstock.auth.passwords import Users, mistake_in, verify
from tests.unit.auth.test_passwords import pbkdf2_line, sha512_line

SECRET = b"s" * 32


def argon2(memory_kib: int, password: str = "secret") -> str:
    return PasswordHasher(time_cost=1, memory_cost=memory_kib, parallelism=1).hash(password)


def scram_line(iterations: int, password: str = "secret") -> str:
    return scram.line_of(scram.keys_for(password, iterations))


MIXED = {
    "a": argon2(64),
    "b": argon2(128),
    "c": scram_line(4096),
    "d": scram_line(8192),
    "e": pbkdf2_line(b"secret", 101),
    "f": pbkdf2_line(b"secret", 202),
    "g": sha512_line(b"secret"),
}
NAMES = [f"nobody{number}" for number in range(300)]


def costs(line: str) -> tuple[str, ...]:
    """What a guesser could measure of a line."""
    if line.startswith("SCRAM"):
        keys = scram.parse_line(line)
        return "scram", str(keys.iterations), str(len(keys.salt))
    kind, parameters = line.split("$")[1:3]
    if kind == "argon2id":
        return kind, line.split("$")[3], str(len(line))
    return (kind, parameters) if kind == "7" else (kind,)


def test_each_kind_of_user_has_namesakes_that_cost_the_same() -> None:
    decoys = Decoys(MIXED.values(), SECRET)
    made = [decoys.line(name) for name in NAMES]
    assert {costs(line) for line in made} == {costs(line) for line in MIXED.values()}
    assert all(mistake_in(line) == "" for line in made)
    assert not any(verify(line, b"secret") for line in made[:20])


def test_a_name_gets_the_same_each_time_and_with_another_secret_something_else() -> None:
    first, again = Decoys(MIXED.values(), SECRET), Decoys(MIXED.values(), SECRET)
    other = Decoys(MIXED.values(), b"o" * 32)
    assert [first.line(name) for name in NAMES] == [again.line(name) for name in NAMES]
    assert not {first.line(name) for name in NAMES} & {other.line(name) for name in NAMES}


@given(st.sampled_from(sorted(MIXED)), st.text(min_size=1, max_size=5))
def test_another_user_with_a_new_password_changes_nothing(user: str, name: str) -> None:
    """A new salt and hash, the same costs: also the first user of the file, and the only one of
    its costs."""
    renewed = MIXED | {
        "a": argon2(64, "new"),
        "c": scram_line(4096, "new"),
        "d": scram_line(8192, "new"),
    }
    changed = MIXED | {user: renewed[user]}
    before, after = Decoys(MIXED.values(), SECRET), Decoys(changed.values(), SECRET)
    assert before.line(name) == after.line(name)
    asked = [decoys.scram_keys(name) for decoys in (before, after)]
    assert asked[0] is not None
    assert asked[1] is not None
    assert asked[0].salt == asked[1].salt
    assert asked[0].iterations == asked[1].iterations


def test_new_costs_take_their_share_and_leave_the_other_names_alone() -> None:
    before = Decoys(MIXED.values(), SECRET)
    after = Decoys([*MIXED.values(), scram_line(16384)], SECRET)
    for name in NAMES:
        was, becomes = before.line(name), after.line(name)
        assert was == becomes or costs(becomes) == ("scram", "16384", "16")


def test_scram_asks_for_what_real_users_have() -> None:
    decoys = Decoys(MIXED.values(), SECRET)
    asked = [decoys.scram_keys(name) for name in NAMES]
    assert {keys.iterations for keys in asked if keys is not None} == {4096, 8192}
    assert {len(keys.salt) for keys in asked if keys is not None} == {16}
    assert Decoys([MIXED["a"]], SECRET).scram_keys("nobody") is None


def test_an_unknown_user_costs_what_its_decoy_does() -> None:
    """The same work as for a wrong password of a user with those costs, and no more."""
    users = Users(MIXED)
    decoys = Decoys(users.lines(), SECRET)
    for name in [*MIXED, "nobody"]:
        assert not users.verify(name, b"wrong", decoys.line(name))
