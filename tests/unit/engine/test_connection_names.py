"""Which end of a session is an older copy: the verdict on the names of connections, by a model.

Both ends connect, lose CONNACKs, are copied and put back, and fork. The model knows by counting
connections whether the state of one end is older than what the other end has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.connection.reason_strings import REASON_CHARACTERS_MAX
from penstock.engine.limits import EngineLimits
from penstock.engine.publishing.connection_names import (
    ATTEMPTS_MAX,
    CONNECTION,
    DIALLER_OLDER,
    NO_CONNECTION,
    PARTED,
    SAME,
    SERVER_OLDER,
    UNRELEASED,
    ConnectionName,
    ToldNames,
    judge_names,
    parse_names,
    refusal_sentence,
    told_names,
)
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Publish, Pubrel
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

A1, A2, A3 = (ConnectionName(number, f"{number:012x}") for number in (1, 2, 3))
OTHER_2 = ConnectionName(2, "f" * 12)


@pytest.mark.parametrize(
    ("known", "told", "is_forked", "verdict"),
    [
        (None, ToldNames((A2, A1)), False, SAME),
        (A1, ToldNames((A2, A1)), False, SAME),
        (A2, ToldNames((OTHER_2, A2, A1)), False, SAME),  # its CONNACK was lost
        (A3, ToldNames((A2, A1)), False, DIALLER_OLDER),
        (A3, ToldNames((A2, A1), True), False, PARTED),
        (A3, ToldNames((A2, A1)), True, DIALLER_OLDER),  # the other end's fork says nothing
        (A1, ToldNames((A3, A2)), False, SERVER_OLDER),
        (A1, ToldNames((A3, A2)), True, PARTED),
        (A1, ToldNames((A3, A2), True), False, SERVER_OLDER),
        (OTHER_2, ToldNames((A3, A2)), False, DIALLER_OLDER),  # both went on from copies
        (A2, ToldNames((A1, NO_CONNECTION)), False, DIALLER_OLDER),  # an older version's copy
        (A2, ToldNames((A1, NO_CONNECTION), True), False, PARTED),  # a new outbox
    ],
)
def test_the_verdict(
    known: ConnectionName | None, told: ToldNames, is_forked: bool, verdict: int
) -> None:
    assert judge_names(known, told, is_forked) == verdict
    assert parse_names(str(told)) == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "8-xyz",
        "-1-4be1d0c7a2f9",
        "8-4be1d0c7a2f9 ",
        f"{A1} forked",
        " ".join([str(A1)] * 99),
    ],
)
def test_other_text_is_no_name(text: str) -> None:
    assert parse_names(text) is None


@pytest.mark.parametrize("verdict", [DIALLER_OLDER, SERVER_OLDER])
def test_a_refusal_fits_a_reason_string(verdict: int) -> None:
    sentence = refusal_sentence(verdict, ConnectionName(99_999, "a" * 12), ToldNames((A2, A1)))
    assert len(sentence) <= REASON_CHARACTERS_MAX
    assert "'penstock store fork'" in sentence


@dataclass(frozen=True)
class End:
    """One end: the names that it has stored, and which connections its state is the outcome of."""

    names: tuple[ConnectionName, ...] = (NO_CONNECTION,)
    past: tuple[int, ...] = ()


STEPS = st.lists(
    st.sampled_from(
        ["connect", "lose connack", "copy dialler", "copy server", "old dialler", "old server"]
    ),
    max_size=25,
)


@given(STEPS)
def test_an_end_is_refused_exactly_when_it_lacks_a_connection_of_the_other(
    steps: list[str],
) -> None:
    dialler, server = End(), End()
    kept_dialler, kept_server = dialler, server
    for count, step in enumerate(steps):
        if step == "copy dialler":
            kept_dialler = dialler
        elif step == "copy server":
            kept_server = server
        elif step == "old dialler":
            dialler = kept_dialler
        elif step == "old server":
            server = kept_server
        else:
            if not server.past:  # a new session: CONNACK says so, and the dialler begins anew
                dialler, server, step = End(), End(), "connect"
            if len(dialler.names) > ATTEMPTS_MAX:
                break  # later attempts share a name
            name = ConnectionName(dialler.names[-1].number + 1, f"{count:012x}")
            dialler = replace(dialler, names=(name, *dialler.names))
            # Without CONNACK the dialler did nothing on a connection, and knows that by its name.
            known = {int(name.random, 16) for name in dialler.names[:-1]}
            shared = len(dialler.past)
            is_same = server.past[:shared] == dialler.past and known.issuperset(
                server.past[shared:]
            )
            verdict = judge_names(server.names[0], ToldNames(dialler.names), False)
            assert (verdict == SAME) is is_same, (steps, dialler, server)
            if verdict != SAME:
                break
            server = End((name,), (*server.past, count))
            if step == "connect":
                dialler = replace(server)


# -- at a server -----------------------------------------------------------------------------------


def named(bench: Bench, client_id: str, told: str, expiry_s: int = 3600) -> tuple[Line, Connack]:
    """A connection that tells its names; what was stored is committed."""
    properties = Properties(user_properties=[(CONNECTION, told)], session_expiry_interval=expiry_s)
    line, answer = bench.connect(Connect(client_id, V5, False, 0, properties=properties))
    bench.commit()
    return line, answer


def echo(answer: Connack) -> ToldNames | None:
    """What CONNACK tells."""
    return told_names(answer.properties)


def test_a_server_knows_the_last_connection_of_a_session_also_after_a_restart() -> None:
    bench = Bench()
    line, answer = named(bench, "box", f"{A1} {NO_CONNECTION}")
    assert echo(answer) == ToldNames((A1,))
    line.cut()
    line, answer = named(bench, "box", f"{A2} {A1}")
    assert echo(answer) == ToldNames((A2,))
    line.cut()
    bench.commit()
    bench.restart()
    _, answer = named(bench, "box", f"{OTHER_2} {A1}")
    assert answer.reason_code == reasons.IMPLEMENTATION_SPECIFIC_ERROR
    assert answer.properties is not None
    assert "an older copy of this client's store" in (answer.properties.reason_string or "")
    line, answer = named(bench, "box", f"{A3} {A2}")
    assert (answer.reason_code, answer.session_present) == (0, True)


def test_an_older_copy_takes_no_session_over_from_a_living_connection() -> None:
    bench = Bench()
    named(bench, "box", f"{A1} {NO_CONNECTION}")
    line, _ = named(bench, "box", f"{A2} {A1}")
    named(bench, "box", f"{OTHER_2} {NO_CONNECTION}")
    assert line.session.link is not None


def test_the_name_of_a_connection_ends_with_its_session() -> None:
    """Else clients with ever new identifiers would take the room of producers for a year."""
    bench = Bench()
    line, _ = named(bench, "box", f"{A1} {NO_CONNECTION}", expiry_s=10)
    assert len(bench.server.producers) == 1
    line.cut()
    bench.pass_s(11)
    bench.commit()
    assert len(bench.server.producers) == 0
    bench.restart()
    assert len(bench.server.producers) == 0


@pytest.mark.parametrize(
    ("limits", "client_id"),
    [(EngineLimits(producers_per_user_max=1), "box"), (EngineLimits(), "b" * 256)],
)
def test_a_session_for_whose_name_there_is_no_room_takes_no_part(
    limits: EngineLimits, client_id: str
) -> None:
    bench = Bench(limits)
    named(bench, "first", f"{A1} {NO_CONNECTION}")
    line, answer = named(bench, client_id, f"{A1} {NO_CONNECTION}")
    assert (answer.reason_code, echo(answer)) == (0, None)
    line.cut()
    _, answer = named(bench, client_id, f"{OTHER_2} {A1}")
    assert (answer.reason_code, echo(answer)) == (0, None)


def test_a_session_that_ends_with_its_connection_has_no_name() -> None:
    bench = Bench()
    _, answer = named(bench, "box", f"{A1} {NO_CONNECTION}", expiry_s=0)
    assert echo(answer) is None
    assert len(bench.server.producers) == 0


def test_a_server_tells_which_messages_of_the_session_are_not_released() -> None:
    bench = Bench()
    line, answer = named(bench, "box", f"{A1} {NO_CONNECTION}")
    line.send(Publish("t", b"", 2, packet_id=7), Publish("t", b"", 2, packet_id=65_535))
    bench.commit()
    line.cut()
    line, answer = named(bench, "box", f"{A2} {A1}")
    assert answer.properties is not None
    assert (UNRELEASED, "7 65535") in (answer.properties.user_properties or [])
    line.send(Pubrel(7), Pubrel(65_535))
    bench.commit()
    line.cut()
    _, answer = named(bench, "box", f"{A3} {A2}")
    assert answer.properties is not None
    assert UNRELEASED not in dict(answer.properties.user_properties or [])
