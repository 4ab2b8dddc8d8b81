"""A store that cannot write: the broker fails closed (delivery contract, rule 2)."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.packets import Disconnect, Publish
from tests.support.broker import SERVE, Broker
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient

FILE_BYTES_MAX: Final = 2_000_000
BODY: Final = bytes(100_000)

pytestmark = pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="prlimit is not installed: apt-get install util-linux"
)


def test_nothing_is_acknowledged_that_could_not_be_written(
    tmp_path: Path, clients: Clients
) -> None:
    """Files are limited to 2 MB as a full disk would; afterwards all that was promised is there."""
    limited = Broker(
        tmp_path,
        {"durability.store_retry_s_max": 0},
        command=["prlimit", f"--fsize={FILE_BYTES_MAX}", *SERVE],
    )
    try:
        limited.start()
        subscriber = clients.join(limited, "s", clean_start=False, expiry_s=3600)
        subscriber.subscribe("t")
        subscriber.disconnect()
        acknowledged = publish_until_refused(clients.join(limited, "p"))
        assert 0 < acknowledged < FILE_BYTES_MAX // len(BODY)
        assert limited.process.wait(15) == 1
        assert "the store could not write" in limited.log()
    finally:
        limited.close()
    with running_broker(tmp_path) as broker:
        again = clients.join(broker, "s", clean_start=False, expiry_s=3600, present=True)
        received = [again.take().payload for _ in range(acknowledged)]
        assert received == [b"%d" % number + BODY for number in range(acknowledged)]


def publish_until_refused(publisher: RawClient) -> int:
    """Publish large messages until the broker ends the connection; how many it acknowledged."""
    number = 0
    while True:
        publisher.send(Publish("t", b"%d" % number + BODY, 1, packet_id=number + 1))
        packet = publisher.receive()
        if isinstance(packet, Disconnect):
            assert packet.reason_code == 0x80
            publisher.expect_end()
            return number
        number += 1
