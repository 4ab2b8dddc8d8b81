"""Packet identifiers of QoS 2 messages received and not released, as they are stored."""

import random

from penstock.engine.session.inbound import Inbound
from penstock.engine.values.clock import Now
from penstock.engine.values.records import PAGE_IDENTIFIERS, ids_in, packet_id_checksum
from penstock.protocol import reasons

START_US = 1_800_000_000_000_000


def at(seconds: int) -> Now:
    return Now(1000.0 + seconds, START_US + seconds * 1_000_000)


def test_only_pages_in_which_something_changed_are_stored_anew() -> None:
    inbound = Inbound(is_stored=True)
    for packet_id in range(1, 10 * PAGE_IDENTIFIERS):
        assert inbound.receive(packet_id, at(0))
    assert len(inbound.take_pages()) == 10
    assert inbound.take_pages() == []
    assert not inbound.receive(3, at(0)), "it waits already"
    assert inbound.take_pages() == []
    assert inbound.release(3) == reasons.SUCCESS
    assert inbound.release(3) != reasons.SUCCESS
    inbound.receive(65_535, at(0))
    assert inbound.take_pages() == [
        (0, (1 << PAGE_IDENTIFIERS) - 1 - 1 - (1 << 3)),
        (65_535 // PAGE_IDENTIFIERS, 1 << 31),
    ]


def test_a_page_without_any_is_told_once() -> None:
    inbound = Inbound(is_stored=True)
    inbound.receive(40, at(0))
    inbound.receive(70, at(5))
    inbound.take_pages()
    assert inbound.forget(at(3).steady_us, at(6)) == 1
    assert inbound.take_pages() == [(1, 0)]
    inbound.session_lost()
    assert inbound.take_pages() == [(2, 0)]
    assert inbound.take_pages() == []


def test_the_stored_identifiers_are_those_that_wait_after_any_steps() -> None:
    """With a commit after each step, and a restart now and then."""
    draw = random.Random(3)
    inbound = Inbound(is_stored=True)
    stored: dict[int, int] = {}
    waits: set[int] = set()
    for second in range(3000):
        packet_id = draw.choice([draw.randint(1, 65_535), draw.randint(1, 100)])
        step = draw.random()
        if step < 0.55:
            assert inbound.receive(packet_id, at(second)) == (packet_id not in waits)
            waits.add(packet_id)
        elif step < 0.95 and waits:
            packet_id = draw.choice(sorted(waits))
            assert inbound.release(packet_id) == reasons.SUCCESS
            waits.discard(packet_id)
        elif step < 0.97:
            inbound.begin_connection(at(second))
        elif step < 0.99:
            inbound = Inbound(is_stored=True)
            inbound.restore(sorted(stored.items()))
            assert inbound.take_pages() == []
        stored.update(inbound.take_pages())
        stored = {page: bits for page, bits in stored.items() if bits}
        assert set(ids_in(list(stored.items()))) == waits
        assert len(inbound) == len(waits)
        assert inbound.checksum == packet_id_checksum(list(waits))


def test_identifiers_that_are_not_stored_have_no_pages() -> None:
    inbound = Inbound()
    inbound.receive(1, at(0))
    assert (inbound.take_pages(), inbound.checksum) == ([], 0)
