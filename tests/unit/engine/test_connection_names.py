"""Which end of a session is an older copy: the verdict on the names of connections, by a model.

Both ends connect, lose CONNACKs, are copied and put back, and fork. The model knows by counting
connections whether the state of one end is older than what the other end has seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.publishing.connection_names import (
    ATTEMPTS_MAX,
    CONNECTION,
    NO_CONNECTION,
    PARTED,
    REFUSED,
    SAME,
    UNRELEASED,
    ConnectionName,
    ConnectionNames,
    ToldNames,
    judge_names,
    parse_names,
    refusal_sentence,
    told_names,
)
from penstock.engine.values.clock import Now
from penstock.engine.values.records import ProducerRecord
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Publish, Pubrel
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

A1, A2, A3 = (ConnectionName(second, f"{second:012x}") for second in (1, 2, 3))
OTHER_2 = ConnectionName(2, "f" * 12)


@pytest.mark.parametrize(
    ("known", "told", "is_forked", "verdict"),
    [
        (None, ToldNames((A2, A1)), False, SAME),
        (None, ToldNames((A2, A1), True), True, SAME),
        (ToldNames((A1,)), ToldNames((A2, A1)), False, SAME),
        (ToldNames((A2,)), ToldNames((OTHER_2, A2, A1)), False, SAME),  # its CONNACK was lost
        (ToldNames((A3,)), ToldNames((A2, A1)), False, REFUSED),
        (ToldNames((A1,)), ToldNames((A3, A2)), False, REFUSED),
        (ToldNames((A2,)), ToldNames((OTHER_2, NO_CONNECTION)), False, PARTED),
        (ToldNames((A1,)), ToldNames((A2, A1, NO_CONNECTION)), False, SAME),
        # a new epoch at either end, also where the names agree: a backup of the last connection
        (ToldNames((A3,)), ToldNames((A2, A1), True), False, PARTED),
        (ToldNames((A3,)), ToldNames((A2, A1)), True, PARTED),
        (ToldNames((A1,)), ToldNames((A2, A1), True), False, PARTED),
        (ToldNames((A1,)), ToldNames((A2, A1)), True, PARTED),
        # it is told again until the dialling end has heard it
        (ToldNames((A2,), True), ToldNames((A3, A2, A1)), False, PARTED),
        (ToldNames((A2,), True), ToldNames((A3, A2)), False, SAME),
        (ToldNames((A2,), True), ToldNames((A3, A1)), False, REFUSED),
    ],
)
def test_the_verdict(
    known: ToldNames | None, told: ToldNames, is_forked: bool, verdict: int
) -> None:
    assert judge_names(known, told, is_forked) == verdict
    assert parse_names(str(told)) == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "8-xyz",
        f"{'9' * 11}-{'a' * 12}",
        "-1-4be1d0c7a2f9",
        f"{A1} ",
        f"{A1} forked",
        " ".join([str(A1)] * 99),
    ],
)
def test_other_text_is_no_name(text: str) -> None:
    assert parse_names(text) is None


def test_a_refusal_fits_a_reason_string_and_tells_both_times() -> None:
    sentence = refusal_sentence(ConnectionName(1_764_381_972, "a" * 12), ToldNames((A2, A1)))
    assert len(sentence) <= REASON_CHARACTERS_MAX
    assert "2025-11-29T02:06:12Z here, 1970-01-01T00:00:01Z there" in sentence
    assert "none there" in refusal_sentence(A1, ToldNames((A2, NO_CONNECTION)))


def test_any_name_that_can_be_told_can_be_refused() -> None:
    """A client may tell any time; a year above 9999 ended its connection with an error of ours."""
    bench = Bench()
    last = ConnectionName(9_999_999_999, "a" * 12)
    line, _ = named(bench, "box", f"{last} {A1}")
    line.cut()
    _, answer = named(bench, "box", f"{A2} {last._replace(random='b' * 12)}")
    assert answer.reason_code == reasons.IMPLEMENTATION_SPECIFIC_ERROR
    assert answer.properties is not None
    assert "2286-11-20T17:46:39Z here" in (answer.properties.reason_string or "")


# -- two ends --------------------------------------------------------------------------------------


class Ends:
    """Two ends, each with a store that is copied and put back, and what really happened.

    The past of an end is the list of the connections that its state is the outcome of. In a
    connection without CONNACK the dialling end did nothing.
    """

    def __init__(self) -> None:
        self.dialler = ConnectionNames(EngineContext(0))
        self.server = ConnectionNames(EngineContext(0))
        self.epochs = {"dialler": "d0", "server": "s0"}
        self.pasts: dict[str, list[int]] = {"dialler": [], "server": []}
        self.copies: dict[str, tuple[dict[str, ProducerRecord], list[int]]] = {}
        self.forked: set[str] = set()  # since the last connection that the dialling end heard of
        self.accepts_next = False  # forked since the last connection that the server accepted
        self.count = 0

    def names(self, end: str) -> ConnectionNames:
        return self.dialler if end == "dialler" else self.server

    def copy(self, end: str) -> None:
        self.copies[end] = dict(self.names(end)._records), list(self.pasts[end])

    def old(self, end: str) -> None:
        records, past = self.copies.get(end, ({}, []))
        if past:
            self.names(end)._records = dict(records)
            self.pasts[end] = list(past)

    def fork(self, end: str) -> None:
        self.epochs[end] = f"{self.epochs[end][0]}{self.count}"
        self.forked.add(end)
        self.accepts_next = True

    def connect(self, has_connack: bool) -> None:
        """One attempt; check the verdict against what really happened."""
        self.count += 1
        now = Now(float(self.count), self.count)
        random = f"{self.count:012x}"
        told = self.dialler.next_names("c", self.epochs["dialler"], random, False, now)
        ours, theirs = self.pasts["dialler"], self.pasts["server"]
        attempts = {int(name.random, 16) for name in told.names[:-1]}
        is_same = theirs[: len(ours)] == ours and attempts.issuperset(theirs[len(ours) :])
        verdict, _ = self.server.judge("c", told, self.epochs["server"])
        if not theirs:
            assert verdict == SAME
            assert not told.is_parted or self.forked
            self.pasts = {"dialler": [], "server": []}  # a new session, as CONNACK says
            has_connack = True
        elif verdict == SAME:
            assert is_same
            assert not self.forked
        elif verdict == PARTED:
            assert not is_same or self.forked or self.copies, "else messages would come twice"
        elif verdict == REFUSED:
            assert not is_same
            assert not self.accepts_next
            return
        name = ToldNames((told.this,), verdict == PARTED)
        self.server.accept("c", name, self.epochs["server"], now)
        self.pasts["server"].append(self.count)
        self.accepts_next = False
        if has_connack:
            self.dialler.accept("c", ToldNames((told.this,)), self.epochs["dialler"], now)
            self.pasts["dialler"] = list(self.pasts["server"])
            self.forked.clear()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["connect"]), st.booleans()),
        st.tuples(st.sampled_from(["copy", "old", "fork"]), st.sampled_from(["dialler", "server"])),
    ),
    max_size=ATTEMPTS_MAX,  # later attempts without CONNACK share a name
)


@given(STEPS)
def test_an_end_is_refused_exactly_when_it_lacks_a_connection_of_the_other_and_nothing_is_forked(
    steps: list[tuple[str, Any]],
) -> None:
    ends = Ends()
    for action, argument in steps:
        getattr(ends, action)(argument)
    ends.fork("dialler")
    ends.connect(True)  # a fork of any end is the way on, whatever happened
    ends.connect(True)
    assert ends.pasts["dialler"] == ends.pasts["server"]
    assert len(ends.pasts["server"]) >= 2


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
    assert "an older copy of the data at one end" in (answer.properties.reason_string or "")
    line, answer = named(bench, "box", f"{A3} {A2}")
    assert (answer.reason_code, answer.session_present) == (0, True)


def test_an_older_copy_takes_no_session_over_from_a_living_connection() -> None:
    bench = Bench()
    named(bench, "box", f"{A1} {NO_CONNECTION}")
    line, _ = named(bench, "box", f"{A2} {A1}")
    named(bench, "box", f"{A3} {OTHER_2}")
    assert line.session.link is not None


def stored_names(bench: Bench) -> int:
    """How many names the store has."""
    return len(bench.store.recover().producers)


def test_the_name_of_a_connection_ends_with_its_session_and_takes_no_room_of_producers() -> None:
    bench = Bench()
    line, _ = named(bench, "b" * 1000, f"{A1} {NO_CONNECTION}", expiry_s=10)
    assert (len(bench.server.producers), stored_names(bench)) == (0, 1)
    line.cut()
    bench.pass_s(11)
    bench.commit()
    assert stored_names(bench) == 0


def test_a_name_is_not_told_where_connack_has_no_room_and_then_not_stored_either() -> None:
    """A name that the dialling end never hears of would lock it out."""
    bench = Bench()
    told = [(CONNECTION, f"{A1} {NO_CONNECTION}")]
    small = Properties(user_properties=told, session_expiry_interval=60, maximum_packet_size=60)
    _, answer = bench.connect(Connect("box", V5, False, 0, properties=small))
    assert (answer.reason_code, echo(answer)) == (0, None)
    bench.commit()
    assert stored_names(bench) == 0


def test_a_new_epoch_of_the_log_forgets_what_was_received_though_the_names_agree() -> None:
    """A backup that is restored was made in the last connection."""
    bench = Bench()
    line, _ = named(bench, "box", f"{A1} {NO_CONNECTION}")
    line.send(Publish("t", b"before", 2, packet_id=7))
    bench.commit()
    line.cut()
    bench.server.epoch = "restored"
    for _ in range(2):  # the first CONNACK is lost
        line, answer = named(bench, "box", f"{A2} {A1}")
        assert echo(answer) == ToldNames((A2,), True)
        assert len(line.session.inbound) == 0
        line.cut()
    line, answer = named(bench, "box", f"{A3} {A2}")
    assert echo(answer) == ToldNames((A3,))


def test_a_session_that_ends_with_its_connection_has_no_name() -> None:
    bench = Bench()
    _, answer = named(bench, "box", f"{A1} {NO_CONNECTION}", expiry_s=0)
    assert echo(answer) is None
    assert stored_names(bench) == 0


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
