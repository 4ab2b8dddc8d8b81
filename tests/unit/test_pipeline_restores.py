"""What a storm over a Spark cluster puts back: only what it has a copy of."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

from tests.support.pipeline_restores import DATA, DELETED, OLDER, Restores


def test_nothing_is_put_back_before_there_is_a_copy_and_the_data_once_a_round(
    tmp_path: Path,
) -> None:
    none = cast("Any", None)  # neither is asked when a round is drawn
    times = {OLDER: 1, DATA: 2, DELETED: 1}
    restores = Restores(none, none, tmp_path, times, random.Random(1))
    assert restores.of_round(1) == [DELETED]
    restores._copies.append(tmp_path / "job")
    restores._data = tmp_path / "data"
    assert sorted(restores.of_round(1)) == [DATA, OLDER]
    assert restores.of_round(1) == [DATA]
