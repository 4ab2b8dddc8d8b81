"""Two writers that both take themselves for the primary, while the log's machines fail.

``python -m tests.crash.fence_torture`` does the same for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.contract.log_systems import EtcdSystem, LogSystem, NatsSystem
from tests.support import etcd_cluster, nats_cluster
from tests.support.log_fence import contend

SEED: Final = 1
FAULTS: Final = 12


@pytest.fixture(
    params=[
        pytest.param(NatsSystem, marks=nats_cluster.needed),
        pytest.param(EtcdSystem, marks=etcd_cluster.needed),
    ]
)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogSystem]:
    made: LogSystem = request.param(tmp_path)
    yield made
    made.close()


@pytest.mark.torture("kills and pauses of machines one after the other, with elections between")
@pytest.mark.timeout(1200)
def test_an_entry_that_a_writer_is_told_of_stays_in_its_place(system: LogSystem) -> None:
    print(contend(system, SEED, lambda faults: faults < FAULTS))
