"""What the broker recovered is no work for the garbage collector."""

import gc

from penstock.app.composing import set_recovered_aside


class Subscription:
    pass


def test_long_lived_objects_are_not_looked_at_again() -> None:
    kept = [Subscription() for _ in range(1000)]
    assert any(one is kept[0] for one in gc.get_objects())
    try:
        set_recovered_aside()
        assert gc.get_freeze_count() >= 1000
        assert not any(one is kept[0] for one in gc.get_objects())
    finally:
        gc.unfreeze()
