"""A peer that reads nothing is given up, on a virtual clock."""

from penstock.runtime.slow_peer import SlowPeer


def test_a_peer_that_reads_nothing_is_given_up() -> None:
    slow = SlowPeer(60.0)
    assert [slow.has_stalled(7, now_s) for now_s in (100.0, 159.9, 160.0)] == [False, False, True]


def test_a_slow_peer_is_not() -> None:
    """However little it reads, as long as it reads."""
    slow = SlowPeer(60.0)
    for minute in range(100):
        assert not slow.has_stalled(minute, minute * 59.0)


def test_less_is_not_progress() -> None:
    slow = SlowPeer(60.0)
    assert not slow.has_stalled(100, 1.0)
    assert not slow.has_stalled(50, 30.0)
    assert slow.has_stalled(99, 61.0)


def test_a_broker_that_looks_late_gives_nobody_up() -> None:
    """It does not know what was read before its first look."""
    slow = SlowPeer(1.0)
    assert not slow.has_stalled(7, 5.0)
    assert not slow.has_stalled(8, 7.0)
    assert slow.has_stalled(8, 8.0)
