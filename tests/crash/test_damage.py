"""A store that lost acknowledged messages, as its operator meets it.

Which losses are noticed, and that none is imagined: ``tests/contract/test_damage.py``.
"""

import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from penstock.config.stream import StreamDefinition
from penstock.store.archive import decode_piece
from penstock.store.rocks import RocksStore
from tests.contract.test_store import rows
from tests.support.broker import Broker
from tests.support.environment import environment
from tests.support.fixtures import Clients
from tests.support.processes import run_penstock

KILLS = 2  # in a repair


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

    refused = run_penstock("serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir)
    assert refused.returncode == 1
    said = refused.stderr.splitlines()[-1]
    assert "acknowledged messages, those with the offsets" in said
    assert " to 39," in said
    assert f"'penstock store repair --data-dir {data_dir}'" in said
    assert "Traceback" not in refused.stderr

    accepted = run_penstock("store", "repair", "--data-dir", data_dir)
    assert accepted.returncode == 0, accepted.stderr
    given_up = offsets_given_up(accepted.stdout)
    assert given_up
    assert "new epoch" in accepted.stdout

    own_broker.start()
    again = clients.join(own_broker, "s", clean_start=False, expiry_s=3600, present=True)
    left = [number for number in range(40) if number not in given_up]
    received = [again.take().payload for _ in left]
    assert received == [b"%d" % number * 100 for number in left], "whole, and in order"
    assert again.settle() == []


def offsets_given_up(said: str) -> set[int]:
    """What the repair says is lost."""
    line = said.partition("given up: ")[2].partition("\n")[0]
    given_up: set[int] = set()
    for begin, end in re.findall(r"offsets? (\d+)(?: to (\d+))?", line):
        given_up.update(range(int(begin), int(end or begin) + 1))
    return given_up


def test_a_store_in_use_is_not_repaired(own_broker: Broker) -> None:
    answer = run_penstock("store", "repair", "--data-dir", str(own_broker.data_dir))
    assert answer.returncode == 2
    assert "in use by another process" in answer.stderr


def test_a_missing_store_is_one_sentence(tmp_path: Path) -> None:
    answer = run_penstock("store", "repair", "--data-dir", str(tmp_path / "none"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"penstock: there is no store in {tmp_path / 'none'}; name ")


def test_a_store_with_a_broken_file_is_refused_checked_and_repaired(
    own_broker: Broker, clients: Clients
) -> None:
    """CURRENT is gone: RocksDB takes the directory for an empty one. Nothing is lost."""
    clients.join(own_broker, "s", clean_start=False, expiry_s=3600).subscribe("t")
    publisher = clients.join(own_broker, "p")
    clients.join(own_broker, "s", clean_start=False, expiry_s=3600, present=True).disconnect()
    for number in range(10):
        publisher.publish("t", b"%d" % number, 1)
    own_broker.kill()
    data_dir = str(own_broker.data_dir)
    (own_broker.data_dir / "store" / "CURRENT").unlink()

    refused = run_penstock("serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"penstock: the store in {data_dir} is damaged: its file CURRENT is missing; see with"
        f" 'penstock store check --data-dir {data_dir}' what is lost, then run 'penstock store"
        f" repair --data-dir {data_dir}' to go on with the rest, or restore a backup"
    )
    checked = run_penstock("store", "check", "--data-dir", data_dir)
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[0] == "its file CURRENT is missing"
    assert f"run 'penstock store repair --data-dir {data_dir}'" in checked.stdout.splitlines()[-1]
    dry_run = run_penstock("store", "repair", "--dry-run", "--data-dir", data_dir)
    assert dry_run.returncode == 0
    assert "was left as it is; without --dry-run it is repaired" in dry_run.stdout
    repaired = run_penstock("store", "repair", "--data-dir", data_dir)
    assert repaired.returncode == 0, repaired.stderr
    assert "the log has lost nothing" in repaired.stdout
    assert "the damaged store is kept as" in repaired.stdout
    assert "is whole" in run_penstock("store", "check", "--data-dir", data_dir).stdout

    own_broker.start()
    again = clients.join(own_broker, "s", clean_start=False, expiry_s=3600, present=True)
    assert [again.take().payload for _ in range(10)] == [b"%d" % number for number in range(10)]


def test_a_repair_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """What is left after it is run to its end is what a repair in peace leaves."""
    damaged = tmp_path / "damaged"
    stream = StreamDefinition(name="kept", topic_filters=("t/1",), retention_s=0)
    store = RocksStore(damaged, [stream])
    for base in range(0, 6000, 20):
        store.commit(rows(base, 20, size=1000))
    store.trim_log(2**62, 0, 2000)
    store.close()
    data_dir = tmp_path / "data"
    tables = sorted((damaged / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = bytearray(tables[-1].read_bytes())
    whole[len(whole) // 2] ^= 0x40
    tables[-1].write_bytes(whole)

    shutil.copytree(damaged, data_dir)
    began_s = time.monotonic()
    repair_in(data_dir).wait(60)
    takes_s = time.monotonic() - began_s
    logged, kept = expected = what_is_in(data_dir, stream)
    assert kept
    assert 2000 < len(logged) < 4000, "something was lost"
    shutil.rmtree(data_dir)

    draw = random.Random(7)
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        assert rounds < 5 * KILLS, "it is never killed"
        shutil.copytree(damaged, data_dir)
        for _ in range(2):
            process = repair_in(data_dir)
            began_s = time.monotonic()
            try:
                process.wait(takes_s * draw.uniform(0.3, 1.0))
                takes_s = min(takes_s, time.monotonic() - began_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        done = run_penstock("store", "repair", "--data-dir", str(data_dir))
        assert done.returncode == 0, done.stderr
        assert what_is_in(data_dir, stream) == expected
        assert "is whole" in run_penstock("store", "check", "--data-dir", str(data_dir)).stdout
        shutil.rmtree(data_dir)


def repair_in(data_dir: Path) -> subprocess.Popen[bytes]:
    """A repair under way."""
    command = [sys.executable, "-m", "penstock", "store", "repair", "--data-dir", str(data_dir)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)


def what_is_in(data_dir: Path, stream: StreamDefinition) -> tuple[set[int], set[int]]:
    """The offsets that the log has, and those that the stream keeps besides."""
    store = RocksStore(data_dir, [stream])
    try:
        logged = set(store.read(range(6000)))
        kept = {
            offset
            for key, value in store._database.items("archive")
            for offset in decode_piece(key, value).batch.column("offset").to_pylist()
        }
    finally:
        store.close()
    return logged, kept


def flip_a_byte(data_dir: Path) -> None:
    """In the middle of what the write-ahead log holds."""
    path = max((data_dir / "store").glob("*.log"), key=lambda log: log.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 0x40
    path.write_bytes(data)
