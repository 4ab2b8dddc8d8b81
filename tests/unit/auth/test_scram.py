"""SCRAM-SHA-256: the RFC's own example, and everything that must not get in."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from penstock.auth import scram
from penstock.auth.scram import ScramExchange, ScramKeys, saslprep
from penstock.engine.values.access import CONTINUE, FAILURE, SUCCESS

# RFC 7677 §3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = "rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def decoy(name: str) -> ScramKeys:
    """Keys of nobody, as ``Decoys`` makes them: a salt for each name."""
    return ScramKeys(4096, hashlib.sha256(name.encode()).digest()[:16], bytes(32), bytes(32))


def exchange(password: str = "pencil") -> ScramExchange:
    keys = scram.keys_for(password, 4096, SALT)
    users = {"user": keys, "a,b=c": keys}
    return ScramExchange(users.get, decoy, SERVER_NONCE)


def test_the_example_of_rfc_7677() -> None:
    run = exchange()
    challenge = run.step(FIRST)
    assert (challenge.outcome, challenge.data) == (CONTINUE, CHALLENGE)
    end = run.step(FINAL)
    assert (end.outcome, end.data, end.username) == (SUCCESS, VERIFIER, "user")


def test_another_password_fails() -> None:
    run = exchange("pencils")
    assert run.step(FIRST).data == CHALLENGE
    end = run.step(FINAL)
    assert (end.outcome, end.data, end.username) == (FAILURE, None, None)


def test_an_unknown_user_fails_at_the_end_like_a_wrong_password() -> None:
    stranger = FIRST.replace(b"user", b"nobody")
    answers = []
    for _ in range(2):
        run = exchange()
        challenge = run.step(stranger)
        assert challenge.outcome == CONTINUE
        answers.append(challenge.data)
        assert run.step(FINAL).outcome == FAILURE
    assert answers[0] == answers[1], "the same salt each time, as a user has"
    assert answers[0] != exchange().step(FIRST.replace(b"user", b"nobody2")).data


def test_a_proof_for_the_decoy_gets_nobody_in() -> None:
    """Whoever knows the decoy's keys proves them rightly: being no user decides."""
    users: dict[str, ScramKeys] = {}
    run = ScramExchange(users.get, lambda _: scram.keys_for("pencil", 4096, SALT), SERVER_NONCE)
    client = ScramClient(["SCRAM-SHA-256"], "nobody", "pencil")
    challenge = run.step(client.get_client_first().encode())
    assert challenge.data is not None
    client.set_server_first(challenge.data.decode())
    assert run.step(client.get_client_final().encode()).outcome == FAILURE


@given(st.binary(max_size=60), st.binary(max_size=120))
def test_any_bytes_are_refused_or_answered(first: bytes, last: bytes) -> None:
    for begin in (first, FIRST, b"n,,n=" + first, FIRST + first):
        run = exchange()
        if run.step(begin).outcome == CONTINUE:
            assert run.step(last).outcome == FAILURE
            assert run.step(FINAL[: len(last)] + last).outcome == FAILURE


@pytest.mark.parametrize(
    "first",
    [
        None,
        b"",
        b"\xff",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=" + b"x" * 5000,
    ],
)
def test_a_first_message_that_is_none(first: bytes | None) -> None:
    assert exchange().step(first).outcome == FAILURE


@pytest.mark.parametrize(
    "final",
    [
        None,
        b"",
        b"p=",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"r=rO", b"r=sO"),
        FINAL.replace(SERVER_NONCE.encode(), b""),
        FINAL.replace(b"p=dH", b"p=eH"),
        FINAL.rpartition(b",p=")[0],
        FINAL + b"!",
        FINAL.replace(b"c=biws,", b""),
        FINAL.rpartition(b"p=")[0] + b"p=",
    ],
)
def test_a_last_message_that_proves_nothing(final: bytes | None) -> None:
    run = exchange()
    run.step(FIRST)
    assert run.step(final).outcome == FAILURE


def test_a_user_changed_in_between_fails() -> None:
    users = {"user": scram.keys_for("pencil", 4096, SALT)}
    run = ScramExchange(users.get, decoy, SERVER_NONCE)
    run.step(FIRST)
    users["user"] = scram.keys_for("other", 4096, SALT)
    assert run.step(FINAL).outcome == FAILURE


def test_names_are_unescaped() -> None:
    run = exchange()
    assert run.step(FIRST.replace(b"user", b"a=2Cb=3Dc")).outcome == CONTINUE
    assert run._is_known


def test_nonces_are_drawn_anew() -> None:
    users: dict[str, ScramKeys] = {}
    runs = [ScramExchange(users.get, decoy).step(FIRST).data for _ in range(2)]
    assert runs[0] != runs[1]


def test_a_short_salt_is_good_for_the_plain_password_alone() -> None:
    keys = scram.keys_for("pencil", 4096, b"8 bytes.")
    assert scram.verify(keys, b"pencil")
    assert ScramExchange({"user": keys}.get, decoy).step(FIRST).outcome == FAILURE


def test_a_name_that_takes_long_to_prepare_is_refused_unprepared() -> None:
    """One character, U+FDFA, becomes eighteen, and a preparation looks at each in Python."""
    for name in ("a" * 257, "\ufdfa" * 15):
        users = {name: scram.keys_for("pencil", 4096, SALT)}
        first = f"n,,n={name},r=abc".encode()
        assert ScramExchange(users.get, decoy).step(first).outcome == FAILURE
        assert not scram.is_usable(name)
    assert scram.is_usable("a" * 256)


@pytest.mark.parametrize("name", ["\U0001f600", "a\u0627", "\u00ad"])
def test_a_name_that_rfc_4013_prohibits_is_for_the_plain_password_alone(name: str) -> None:
    users = {name: scram.keys_for("pencil", 4096, SALT)}
    first = f"n,,n={name},r=abc".encode()
    assert ScramExchange(users.get, decoy).step(first).outcome == FAILURE
    assert not scram.is_usable(name)


def test_a_long_password_is_compared_as_it_is() -> None:
    keys = scram.keys_for("a" * 65_535, 4096, SALT)
    assert scram.verify(keys, b"a" * 65_535)
    with pytest.raises(ValueError, match="too long"):
        scram.keys_for("\ufdfa" * 300)
    assert not scram.verify(keys, "\ufdfa".encode() * 21_000)


def test_lines_hold_the_keys() -> None:
    keys = scram.keys_for("pencil", 4096, SALT)
    again = scram.parse_line(scram.line_of(keys))
    assert (again.iterations, again.salt) == (4096, SALT)
    assert (again.stored_key, again.server_key) == (keys.stored_key, keys.server_key)
    assert scram.verify(again, b"pencil")
    assert not scram.verify(again, b"Pencil")


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("plain text", "plain text"),
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0628", "\u0627\u0628"),
    ],
)
def test_saslprep_examples_of_rfc_4013(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u06271", "a\u0627"])
def test_saslprep_prohibits(text: str) -> None:
    with pytest.raises(ValueError, match=r"forbidden|malformed"):
        saslprep(text)
