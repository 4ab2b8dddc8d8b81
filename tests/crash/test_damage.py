"""A store that lost acknowledged messages, as its operator meets it.

Which losses are noticed, and that none is imagined: ``tests/contract/test_damage.py``.
"""

import subprocess
import sys
from pathlib import Path

from tests.support.broker import Broker, environment
from tests.support.fixtures import Clients


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_refused_until_the_loss_is_accepted(own_broker: Broker, clients: Clients) -> None:
    subscriber = clients.join(own_broker, "s", clean_start=False, expiry_s=3600)
    subscriber.subscribe("t")
    subscriber.disconnect()
    publisher = clients.join(own_broker, "p")
    for number in range(40):
        publisher.publish("t", b"%d" % number * 100, 1)
    own_broker.kill()
    data_dir = str(own_broker.data_dir)
    flip_a_byte(own_broker.data_dir)

    refused = penstock("serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir)
    assert refused.returncode == 1
    said = refused.stderr.splitlines()[-1]
    assert "acknowledged messages, those with the offsets" in said
    assert " to 39," in said
    assert f"'penstock store repair --data-dir {data_dir}'" in said
    assert "Traceback" not in refused.stderr

    accepted = penstock("store", "repair", "--data-dir", data_dir)
    assert accepted.returncode == 0, accepted.stderr
    assert "given up in" in accepted.stdout
    assert "new epoch" in accepted.stdout

    own_broker.start()
    again = clients.join(own_broker, "s", clean_start=False, expiry_s=3600, present=True)
    left = int(accepted.stdout.partition("goes on at offset ")[2].partition(",")[0])
    assert 0 < left < 40
    received = [again.take().payload for _ in range(left)]
    assert received == [b"%d" % number * 100 for number in range(left)], "whole, and in order"
    assert again.settle() == []


def test_a_store_in_use_is_not_repaired(own_broker: Broker) -> None:
    answer = penstock("store", "repair", "--data-dir", str(own_broker.data_dir))
    assert answer.returncode == 2
    assert "in use by another process" in answer.stderr


def test_where_there_is_no_store(tmp_path: Path) -> None:
    answer = penstock("store", "repair", "--data-dir", str(tmp_path / "none"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"penstock: there is no store in {tmp_path / 'none'}; name ")


def flip_a_byte(data_dir: Path) -> None:
    """In the middle of what the write-ahead log holds."""
    path = max((data_dir / "store").glob("*.log"), key=lambda log: log.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 0x40
    path.write_bytes(data)
