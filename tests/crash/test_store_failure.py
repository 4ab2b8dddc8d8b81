"""A store that cannot write: the broker fails closed (delivery contract, rule 2)."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.packets import Disconnect, Publish
from tests.support.broker import SERVE, Broker
from tests.support.deadline import DEADLINE_S, wait_until_logged
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient

FILE_BYTES_MAX: Final = 2_000_000
BODY: Final = bytes(100_000)

pytestmark = pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="prlimit is not installed: apt-get install util-linux"
)


def limited_to(file_bytes_max: int) -> tuple[str, ...]:
    """What begins a command whose files may not be longer. It writes no bytecode: Python before
    3.13.2 takes no note of a file that is cut short (cpython#126606), and could not be used then.
    """
    return ("env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", f"--fsize={file_bytes_max}")


def test_nothing_is_acknowledged_that_could_not_be_written(
    tmp_path: Path, clients: Clients
) -> None:
    """Files are limited to 2 MB as a full disk would; afterwards all that was promised is there."""
    limited = Broker(
        tmp_path,
        {"durability.store_retry_s_max": 0},
        command=[*limited_to(FILE_BYTES_MAX), *SERVE],
    )
    try:
        limited.start()
        subscriber = clients.join(limited, "s", clean_start=False, expiry_s=3600)
        subscriber.subscribe("t")
        subscriber.disconnect()
        acknowledged = publish_until_refused(clients.join(limited, "p"))
        assert 0 < acknowledged < FILE_BYTES_MAX // len(BODY)
        assert limited.process.wait(15) == 1
        wait_until_logged(limited, "the store could not write")
    finally:
        limited.close()
    with running_broker(tmp_path) as broker:
        again = clients.join(broker, "s", clean_start=False, expiry_s=3600, present=True)
        received = [again.take().payload for _ in range(acknowledged)]
        assert received == [b"%d" % number + BODY for number in range(acknowledged)]


@pytest.mark.parametrize(
    ("file_bytes_max", "below", "exit_code", "said"),
    [
        (4096, "data", 1, "File too large: raise the limit"),  # as a full disk: later it may do
        (FILE_BYTES_MAX, "file/data", 2, "cannot be used: Not a directory"),
    ],
)
def test_a_service_manager_can_tell_a_failing_disk_from_a_mistake(
    tmp_path: Path, file_bytes_max: int, below: str, exit_code: int, said: str
) -> None:
    (tmp_path / "file").touch()
    answer = subprocess.run(
        [
            *(*limited_to(file_bytes_max), *SERVE),
            *("--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / below)),
        ],
        env=environment({"durability.store_retry_s_max": 0}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (answer.returncode, said in answer.stderr) == (exit_code, True), answer.stderr


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
